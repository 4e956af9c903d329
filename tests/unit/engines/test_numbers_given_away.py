"""A process that was seen may have ended, and its number be somebody else's, by the time that a signal is sent."""

import io
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines.local.steps import live_steps
from gpuyard.engines.node.containers import image, runtimes
from gpuyard.engines.node.visits import visitors


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has the number now."""
    with subprocess.Popen(["sleep", "600"]) as made:
        yield made
        made.kill()


def _by_visit(monkeypatch: pytest.MonkeyPatch, _folder: Path, pid: int) -> None:
    job, keeper = 2**22 - 1, 2**22 - 2
    monkeypatch.setattr(visitors, "find_descendants", lambda roots: {pid} if job in roots else set())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        visitors.send_signal(ours, {"number": signal.SIGKILL, "family": (job, keeper)})


def _by_container(monkeypatch: pytest.MonkeyPatch, folder: Path, pid: int) -> None:
    made = image.Containers.__new__(image.Containers)
    made.folder, made.image, made.env = str(folder), {"by": runtimes.PODMAN}, {}
    (folder / "pid-0").write_text(str(pid))
    monkeypatch.setattr(os, "getpid", lambda: 2**22 - 1)
    made._pass_on(signal.SIGTERM, 2**22 - 2, 0)


def _gone_since(pid: int) -> Callable[..., set[int]]:
    """What two looks see: the second finds no process of ours any more."""
    looks = [{pid}]
    return lambda *_: looks.pop() if looks else set()


def _by_bundle(monkeypatch: pytest.MonkeyPatch, folder: Path, pid: int) -> None:
    monkeypatch.setattr(runtimes, "_first_processes", _gone_since(pid))
    runtimes.end_all({"by": runtimes.OCI, "folder": str(folder)}, "y-1-1")


def _by_step(monkeypatch: pytest.MonkeyPatch, _folder: Path, pid: int) -> None:
    made: Any = live_steps.LiveSteps.__new__(live_steps.LiveSteps)
    made._folder, made._boot = "", "boot"
    monkeypatch.setattr(live_steps, "_processes_of", _gone_since(pid))
    made._lives({"pid": 0, "ticks": 0, "boot": "boot", "step": 0})


@pytest.mark.parametrize("send", [_by_visit, _by_container, _by_bundle, _by_step])
def test_nobody_else_gets_the_signal(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    stranger: "subprocess.Popen[bytes]",
    send: Callable[[pytest.MonkeyPatch, Path, int], None],
) -> None:
    send(monkeypatch, tmp_path, stranger.pid)
    monkeypatch.undo()
    with pytest.raises(subprocess.TimeoutExpired):
        stranger.wait(0.2)


def test_a_container_that_slurm_runs_elsewhere_gets_its_signals_and_nobody_elses() -> None:
    """It is not below the task that asked for it: whose it is stands in its environment."""
    with subprocess.Popen(["sleep", "600"], env={**os.environ, runtimes.MARK: "y-1-1"}) as made:
        runtimes.tell({"by": runtimes.OCI}, "y-2-1", "pid-0", made.pid, signal.SIGKILL)
        runtimes.tell({"by": runtimes.OCI}, "y-1-1", "pid-0", made.pid, signal.SIGTERM)
        assert -signal.SIGTERM == made.wait(60)


def test_a_container_that_is_just_becoming_its_program_gets_its_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = [b"", b"", b"PATH=/bin\0" + f"{runtimes.MARK}=y-1-1".encode() + b"\0"]
    monkeypatch.setattr(
        runtimes, "open", lambda *_: io.BytesIO(shown.pop(0) if len(shown) > 1 else shown[0]), False
    )
    with subprocess.Popen(["sleep", "600"]) as made:
        runtimes.tell({"by": runtimes.OCI}, "y-1-1", "pid-0", made.pid, signal.SIGTERM)
        assert -signal.SIGTERM == made.wait(60)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGUSR1])
def test_a_container_whose_program_has_no_environment_gets_its_signals(
    tmp_path: Path, sent: signal.Signals
) -> None:
    """`env -i` takes the mark away: when the process began is noted as the runtime starts it."""
    path = tmp_path / "pid-0"
    with subprocess.Popen(["env", "-i", "sleep", "600"]) as made:
        state = f'{{"ociVersion": "1.0", "id": "a", "pid": {made.pid}, "status": "running"}}'
        hook = ["sh", "-c", runtimes.HOOK, str(path), runtimes.since_file(str(path))]
        subprocess.run(hook, input=state.encode(), check=True)
        assert made.pid == int(path.read_text())
        runtimes.tell({"by": runtimes.OCI}, "y-1-1", str(path), made.pid, sent)
        assert -sent == made.wait(60)


def test_a_process_that_has_the_number_of_a_container_since_gets_no_signal_of_it(
    tmp_path: Path, stranger: "subprocess.Popen[bytes]"
) -> None:
    path = tmp_path / "pid-0"
    path.write_text(str(stranger.pid))
    (tmp_path / "since-0").write_text("7")
    runtimes.tell({"by": runtimes.OCI}, "y-1-1", str(path), stranger.pid, signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        stranger.wait(0.2)
