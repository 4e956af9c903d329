"""Attempts on Slurm nodes are known by the process that starts them, and only by the right user's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuyard.telemetry.collector import Collector
from gpuyard.telemetry.sources import AttemptPlace
from gpuyard.telemetry.sources.kernel import Kernel
from gpuyard.telemetry.sources.nvml import NvmlSource
from gpuyard.telemetry.sources.slurm_attempts import Supervised

KEY = "yard-18b-7-1"
_BUSY = "import os, sys, time; held = b'x' * (64 << 20); print(os.getpid(), flush=True); time.sleep(60)"
_HEAD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[2]])"


@contextmanager
def head(folder: Path, **env: str) -> Iterator[int]:
    """What the yard's program on a node looks like, with a job below it that has 64 MiB; gives the job's pid."""
    words = [sys.executable, "-c", _HEAD, str(folder), _BUSY]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})
    assert process.stdout is not None
    job = int(process.stdout.readline())
    try:
        yield job
    finally:
        os.kill(job, 9)
        process.wait()
        process.stdout.close()


def test_processes_below_the_yards_program_are_the_attempts(tmp_path: Path) -> None:
    (tmp_path / "attempts" / KEY / "run").mkdir(parents=True)
    found = Supervised(str(tmp_path / "attempts"), "run", lambda: ["GPU-a", "GPU-b"])

    with head(tmp_path / "attempts" / KEY, SLURM_JOB_GPUS="1"):
        (place,) = found.places()
        told = Collector("n1", _None(), found.places, Kernel()).take(0)
    gone = found.places()

    assert (KEY, ("GPU-b",)) == (place.key, place.devices)
    assert 64 <= (told[f"attempt/{KEY}/memory"] or 0) < 150
    assert [] == gone


def test_nobody_puts_work_down_to_the_job_of_another_user(tmp_path: Path) -> None:
    run = tmp_path / "attempts" / KEY / "run"
    run.mkdir(parents=True)
    (tmp_path / "mine" / KEY / "run").mkdir(parents=True)
    found = Supervised(str(tmp_path / "attempts"), "run")

    with head(tmp_path / "mine" / KEY):
        elsewhere = found.places()
    if os.geteuid() == 0:
        os.chown(run, 12345, 12345)
        with head(tmp_path / "attempts" / KEY):
            assert [] == Supervised(str(tmp_path / "attempts"), "run").places()

    assert [] == elsewhere


def test_the_cgroup_that_slurm_makes_for_the_job_counts_with_all_its_steps(tmp_path: Path) -> None:
    (tmp_path / "shared" / KEY / "run").mkdir(parents=True)
    proc = tmp_path / "proc"
    (proc / "77").mkdir(parents=True)
    (proc / "self").mkdir()
    (proc / "self/mountinfo").write_text("29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    (proc / "77/stat").write_text("77 (python3) S 5 " + "0 " * 17 + "4711 0 0\n")
    (proc / "77/cmdline").write_bytes(b"python3\0-c\0x\0" + os.fsencode(tmp_path / "shared" / KEY) + b"\0")
    (proc / "77/cgroup").write_text("0::/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0\n")

    (place,) = Supervised(str(tmp_path / "shared"), "run", root=str(tmp_path)).places()

    group = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_12"
    assert AttemptPlace(KEY, group, None, (77,)) == place


class _None(NvmlSource):
    """A node without GPUs."""

    def __init__(self) -> None:
        pass

    def look(self, now_ms: int) -> list[object]:  # type: ignore[override]
        return []
