"""A fault of one MPS client: who is to blame and who runs again, by the daemon's log and the order of ends."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines.local import files
from gpuyard.engines.local.client import Data
from gpuyard.engines.local.mps import Daemon
from gpuyard.engines.local.mps_faults import NOTICE_MS, SAME_MS, SAVE_MS_MAX, SETTLE_MS, WINDOW_MS, Faults

T = 1_700_000_000_000
"""When the fault was."""


class Scene:
    """One GPU of one user, a log that is written by hand, and a clock that is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = T + 60_000
        (folder / "log").mkdir()
        self.log = folder / "log" / "control.log"
        self.data = Data(folder / "engine")
        daemon = Daemon("GPU-a", 1001, str(folder))
        others = Daemon("GPU-b", 1002, str(folder / "others"))
        self.faults = Faults(
            self.data,
            lambda: [daemon],
            lambda _gpu, uid: daemon if uid == 1001 else others,
            lambda: self.now_ms,
        )
        self.started: list[subprocess.Popen[bytes]] = []

    def process(self, key: str, uid: int = 1001) -> int:
        """One that lives, started by an attempt."""
        attempt = Path(self.data.attempt(key))
        attempt.mkdir(parents=True)
        plan = {"held": {"mps": [["GPU-a", uid]]}, "grace_ms": 99_000}
        files.create(str(attempt / files.LAUNCH), plan, durable=False)
        process = subprocess.Popen(["sleep", "60"], env={"YARD_ATTEMPT_DIR": str(attempt)})
        self.started.append(process)
        return process.pid

    def gone(self, pid: int) -> None:
        (process,) = [each for each in self.started if each.pid == pid]
        process.kill()
        process.wait()

    def connect(self, *pids: int) -> None:
        for pid in pids:
            self.write(T - 5000, f"Client {{PID: {pid}, Context ID: 0}} connected")
        self.faults.look()

    def breaks(self, culprit: int, *victims: int) -> None:
        """As a server of driver 580 tells it."""
        self.write(T, f"Client {{PID: {culprit}, Context: 1}} encountered a fatal GPU error.")
        self.write(T, "Server is handling a fatal GPU error.")
        for pid in (culprit, *victims):
            self.write(T, f"Client {{PID: {pid}, Context ID: 1}} on device 0 to be torn down")
            self.write(T, f"All clients belonging to error trigging process {pid} will be torn down")
        self.write(T, "The following client process have a sticky error set:")
        for pid in (culprit, *victims):
            self.write(T, str(pid))

    def wish(self, key: str) -> tuple[str, int] | None:
        found = files.read(str(Path(self.data.attempt(key)) / files.HALT))
        return None if found is None else (found["outcome"], found["grace_ms"])

    def write(self, at_ms: int, said: str = "Server encountered a fatal exception. Shutting down") -> None:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms // 1000))
        with self.log.open("a") as file:
            file.write(f"[{when}.{at_ms % 1000:03d} Control    64] {said}\n")

    def end(self, key: str, ended_ms: int, *, again: bool = False, **fields: Any) -> tuple[str, str] | None:
        plan = {"held": {"mps": [["GPU-a", 1001]]}, "append": again}
        end = {
            "outcome": "FAILED",
            "why": "exit code 1",
            "started_ms": T - 9000,
            "ended_ms": ended_ms,
            **fields,
        }
        found = self.faults.judged(key, plan, end)
        return None if found is None else (found["outcome"], found["why"])


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    for process in scene.started:
        process.kill()
        process.wait()
    scene.data.close()


FAILED = ("FAILED", "exit code 1")


def test_without_a_fault_in_the_log_who_fails_has_failed(scene: Scene) -> None:
    assert FAILED == scene.end("a", T)
    scene.write(T, "NEW SERVER 11803: Ready")
    scene.write(T, "Server 11803 exited with status 0")
    assert FAILED == scene.end("a", T)


def test_the_first_is_to_blame_and_the_others_run_again(scene: Scene) -> None:
    scene.write(T)
    assert FAILED == scene.end("bad", T + 10)
    found = scene.end("good", T + 10 + SAME_MS + 1)
    assert found is not None
    assert ("NODE_FAIL", True) == (found[0], "a fault of another job broke the MPS server" in found[1])
    # Also one that was in a fault before: it was not the first this time.
    assert "NODE_FAIL" == (scene.end("other", T + 5000, again=True) or "")[0]


def test_nobody_is_judged_before_the_others_had_time_to_fail(scene: Scene) -> None:
    scene.write(T)
    scene.now_ms = T + 10 + SETTLE_MS - 1
    assert scene.end("bad", T + 10) is None
    scene.now_ms += 2
    assert FAILED == scene.end("bad", T + 10)


def test_of_those_who_failed_at_the_same_moment_each_gets_one_more_try(scene: Scene) -> None:
    scene.write(T)
    scene.now_ms = T + 200
    assert [None, None] == [scene.end("a", T + 10), scene.end("b", T + 100, again=True)]
    scene.now_ms = T + 60_000
    assert "NODE_FAIL" == (scene.end("a", T + 10) or "")[0]
    assert FAILED == scene.end("b", T + 100, again=True)


def test_what_is_no_failure_or_long_after_or_before_is_left_alone(scene: Scene) -> None:
    scene.write(T)
    scene.end("bad", T + 10)
    assert ("COMPLETED", "") == scene.end("a", T + 2000, outcome="COMPLETED", why="")
    assert FAILED == scene.end("late", T + WINDOW_MS + 1)
    assert FAILED == scene.end("later", T + 20_000, started_ms=T + 15_000)
    whole = {"outcome": "FAILED", "why": "", "started_ms": T - 1, "ended_ms": T + 2000}
    assert whole == scene.faults.judged("whole", {"held": {"gpus": ["GPU-a"]}}, whole)


@pytest.mark.parametrize("said", ["Server 92 exited with status 1", "Server 92 is in FAULT state"])
def test_other_words_for_it(scene: Scene, said: str) -> None:
    scene.write(T, said)
    scene.end("bad", T + 10)
    assert "NODE_FAIL" == (scene.end("good", T + 2000) or "")[0]


def test_a_log_that_is_no_log_is_passed_over(scene: Scene) -> None:
    scene.log.write_bytes(b"\xff\x00" * 400_000 + b"\n[2026-13-77 10:00:00.000 C] fatal exception\n")
    assert FAILED == scene.end("a", T)
    scene.log.unlink()
    scene.log.mkdir()
    assert FAILED == scene.end("a", T)


def test_whom_the_log_names_is_to_blame_though_all_failed_at_once(scene: Scene) -> None:
    bad, good = scene.process("bad"), scene.process("good")
    scene.connect(bad, good)
    scene.breaks(bad, good)
    for pid in (bad, good):
        scene.gone(pid)
        scene.write(T + 1, f"Client process {pid} disconnected")
    scene.now_ms = T + 10
    first, second = scene.end("good", T + 5), scene.end("bad", T + 6)
    assert first is not None
    assert ("NODE_FAIL", True) == (first[0], "a fault of another job" in first[1])
    assert second is not None
    assert ("FAILED", True) == (second[0], second[1].startswith("exit code 1: a fatal error of its work"))
    # A second try changes nothing about that, for either of them.
    assert "NODE_FAIL" == (scene.end("good", T + 5, again=True) or "")[0]
    assert "FAILED" == (scene.end("bad", T + 6, again=True) or "")[0]
    # And who was not there has failed by itself.
    assert FAILED == scene.end("other", T + 7)


def test_a_server_that_ends_after_its_fault_does_not_blur_who_was_to_blame(scene: Scene) -> None:
    bad, good = scene.process("bad"), scene.process("good")
    scene.connect(bad, good)
    scene.write(T, f"Client {{PID: {bad}, Context: 1}} encountered a fatal GPU error.")
    # The other log is read first, and may be ahead.
    scene.write(T + 3, "Server 615 exited with status 1")
    scene.write(T + 1, f"Client {{PID: {good}, Context ID: 1}} on device 0 to be torn down")
    for pid in (bad, good):
        scene.gone(pid)
    first, second = scene.end("good", T + 5, again=True), scene.end("bad", T + 5)
    assert first is not None
    assert second is not None
    assert ("NODE_FAIL", "FAILED") == (first[0], second[0])
    assert second[1].startswith("exit code 1: a fatal error of its work")


def test_who_is_judged_again_is_not_blamed_twice(scene: Scene) -> None:
    bad = scene.process("bad")
    scene.connect(bad)
    scene.breaks(bad)
    found = scene.end("bad", T + 6)
    assert found is not None
    assert found == scene.end("bad", T + 6, why=found[1])


def test_a_process_that_came_and_went_unseen_is_known_by_the_number_it_was_started_with(scene: Scene) -> None:
    for key, pid in (("bad", 4_000_001), ("good", 4_000_002)):
        attempt = Path(scene.data.attempt(key))
        attempt.mkdir(parents=True)
        files.create(str(attempt / files.RUNNING), {"pids": [pid]}, durable=False)
        scene.connect(pid)
    scene.breaks(4_000_001, 4_000_002)
    assert ["NODE_FAIL", "FAILED"] == [(scene.end(key, T + 5) or "")[0] for key in ("good", "bad")]


def test_who_was_not_let_in_while_the_server_recovered_runs_again(scene: Scene) -> None:
    bad, idle, new = scene.process("bad"), scene.process("idle"), scene.process("new")
    scene.connect(bad, idle)
    scene.breaks(bad, idle)
    scene.gone(bad)
    scene.write(T + 10, f"Client process {bad} disconnected")
    scene.write(
        T + 20, f"Server teardown in progress. Refusing to accept new client {{PID: {new}, Context ID: 0}}"
    )
    attempt = Path(scene.data.attempt("new"))
    files.create(str(attempt / files.RUNNING), {"pids": [new]}, durable=False)
    assert "NODE_FAIL" == (scene.end("new", T + 30) or "")[0]


def test_nobody_is_let_in_and_whoever_does_not_notice_is_ended(scene: Scene) -> None:
    bad, idle = scene.process("bad"), scene.process("idle")
    scene.connect(bad, idle)
    assert not scene.faults.recovering("GPU-a", 1001)
    scene.breaks(bad, idle)
    told: list[str] = []
    scene.now_ms = T + NOTICE_MS - 1
    assert scene.faults.recovering("GPU-a", 1001)
    scene.faults.end_unaware(told.append)
    assert [] == told
    scene.now_ms = T + NOTICE_MS
    scene.faults.end_unaware(told.append)
    scene.faults.end_unaware(told.append)
    assert ["bad", "idle"] == sorted(told)
    assert [("FAILED", SAVE_MS_MAX), ("NODE_FAIL", SAVE_MS_MAX)] == [scene.wish("bad"), scene.wish("idle")]
    scene.gone(bad)
    assert scene.faults.recovering("GPU-a", 1001)
    scene.write(T + 9000, f"Client process {idle} disconnected")
    assert not scene.faults.recovering("GPU-a", 1001)


def test_a_log_has_no_say_about_others(scene: Scene) -> None:
    theirs = scene.process("theirs", uid=1002)
    scene.connect(theirs)
    scene.breaks(theirs)
    scene.faults.look()
    told: list[str] = []
    scene.faults.end_unaware(told.append)
    assert ([], None) == (told, scene.wish("theirs"))


def test_what_lies_in_place_of_a_log_is_not_waited_for(scene: Scene) -> None:
    os.mkfifo(scene.log)
    scene.log.with_name("server.log").symlink_to("/dev/zero")
    assert FAILED == scene.end("a", T)
    assert not scene.faults.recovering("GPU-a", 1001)


def test_a_log_is_read_as_it_grows(scene: Scene) -> None:
    bad = scene.process("bad")
    scene.connect(bad)
    scene.breaks(bad)
    with scene.log.open("a") as file:
        file.write("[2023-11-14 22:13:20.000 Server 1] Client process")
    assert scene.faults.recovering("GPU-a", 1001)
    with scene.log.open("a") as file:
        file.write(f" {bad} disconnected\n")
    assert not scene.faults.recovering("GPU-a", 1001)
    # A log that is begun anew is read from its beginning.
    scene.log.unlink()
    scene.breaks(bad)
    assert scene.faults.recovering("GPU-a", 1001)


def test_who_computed_through_a_daemon_that_died_gets_one_more_try(scene: Scene) -> None:
    daemon = scene.process("daemon")
    pipe = scene.log.parents[1] / "pipe"
    pipe.mkdir()
    (pipe / "nvidia-cuda-mps-control.pid").write_text(f"{daemon}\n")
    scene.now_ms = T
    scene.faults.look()
    assert FAILED == scene.end("before", T - 3000)
    scene.gone(daemon)
    scene.faults.look()
    found = scene.end("a", T + 700)
    assert found is not None
    assert ("NODE_FAIL", True) == (found[0], "the MPS daemon that it computed through died" in found[1])
    assert FAILED == scene.end("b", T + 700, again=True)
    assert FAILED == scene.end("later", T + 9000, started_ms=T + 5000)
    # What is no number is no daemon.
    (pipe / "nvidia-cuda-mps-control.pid").write_text("soon")
    scene.faults.look()
    assert FAILED == scene.end("c", T + 20_000, started_ms=T + 10_000)


def test_who_is_gone_without_a_word_is_not_taken_for_whoever_gets_its_number(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, idle = scene.process("bad"), scene.process("idle")
    scene.connect(bad, idle)
    scene.breaks(bad, idle)
    assert scene.faults.recovering("GPU-a", 1001)
    scene.gone(bad)
    scene.gone(idle)
    assert not scene.faults.recovering("GPU-a", 1001)
    monkeypatch.setattr(os.path, "exists", lambda _path: True)
    assert not scene.faults.recovering("GPU-a", 1001)
