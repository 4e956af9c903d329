"""A fault of one MPS client: who is to blame and who runs again, by the daemon's log and by trying."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines.local.client import Data
from gpuyard.engines.local.gpus.mps import Daemon
from gpuyard.engines.local.gpus.mps_faults import NOTICE_MS, SAVE_MS_MAX, WINDOW_MS, Faults, find_attempt
from gpuyard.engines.local.gpus.mps_inquiry import FIRST_MS, MARGIN_MS
from gpuyard.engines.machine import files
from harness.patience import until

T = 1_700_000_000_000
"""When the fault was."""


class ClusterSnapshot:
    """One GPU of one user, a log that is written by hand, and a clock that is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = T + 60_000
        (folder / "log").mkdir()
        self.log = folder / "log" / "control.log"
        self.data = Data(folder / "engine")
        self._daemon = Daemon("GPU-a", 1001, str(folder))
        self._others = Daemon("GPU-b", 1002, str(folder / "others"))
        self.started: list[subprocess.Popen[bytes]] = []
        self.restart()

    def restart(self) -> None:
        self.faults = Faults(
            self.data,
            lambda: [self._daemon],
            lambda _gpu, uid: self._daemon if uid == 1001 else self._others,
            lambda: self.now_ms,
        )

    def process(self, key: str, started_ms: int = T - 9000, uid: int = 1001) -> int:
        """One that lives, started by an attempt."""
        attempt = Path(self.data.attempt(key))
        attempt.mkdir(parents=True)
        plan = {"held": {"mps": [["GPU-a", uid]]}, "grace_ms": 99_000}
        files.create(str(attempt / files.LAUNCH), plan, durable=False)
        files.create(str(attempt / files.RUNNING), {"pids": [], "started_ms": started_ms}, durable=False)
        process = subprocess.Popen(["sleep", "60"], env={"YARD_ATTEMPT_DIR": str(attempt)})
        self.started.append(process)
        # A process has its environment only once it runs its program.
        until(lambda: find_attempt(process.pid), 10)
        self.write(started_ms, f"Client {{PID: {process.pid}, Context ID: 0}} connected")
        self.faults.look()
        return process.pid

    def gone(self, *pids: int, at_ms: int = T + 1) -> None:
        for process in self.started:
            if process.pid in pids:
                process.kill()
                process.wait()
                self.write(at_ms, f"Client process {process.pid} disconnected")

    def breaks(self, named: int, *others: int, at_ms: int = T) -> None:
        """As a server of driver 580 tells it."""
        self.write(at_ms, f"Client {{PID: {named}, Context: 1}} encountered a fatal GPU error.")
        self.write(at_ms, "Server is handling a fatal GPU error.")
        for pid in (named, *others):
            self.write(at_ms, f"Client {{PID: {pid}, Context ID: 1}} on device 0 to be torn down")
            self.write(at_ms, f"All clients belonging to error trigging process {pid} will be torn down")
        self.write(at_ms, "The following client process have a sticky error set:")
        for pid in (named, *others):
            self.write(at_ms, str(pid))
        self.now_ms = at_ms + 10
        self.faults.look()

    def wish(self, key: str) -> tuple[str, int] | None:
        found = files.read(str(Path(self.data.attempt(key)) / files.HALT))
        return None if found is None else (found["outcome"], found["grace_ms"])

    def write(self, at_ms: int, said: str = "Server encountered a fatal exception. Shutting down") -> None:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms // 1000))
        with self.log.open("a") as file:
            file.write(f"[{when}.{at_ms % 1000:03d} Control    64] {said}\n")

    def end(self, key: str, ended_ms: int, *, again: bool = False, **fields: Any) -> tuple[str, str]:
        plan = {"held": {"mps": [["GPU-a", 1001]]}, "restarts": int(again)}
        end = {
            "outcome": "FAILED",
            "why": "exit code 1",
            "started_ms": T - 9000,
            "ended_ms": ended_ms,
            **fields,
        }
        found = self.faults.judged(key, plan, end)
        if Path(self.data.attempt(key)).is_dir():
            files.create(str(Path(self.data.attempt(key)) / files.END), end, durable=False)
        return found["outcome"], found["why"]

    def outcomes(self, *keys: str, at_ms: int = T + 5, started_ms: int = T - 9000) -> list[str]:
        return [self.end(key, at_ms, started_ms=started_ms)[0] for key in keys]

    def waits(self, key: str) -> bool:
        return bool(self.faults.held_back(key, "GPU-a", 1001))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[ClusterSnapshot]:
    scene = ClusterSnapshot(tmp_path)
    yield scene
    for process in scene.started:
        process.kill()
        process.wait()
    scene.data.close()


FAILED = ("FAILED", "exit code 1")
BLAMED = ("FAILED", "exit code 1: a fatal error of its work on the GPU, which broke the MPS server")


def test_without_a_fault_in_the_log_who_fails_has_failed(scene: ClusterSnapshot) -> None:
    assert FAILED == scene.end("a-1", T)
    scene.write(T, "NEW SERVER 11803: Ready")
    scene.write(T, "Server 11803 exited with status 0")
    assert FAILED == scene.end("a-1", T)


def test_who_was_alone_is_to_blame(scene: ClusterSnapshot) -> None:
    scene.breaks(scene.process("bad-1"))
    assert BLAMED == scene.end("bad-1", T + 5)
    # A server that comes back judges again.
    assert BLAMED == scene.end("bad-1", T + 5, why=BLAMED[1])


def test_whom_the_log_names_goes_first_and_if_it_was_right_nobody_else_is_harmed(
    scene: ClusterSnapshot,
) -> None:
    bad, good = scene.process("bad-1"), scene.process("good-1")
    scene.breaks(bad, good)
    scene.gone(bad, good)
    found = scene.end("good-1", T + 5)
    assert ("NODE_FAIL", True) == (found[0], "broke by a fault of one of them (exit code 1)" in found[1])
    assert ["NODE_FAIL"] == scene.outcomes("bad-1")
    # And who was not there has failed by itself.
    assert FAILED == scene.end("other-1", T + 7)
    assert [True, False, False] == [scene.waits(key) for key in ("good-2", "bad-2", "other-2")]
    scene.restart()
    bad = scene.process("bad-2", T + 2000)
    assert scene.waits("good-2")
    scene.breaks(bad, at_ms=T + 9000)
    scene.gone(bad)
    assert BLAMED == scene.end("bad-2", T + 9100, started_ms=T + 2000)
    assert not scene.waits("good-2")


def test_whom_the_log_names_wrongly_is_found_innocent(scene: ClusterSnapshot) -> None:
    bad, good = scene.process("bad-1"), scene.process("good-1")
    scene.breaks(good, bad)
    scene.gone(bad, good)
    assert ["NODE_FAIL", "NODE_FAIL"] == scene.outcomes("bad-1", "good-1")
    good = scene.process("good-2", T + 2000)
    scene.now_ms = T + 2000 + 9000 + MARGIN_MS - 1
    assert scene.waits("bad-2")
    scene.now_ms += 1
    assert not scene.waits("bad-2")
    bad = scene.process("bad-2", T + 17_000)
    scene.breaks(good, bad, at_ms=T + 25_000)
    scene.gone(bad, good)
    assert "NODE_FAIL" == scene.end("good-2", T + 25_100, started_ms=T + 2000)[0]
    assert "NODE_FAIL" == scene.end("bad-2", T + 25_200, started_ms=T + 17_000)[0]
    # It is the only one left, so it shows itself by itself, whomever the log names.
    assert [True, False] == [scene.waits("good-3"), scene.waits("bad-3")]
    bad = scene.process("bad-3", T + 27_000)
    assert scene.waits("good-3")
    scene.breaks(bad, at_ms=T + 34_000)
    scene.gone(bad)
    assert BLAMED == scene.end("bad-3", T + 34_100, started_ms=T + 27_000)
    assert not scene.waits("good-3")


def test_one_that_nobody_suspected_makes_it_begin_anew(scene: ClusterSnapshot) -> None:
    bad, good = scene.process("bad-1"), scene.process("good-1")
    scene.breaks(bad, good)
    scene.gone(bad, good)
    assert ["NODE_FAIL", "NODE_FAIL"] == scene.outcomes("bad-1", "good-1")
    bad, new = scene.process("bad-2", T + 2000), scene.process("new-1", T + 3000)
    scene.breaks(new, bad, at_ms=T + 6000)
    scene.gone(bad, new)
    assert ["NODE_FAIL", "NODE_FAIL"] == scene.outcomes("bad-2", "new-1", at_ms=T + 6100, started_ms=T + 2000)
    assert [True, False] == [scene.waits("bad-3"), scene.waits("new-2")]


def test_the_others_do_not_wait_for_ever_for_one_that_does_not_come(scene: ClusterSnapshot) -> None:
    bad, good = scene.process("bad-1"), scene.process("good-1")
    scene.breaks(bad, good)
    scene.gone(bad, good)
    scene.outcomes("bad-1", "good-1")
    scene.now_ms = T + FIRST_MS - 1
    assert scene.waits("good-2")
    scene.now_ms = T + FIRST_MS
    assert not scene.waits("good-2")


@pytest.mark.parametrize(
    "said", ["Server 92 exited with status 1", "Server 92 is in FAULT state", "a fatal exception"]
)
def test_where_nobody_is_named_it_is_who_failed_soon_after(scene: ClusterSnapshot, said: str) -> None:
    pids = [scene.process("a-1"), scene.process("b-1"), scene.process("late-1")]
    scene.write(T, said)
    assert ["NODE_FAIL", "NODE_FAIL"] == scene.outcomes("a-1", "b-1")
    scene.gone(*pids)
    assert FAILED == scene.end("late-1", T + WINDOW_MS + 1)
    # One after the other, in whatever order.
    assert [False, False] == [scene.waits("a-2"), scene.waits("b-2")]
    scene.now_ms = T + 40_000
    scene.process("b-2", T + 40_000)
    assert scene.waits("a-2")
    scene.write(T + 45_000, said)
    assert BLAMED == scene.end("b-2", T + 45_100, started_ms=T + 40_000)
    assert not scene.waits("a-2")


def test_what_is_no_failure_or_before_or_of_a_whole_gpu_is_left_alone(scene: ClusterSnapshot) -> None:
    scene.write(T)
    assert ("COMPLETED", "") == scene.end("a-1", T + 2000, outcome="COMPLETED", why="")
    assert FAILED == scene.end("later-1", T + 20_000, started_ms=T + 15_000)
    whole = {"outcome": "FAILED", "why": "", "started_ms": T - 1, "ended_ms": T + 2000}
    assert whole == scene.faults.judged("whole-1", {"held": {"gpus": ["GPU-a"]}}, whole)


def test_a_log_that_is_no_log_is_passed_over(scene: ClusterSnapshot) -> None:
    scene.log.write_bytes(b"\xff\x00" * 400_000 + b"\n[2026-13-77 10:00:00.000 C] fatal exception\n")
    assert FAILED == scene.end("a-1", T)
    scene.log.unlink()
    scene.log.mkdir()
    assert FAILED == scene.end("a-1", T)


def test_a_server_that_ends_after_its_fault_does_not_blur_who_was_there(scene: ClusterSnapshot) -> None:
    bad, good = scene.process("bad-1"), scene.process("good-1")
    scene.write(T, f"Client {{PID: {bad}, Context: 1}} encountered a fatal GPU error.")
    # The other log is read first, and may be ahead.
    scene.write(T + 3, "Server 615 exited with status 1")
    scene.write(T + 1, f"Client {{PID: {good}, Context ID: 1}} on device 0 to be torn down")
    scene.gone(bad, good)
    scene.now_ms = T + 10
    assert ["NODE_FAIL", "NODE_FAIL"] == scene.outcomes("bad-1", "good-1")
    assert [True, False] == [scene.waits("good-2"), scene.waits("bad-2")]


def test_a_process_that_came_and_went_unseen_is_known_by_the_number_it_was_started_with(
    scene: ClusterSnapshot,
) -> None:
    for key, pid in (("bad-1", 4_000_001), ("good-1", 4_000_002)):
        attempt = Path(scene.data.attempt(key))
        attempt.mkdir(parents=True)
        files.create(str(attempt / files.RUNNING), {"pids": [pid], "started_ms": T - 9}, durable=False)
    scene.breaks(4_000_001, 4_000_002)
    assert ["NODE_FAIL", "NODE_FAIL", "FAILED"] == scene.outcomes(
        "bad-1", "good-1", "late-1", at_ms=T + 31_000
    )


def test_who_was_not_let_in_while_the_server_recovered_runs_again_and_is_no_suspect(
    scene: ClusterSnapshot,
) -> None:
    bad, idle = scene.process("bad-1"), scene.process("idle-1")
    scene.breaks(bad, idle)
    scene.gone(bad)
    new = 4_000_003
    attempt = Path(scene.data.attempt("new-1"))
    attempt.mkdir(parents=True)
    files.create(str(attempt / files.RUNNING), {"pids": [new], "started_ms": T + 5}, durable=False)
    refused = f"Server teardown in progress. Refusing to accept new client {{PID: {new}, Context ID: 0}}"
    scene.write(T + 20, refused)
    assert "NODE_FAIL" == scene.end("new-1", T + 30, started_ms=T + 5)[0]
    scene.gone(idle)
    assert not scene.waits("new-2")


def test_nobody_is_let_in_and_whoever_does_not_notice_is_ended(scene: ClusterSnapshot) -> None:
    bad, idle = scene.process("bad-1"), scene.process("idle-1")
    assert not scene.waits("new-1")
    scene.breaks(bad, idle)
    told: list[str] = []
    scene.now_ms = T + NOTICE_MS - 1
    assert scene.waits("new-1")
    scene.faults.end_unaware(told.append)
    assert [] == told
    scene.now_ms = T + NOTICE_MS
    scene.faults.end_unaware(told.append)
    scene.faults.end_unaware(told.append)
    assert ["bad-1", "idle-1"] == sorted(told)
    assert [("NODE_FAIL", SAVE_MS_MAX)] * 2 == [scene.wish("bad-1"), scene.wish("idle-1")]
    scene.gone(bad)
    assert scene.waits("new-1")
    scene.gone(idle)
    assert not scene.waits("new-1")


def test_one_that_was_alone_and_does_not_notice_has_failed(scene: ClusterSnapshot) -> None:
    scene.breaks(scene.process("bad-1"))
    scene.now_ms = T + NOTICE_MS
    scene.faults.end_unaware(lambda _key: None)
    assert ("FAILED", SAVE_MS_MAX) == scene.wish("bad-1")


def test_a_log_has_no_say_about_others(scene: ClusterSnapshot) -> None:
    scene.breaks(scene.process("theirs-1", uid=1002))
    scene.now_ms = T + NOTICE_MS
    told: list[str] = []
    scene.faults.end_unaware(told.append)
    assert ([], None) == (told, scene.wish("theirs-1"))


def test_what_lies_in_place_of_a_log_is_not_waited_for(scene: ClusterSnapshot) -> None:
    os.mkfifo(scene.log)
    scene.log.with_name("server.log").symlink_to("/dev/zero")
    assert FAILED == scene.end("a-1", T)
    assert not scene.waits("b-1")


def test_a_log_is_read_as_it_grows(scene: ClusterSnapshot) -> None:
    bad = scene.process("bad-1")
    scene.breaks(bad)
    with scene.log.open("a") as file:
        file.write("[2023-11-14 22:13:20.000 Server 1] Client process")
    assert scene.waits("new-1")
    with scene.log.open("a") as file:
        file.write(f" {bad} disconnected\n")
    assert not scene.waits("new-1")
    # A log that is begun anew is read from its beginning.
    scene.log.unlink()
    scene.breaks(bad)
    assert scene.waits("new-1")


def test_who_computed_through_a_daemon_that_died_gets_one_more_try(scene: ClusterSnapshot) -> None:
    daemon = scene.process("daemon-1")
    pipe = scene.log.parents[1] / "pipe"
    pipe.mkdir()
    (pipe / "nvidia-cuda-mps-control.pid").write_text(f"{daemon}\n")
    scene.now_ms = T
    scene.faults.look()
    assert FAILED == scene.end("before-1", T - 3000)
    scene.gone(daemon)
    scene.faults.look()
    found = scene.end("a-1", T + 700)
    assert ("NODE_FAIL", True) == (found[0], "the MPS daemon that it computed through died" in found[1])
    assert FAILED == scene.end("b-1", T + 700, again=True)
    assert FAILED == scene.end("later-1", T + 9000, started_ms=T + 5000)
    # What is no number is no daemon.
    (pipe / "nvidia-cuda-mps-control.pid").write_text("soon")
    scene.faults.look()
    assert FAILED == scene.end("c-1", T + 20_000, started_ms=T + 10_000)


def test_who_is_gone_without_a_word_is_not_taken_for_whoever_gets_its_number(
    scene: ClusterSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, idle = scene.process("bad-1"), scene.process("idle-1")
    scene.breaks(bad, idle)
    assert scene.waits("new-1")
    for process in scene.started:
        process.kill()
        process.wait()
    assert not scene.waits("new-1")
    monkeypatch.setattr(os.path, "exists", lambda _path: True)
    assert not scene.waits("new-1")
