"""Who counts as somebody else on a GPU, and persistence mode: switched on where the yard may, put back afterwards."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuyard.engines.local.gpus import persistence
from gpuyard.engines.local.gpus.outsiders import UNSEEN_S, Outsiders
from gpuyard.engines.machine.nvml import GpuReading
from harness.patience import until

EXIT = {"x86_64": 60, "aarch64": 93}
"""The system call that ends one thread."""


@pytest.fixture
def zombie() -> Iterator[int]:
    pid = os.fork()
    if not pid:
        os._exit(0)
    until(lambda: b") Z" in Path(f"/proc/{pid}/stat").read_bytes())
    yield pid
    os.waitpid(pid, 0)


def gone() -> int:
    done = subprocess.Popen(["true"])
    done.wait()
    return done.pid


def reading(*pids: int) -> list[GpuReading]:
    return [GpuReading("GPU-a", "NVIDIA H200", 143_771, pids=pids)]


def test_the_dead_and_zombies_use_nothing(zombie: int) -> None:
    assert () == Outsiders(everybody=True).among(reading(zombie, gone()), set())
    assert () == Outsiders(everybody=False).among(reading(zombie), set())


def test_who_lives_and_is_not_ours_does(zombie: int) -> None:
    found = Outsiders(everybody=True).among(reading(os.getpid(), zombie), set())
    assert [(0, os.getpid())] == [(busy.gpu, busy.pid) for busy in found]
    assert () == Outsiders(everybody=True).among(reading(os.getpid()), {os.getppid()})


def test_a_process_whose_first_thread_is_gone_still_runs() -> None:
    code = "import ctypes, threading, time\n" \
           "threading.Thread(target=lambda: time.sleep(60)).start()\n" \
           f"ctypes.CDLL(None).syscall({EXIT[os.uname().machine]}, 0)\n"  # fmt: skip
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        until(lambda: b") Z" in Path(f"/proc/{child.pid}/stat").read_bytes(), 10)
        assert [child.pid] == [
            busy.pid for busy in Outsiders(everybody=True).among(reading(child.pid), set())
        ]
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()


def test_in_a_container_a_process_that_stays_listed_is_somebodys() -> None:
    now_s = 0.0
    outsiders, pid = Outsiders(everybody=False, clock_s=lambda: now_s), gone()
    assert () == outsiders.among(reading(pid), set())
    now_s = UNSEEN_S + 1
    assert [pid] == [busy.pid for busy in outsiders.among(reading(pid), set())]
    assert () == outsiders.among(reading(), set())
    # Listed anew, it is counted from the beginning.
    assert () == outsiders.among(reading(pid), set())


class Driver(SimpleNamespace):
    """As much of NVIDIA's library as is asked for."""

    class NVMLError(Exception):
        """As theirs."""

    def __init__(self, modes: dict[str, int], refuses: bool = False) -> None:
        super().__init__()
        self.modes, self.refuses = modes, refuses
        self.nvmlInit = self.nvmlShutdown = lambda: None
        self.nvmlDeviceGetCount = lambda: len(modes)
        self.nvmlDeviceGetHandleByIndex = lambda index: sorted(modes)[index]
        self.nvmlDeviceGetHandleByUUID = self.nvmlDeviceGetUUID = lambda uuid: uuid
        self.nvmlDeviceGetPersistenceMode = modes.__getitem__

    def nvmlDeviceSetPersistenceMode(self, handle: str, mode: int) -> None:  # noqa: N802 (as theirs)
        if self.refuses:
            raise self.NVMLError("Insufficient Permissions")
        self.modes[handle] = mode


def test_only_what_the_yard_switched_on_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver({"GPU-a": 0, "GPU-b": 1, "GPU-c": 0})
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    told = ("persistence mode of GPUs 0, 2 switched on; put back by `yard down`",)
    assert told == persistence.switch_on(str(tmp_path))
    assert {"GPU-a": 1, "GPU-b": 1, "GPU-c": 1} == driver.modes
    # A server that died has put nothing back: the next one still knows what was whose.
    assert told == persistence.switch_on(str(tmp_path))
    persistence.put_back(str(tmp_path), {"GPU-c"})
    assert {"GPU-a": 0, "GPU-b": 1, "GPU-c": 1} == driver.modes
    assert {"gpus": ["GPU-c"]} == json.loads((tmp_path / persistence.FILE).read_text())


def test_who_may_not_is_told_and_notes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Driver({"GPU-a": 0}, refuses=True))
    (told,) = persistence.switch_on(str(tmp_path))
    assert "Insufficient Permissions" in told
    assert {"gpus": []} == json.loads((tmp_path / persistence.FILE).read_text())
