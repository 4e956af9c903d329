"""A fault of one MPS client: who is to blame and who runs again, by the daemon's log and the order of ends."""

import time
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines.local.mps import Daemon
from gpuyard.engines.local.mps_faults import SAME_MS, SETTLE_MS, WINDOW_MS, Faults

T = 1_700_000_000_000
"""When the fault was."""


class Scene:
    """One GPU of one user, a log that is written by hand, and a clock that is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = T + 60_000
        (folder / "log").mkdir()
        self.log = folder / "log" / "control.log"
        self.faults = Faults(lambda gpu, uid: Daemon(gpu, uid, str(folder)), lambda: self.now_ms)

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
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


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
