"""What is told of the kernel's log: faults alone, each to those that it is about."""

import os
from pathlib import Path

import pytest

from gpuyard.telemetry.batches import LINES_MAX, Buffer
from gpuyard.telemetry.samples import KernelLine, Sample
from gpuyard.telemetry.series import LINES_KEPT, Series
from gpuyard.telemetry.sources import AttemptPlace
from gpuyard.telemetry.sources.kernel_log import KernelLog

MINE = AttemptPlace("y-1-1-1", group="/sys/fs/cgroup/yard/y-1-1-1")
OTHER = AttemptPlace("y-1-2-1", groups_v1={"memory": "/sys/fs/cgroup/memory/yard/y-1-2-1"})
GPUS = {"00000000:1B:00.0": {MINE.key}, "00000000:1C:00.0": {OTHER.key}}
XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
OOM = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg={},task=python3,pid=4711,uid=1000"


def told(log: KernelLog, places: list[AttemptPlace]) -> list[tuple[str, tuple[str, ...]]]:
    return [(line.text, line.attempts) for line in log.new(10_000_000, places, GPUS, lambda: 5_000_000)]


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A pipe: as /dev/kmsg does, it has lines once and then nothing yet."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    return path


def test_a_fault_is_told_to_those_that_it_is_about(kernel: Path) -> None:
    log = KernelLog(str(kernel))
    with open(kernel, "w", encoding="ascii") as writing:
        for text in (
            "usb 1-1: new device",
            XID,
            OOM.format("/yard/y-1-1-1"),
            OOM.format("/yard/y-1-2-1/below"),
            OOM.format("/user.slice/user-1000.slice"),
            "blk_update_request: I/O error, dev nvme0n1, sector 1",
            "NVRM: Xid (PCI:0000:af:00): 13, pid=1, name=x",
        ):
            writing.write(f"3,1,4000000,-;{text}\n SUBSYSTEM=pci\n")
        writing.flush()
        found = told(log, [MINE, OTHER])

    assert [
        (XID, (MINE.key,)),
        (OOM.format("/yard/y-1-1-1"), (MINE.key,)),
        (OOM.format("/yard/y-1-2-1/below"), (OTHER.key,)),
        ("blk_update_request: I/O error, dev nvme0n1, sector 1", ()),
    ] == found
    assert 4 == log.faults
    log.close()


def test_a_job_that_is_gone_by_now_is_still_known(kernel: Path) -> None:
    log = KernelLog(str(kernel))
    with open(kernel, "w", encoding="ascii") as writing:
        assert [] == told(log, [MINE])
        writing.write(f"3,1,4000000,-;{OOM.format('/yard/y-1-1-1')}\n")
        writing.flush()

        assert [(OOM.format("/yard/y-1-1-1"), (MINE.key,))] == told(log, [])
    log.close()


def test_lines_have_the_time_of_the_yard_and_old_ones_are_left_out(kernel: Path) -> None:
    log = KernelLog(str(kernel), since_ms=9_998_000)
    with open(kernel, "w", encoding="ascii") as writing:
        writing.write(f"3,1,2900000,-;{XID}\n3,2,4500000,-;{XID}\nno record\n3,x;{XID}\n")
        writing.flush()
        found = log.new(10_000_000, [MINE], GPUS, lambda: 5_000_000)

    assert [KernelLine(9_999_000, XID, (MINE.key,))] == found
    log.close()


def test_a_kernel_that_hides_its_log_tells_nothing(tmp_path: Path) -> None:
    log = KernelLog(str(tmp_path / "none"))

    assert not log.readable
    assert [] == told(log, [MINE])


def test_lines_wait_with_samples_and_are_sent_again_until_they_are_taken() -> None:
    buffer = Buffer()
    line = KernelLine(1, XID, (MINE.key,))
    buffer.add(Sample("n", 1, {"node/cpu": 1}))
    assert "lines" not in buffer.batch(1, 1, ())
    buffer.note([line])
    sent = {"at_ms": 1, "text": XID, "attempts": [MINE.key]}
    assert [sent] == buffer.batch(1, 1, ())["lines"] == buffer.batch(2, 2, ())["lines"]
    buffer.note([line._replace(at_ms=number) for number in range(LINES_MAX)])
    buffer.taken()

    assert LINES_MAX == len(buffer.batch(3, 3, ())["lines"]), "those that came meanwhile are not forgotten"


def test_lines_are_kept_once_for_each_job_and_bounded(tmp_path: Path) -> None:
    series = Series(str(tmp_path / "series.db"))
    lines = [
        KernelLine(1000, XID, (MINE.key,)),
        KernelLine(2000, "I/O error", ()),
        KernelLine(3000, "oom", (OTHER.key,)),
    ]
    series.add_lines("c:n", lines)
    series.add_lines("c:n", lines)
    series.add_lines("c:other", lines)

    assert lines[:2] == series.lines(MINE.key, "c:n", 0, 10_000)
    assert lines[1:] == series.lines(OTHER.key, "c:n", 0, 10_000)
    assert lines[1:2] == series.lines(MINE.key, "c:n", 1500, 10_000)
    series.add_lines("c:n", [KernelLine(5000 + number, "I/O error", ()) for number in range(LINES_KEPT)])
    assert LINES_KEPT == len(series.lines("", "c:n", 0, 10_000))
    assert 3 == len(series.lines(MINE.key, "c:other", 0, 10_000)) + 1
    series.close()
