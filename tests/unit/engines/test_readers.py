"""Named logs are read by few processes, however many people follow them; one that hangs is its user's alone."""

import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpuyard.engines.contract import Transient
from gpuyard.engines.machine.readers import Readers
from harness.patience import until

ME = (os.geteuid(), os.getegid())


@pytest.fixture
def readers() -> Iterator[Readers]:
    made = Readers(most=3)
    yield made
    made.close()


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "job.out"
    path.write_text("one\ntwo\n")
    return str(path)


def children() -> set[int]:
    """The processes that this one has started and that are alive."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError):
            found |= {int(pid) for pid in Path(f"/proc/self/task/{thread}/children").read_text().split()}
    return found


def test_sixty_followers_cost_one_process_and_little_time(readers: Readers, log: str) -> None:
    """A Python of its own for each of these 600 reads took over ten seconds of CPU."""
    before, most, wrong = children(), [0], []
    begun_s = resource.getrusage(resource.RUSAGE_CHILDREN)

    def follow() -> None:
        for _ in range(10):
            if (piece := readers.read(*ME, log, 4, 100)) != b"two\n":
                wrong.append(piece)

    threads = [threading.Thread(target=follow) for _ in range(60)]
    for thread in threads:
        thread.start()
    while any([thread.is_alive() for thread in threads]):
        most[0] = max(most[0], len(children() - before))
        time.sleep(0.01)
    readers.close()
    ended_s = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ([], 1) == (wrong, most[0])
    assert 2.0 > ended_s.ru_utime + ended_s.ru_stime - begun_s.ru_utime - begun_s.ru_stime


def test_there_are_never_more_than_so_many(readers: Readers, log: str) -> None:
    before = children()
    for gid in range(20, 30):
        assert b"one\n" == readers.read(ME[0], gid, log, 0, 4)
        assert 3 >= len(children() - before)


def test_a_reader_that_its_user_killed_or_stopped_is_replaced(readers: Readers, log: str) -> None:
    readers.read_s_max = 60.0
    before = children()
    assert b"one\n" == readers.read(*ME, log, 0, 4)
    (pid,) = children() - before
    os.kill(pid, signal.SIGKILL)
    assert b"one\n" == readers.read(*ME, log, 0, 4)

    (pid,) = children() - before
    os.kill(pid, signal.SIGSTOP)
    readers.read_s_max = 0.2
    with pytest.raises(Transient, match=r"job\.out cannot be read: no answer within"):
        readers.read(*ME, log, 0, 4)
    readers.read_s_max = 60.0
    assert b"one\n" == readers.read(*ME, log, 0, 4)
    assert pid not in children()


def test_what_a_user_may_not_read_is_empty_and_what_is_no_file_is_too(
    readers: Readers, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "none", tmp_path, tmp_path / "pipe", "a\0b"):
        assert b"" == readers.read(*ME, str(path), 0, 10)
    if os.geteuid() == 0:
        assert b"" == readers.read(54_321, 54_321, "/etc/shadow", 0, 10)


def test_one_that_is_silent_goes_by_itself(readers: Readers, log: str) -> None:
    readers.idle_s = 0.2
    before = children()
    readers.read(*ME, log, 0, 4)
    (pid,) = children() - before
    until(lambda: "State:\tZ" in Path(f"/proc/{pid}/status").read_text(), 20)
    assert b"one\n" == readers.read(*ME, log, 0, 4)
