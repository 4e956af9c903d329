"""The one runner of attempts: deadlines, stops and ends, over hands that only note what they are told to do."""

import signal
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines.local.attempt import room
from gpuyard.engines.local.attempt.supervisor import Supervisor
from gpuyard.engines.machine import files
from gpuyard.engines.node.attempt import runner
from gpuyard.engines.node.attempt.runner import Runner
from gpuyard.engines.node.attempt.tasks import Failure
from gpuyard.engines.node.slurm.head import Head

PLAN = {"limit_ms": 60_000, "grace_ms": 5_000, "warn_signal": signal.SIGUSR1, "warn_ms": 20_000}


class Hands:
    """Tasks of a job that live for some turns, unless they are killed."""

    def __init__(self) -> None:
        self.told: list[tuple[float, str]] = []
        self.failed: Failure | None = None
        self.is_alive = True
        self.leaves = False
        self.now_s = 0.0

    def _note(self, what: str) -> None:
        self.told.append((self.now_s, what))

    def alive(self) -> bool:
        return self.is_alive

    def lingers(self) -> bool:
        return self.leaves

    def signal(self, number: int) -> None:
        self._note(signal.Signals(number).name)

    def warn(self, number: int) -> None:
        self._note("warned")

    def kill(self) -> float:
        self._note("killed")
        self.is_alive = self.leaves = False
        return 0.25

    def reap(self) -> None: ...
    def sweep(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


class Tried(Runner):
    """A runner whose every turn takes a second, and whose wishes come by a table: at which second which."""

    hands: Hands

    def __init__(self, clock: list[float], wishes: dict[int, Any], **plan: Any) -> None:
        super().__init__(PLAN | plan, Hands())
        self.clock, self.wishes = clock, wishes

    def start(self) -> None:
        self.running = True
        self.set_limit()

    def wait(self) -> None:
        self.clock[0] += 1.0
        assert self.clock[0] < 500, "it never ends"
        self.hands.now_s = self.clock[0]

    def obey(self) -> None:
        wish = self.wishes.get(int(self.clock[0]))
        if callable(wish):
            wish(self)
        elif wish:
            self.halt(wish)

    def finish(self, end: dict[str, Any]) -> int:
        self.ended = end
        return 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only a turn moves."""
    now = [0.0]
    monkeypatch.setattr(runner.time, "monotonic", lambda: now[0])
    return now


def ran(clock: list[float], wishes: dict[int, Any], **plan: Any) -> tuple[Any, list[tuple[float, str]]]:
    tried = Tried(clock, wishes, **plan)
    tried.run()
    return (tried.ended["outcome"], tried.ended["exit_code"], tried.ended["why"]), tried.hands.told


def fails(tried: Tried) -> None:
    """One of several tasks ends with code 3."""
    tried.hands.failed = Failure(3, "task 1 exit code 3")


def fails_as_it_is_stopped(tried: Tried) -> None:
    fails(tried)
    tried.halt({"outcome": "CANCELLED", "grace_ms": 2_000})


def test_both_engines_run_attempts_by_it() -> None:
    assert issubclass(Supervisor, Runner)
    assert issubclass(Head, Runner)


def test_the_limit_warns_then_ends_then_kills(clock: list[float]) -> None:
    end, told = ran(clock, {})

    assert ("TIMEOUT", 0, "time limit of 60 s reached") == end
    assert [(40.0, "warned"), (60.0, "SIGTERM"), (65.0, "killed")] == told


def test_the_limit_waits_while_it_is_frozen(clock: list[float]) -> None:
    _, told = ran(clock, {10: Tried.freeze, 30: Tried.thaw})

    assert [(60.0, "warned"), (80.0, "SIGTERM"), (85.0, "killed")] == told


def test_a_preempted_job_is_warned_for_at_most_half_of_its_grace(clock: list[float]) -> None:
    end, told = ran(clock, {7: {"outcome": "PREEMPTED", "grace_ms": 8_000, "why": "for job 9"}})

    assert ("PREEMPTED", 0, "for job 9") == end
    assert [(7.0, "warned"), (11.0, "SIGTERM"), (15.0, "killed")] == told


def test_the_others_are_stopped_with_the_first_task_that_fails(clock: list[float]) -> None:
    end, told = ran(clock, {5: fails})

    assert ("FAILED", 3, "task 1 exit code 3") == end
    assert [(5.0, "SIGTERM"), (10.0, "killed")] == told


def test_a_job_that_fails_as_it_is_stopped_keeps_its_own_end_and_the_shorter_grace(
    clock: list[float],
) -> None:
    end, told = ran(clock, {5: fails_as_it_is_stopped})

    assert ("FAILED", 3, "task 1 exit code 3") == end
    assert [(5.0, "SIGTERM"), (7.0, "killed")] == told


def test_what_a_stopped_job_leaves_behind_has_the_rest_of_the_grace(clock: list[float]) -> None:
    def goes(tried: Tried) -> None:
        tried.hands.is_alive, tried.hands.leaves = False, True

    def is_done(tried: Tried) -> None:
        tried.hands.leaves = False

    halt = {"outcome": "CANCELLED", "grace_ms": 9_000}
    assert 6.0 == ran(clock, {2: halt, 3: goes, 6: is_done}, warn_signal=0)[1][-1][0] + 4.0
    assert 6.0 == clock[0]


def test_a_runner_that_fails_says_so(clock: list[float]) -> None:
    def breaks(_tried: Tried) -> None:
        raise ValueError("no such thing")

    assert ("NODE_FAIL", 0, "its runner failed: ValueError('no such thing')") == ran(clock, {3: breaks})[0]


@pytest.mark.parametrize("set_by_s", [3600, -3600], ids=["ahead", "back"])
def test_an_attempt_is_as_long_as_it_ran_whatever_becomes_of_the_clock(
    monkeypatch: pytest.MonkeyPatch, set_by_s: int
) -> None:
    wall_s, steady_s = 1_000_000.0, 50.0
    monkeypatch.setattr(runner.time, "time", lambda: wall_s)
    monkeypatch.setattr(runner.time, "clock_gettime", lambda _clock: steady_s)
    made = Runner(PLAN, Hands())
    made.begin()
    wall_s, steady_s = wall_s + 7 + set_by_s, steady_s + 7
    end = made.end()
    assert (1_000_000_000, 1_000_007_000) == (end["started_ms"], end["ended_ms"])


class Ending(Supervisor):
    """A supervisor at its end, in whose current folder it is."""

    def __init__(self) -> None:
        Runner.__init__(self, PLAN | {"key": "y-1-1"}, EndingHands())
        self.group, self.v1, self.slot = None, {}, files.EndSlot(".")
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class EndingHands(Hands):
    def facts(self, index: int) -> dict[str, Any]:
        raise RecursionError(f"facts of {index}")

    def part(self, exit_code: int) -> None: ...
    def await_keeper(self) -> None: ...


def test_the_end_is_told_whatever_fails_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def fail(_plan: dict[str, Any]) -> None:
        raise OSError(12, "no memory for rm")

    monkeypatch.setattr(room, "sweep", fail)
    ending = Ending()
    # It has no view of the yard's folder, either.
    ending.finish({"outcome": "COMPLETED", "exit_code": 0, "why": ""})
    end = files.read(files.END)
    assert end is not None
    assert ("COMPLETED", 0) == (end["outcome"], end["checkpoint_ms"])
    assert 3 == len(ending.notes)
    for what, note in zip(("inside", "facts of 0", "no memory for rm"), ending.notes, strict=True):
        assert what in note
