"""A signal for processes of an attempt reaches those, and nobody who got the number of one since they were seen."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuyard.engines.local import watching
from gpuyard.engines.local.attempt.cgroups import Cgroup
from gpuyard.engines.local.client import Data, Spawner
from gpuyard.engines.local.watching import AttemptMonitor
from gpuyard.engines.machine.backoff import NodeBackoff
from gpuyard.engines.node.attempt.crew import Crew
from gpuyard.engines.node.attempt.tasks import TaskEntry
from gpuyard.engines.node.kernel.processes import find_descendants, signal_below
from harness.patience import until

FAMILY = "import subprocess, time; subprocess.Popen(['sleep', '600']); print(flush=True); time.sleep(600)"


@pytest.fixture
def other() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "600"]) as made:
        yield made
        made.kill()


def no_descriptors(pid: int) -> int:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


@pytest.mark.parametrize("old_kernel", [False, True])
def test_a_signal_for_what_is_below_reaches_nobody_beside_it(
    other: "subprocess.Popen[bytes]", old_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if old_kernel:
        monkeypatch.setattr(os, "pidfd_open", no_descriptors)
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE) as above:
        assert above.stdout is not None
        above.stdout.readline()
        (below,) = find_descendants({above.pid})
        # As if the number of one that was seen below had been given to somebody else.
        signal_below(above.pid, [other.pid, below, 1 << 22], signal.SIGKILL)
        until(lambda: not find_descendants({above.pid}))
        assert [None, None] == [above.poll(), other.poll()]
        above.kill()


class Started(TaskEntry):
    """Whose steps are all of its processes."""

    def starters(self, below: Callable[[], set[int]]) -> set[int]:
        return below()


class Deceived(Crew):
    """That has seen a process of its own, and one whose number was given to somebody else since."""

    def __init__(self, other: int) -> None:
        super().__init__(Started({}))
        self.other = other
        self.own = os.fork()
        if self.own == 0:
            # A handler that it had inherited would only end the pause, and one that ran before it not even that.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pause()
            os._exit(100)

    def below(self) -> set[int]:
        return {self.own, self.other}


def lives(process: "subprocess.Popen[bytes]") -> bool:
    """A process that was killed does not stop any more."""
    os.kill(process.pid, signal.SIGSTOP)
    return os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])


@pytest.mark.parametrize(
    "tells", [lambda crew: crew.lingers(), lambda crew: crew.warn(signal.SIGTERM)], ids=["stop", "warning"]
)
def test_what_a_stop_and_a_warning_tell_nobody_beside_the_job_hears(
    other: "subprocess.Popen[bytes]", tells: Callable[[Crew], object]
) -> None:
    supervisor = os.fork()
    if supervisor == 0:
        try:
            crew = Deceived(other.pid)
            tells(crew)
            os._exit(os.WTERMSIG(os.waitpid(crew.own, 0)[1]))
        finally:
            os._exit(100)
    assert signal.SIGTERM == os.WEXITSTATUS(os.waitpid(supervisor, 0)[1])
    assert lives(other)


class Emptied(Cgroup):
    """The group of an attempt of which one process has ended meanwhile, and somebody else has its number."""

    def __init__(self, own: int, other: int) -> None:
        super().__init__("/nowhere")
        self.seen = [[own], [own, other]]

    def pids(self) -> list[int]:
        return self.seen.pop()


@pytest.mark.parametrize("old_kernel", [False, True])
def test_a_group_is_killed_and_nobody_beside_it(
    other: "subprocess.Popen[bytes]", old_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if old_kernel:
        monkeypatch.setattr(os, "pidfd_open", no_descriptors)
    with subprocess.Popen(["sleep", "600"]) as own:
        Emptied(own.pid, other.pid).kill()
        assert -signal.SIGKILL == own.wait()
    assert lives(other)


def test_what_a_lost_attempt_left_is_killed_and_nobody_beside_it(
    other: "subprocess.Popen[bytes]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["sleep", "600"]) as own:
        seen = [set(), set(), {own.pid}, {own.pid, other.pid}]
        monkeypatch.setattr(watching.processes, "find_carrying", lambda *_: seen.pop())
        data = Data(tmp_path)
        monitor = AttemptMonitor(
            data, "", "", lambda: 0, lambda _key, _plan, end: end, NodeBackoff(1.0, 1.0, lambda: 0)
        )
        assert monitor.clear("y-1-1")
        assert -signal.SIGKILL == own.wait()
        data.close()
    assert lives(other)


def test_code_that_cannot_be_loaded_is_written_down_as_errors_are(tmp_path: "os.PathLike[str]") -> None:
    log = os.path.join(tmp_path, "spawner.log")
    spawner = Spawner(log, above=os.path.join(tmp_path, "gone"))
    assert {} == spawner.spawn([os.path.join(tmp_path, "y-1-1")])
    spawner.close()
    with open(log, encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert {"ERROR supervisor"} == {" ".join(line.split()[1:3]) for line in lines}
    assert all(["ModuleNotFoundError: No module named" in line for line in lines])
