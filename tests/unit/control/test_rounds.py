"""Work in a thread of its own: its pauses, and its end."""

import threading
import time

import pytest

from gpuyard.control import clock
from gpuyard.control.clock import Rounds
from harness.patience import until

WAIT_S = 300


def test_a_round_follows_after_the_pause_that_the_one_before_asked_for() -> None:
    pauses, taken, ended = [0.0, 0.0, 3600.0], [], threading.Event()

    def take() -> float:
        taken.append(threading.current_thread().name)
        if len(taken) == 3:
            ended.set()
        return pauses[len(taken) - 1]

    rounds = Rounds("yard-test", take)
    rounds.start(0.0)
    assert ended.wait(WAIT_S)
    before_s = time.monotonic()
    rounds.close()

    assert time.monotonic() - before_s < WAIT_S
    assert 3 * ["yard-test"] == taken


def test_a_round_under_way_is_told_to_break_off_and_waited_for() -> None:
    began, broken_off = threading.Event(), []

    def take() -> float:
        began.set()
        broken_off.append(rounds.rest(WAIT_S))
        return 0.0

    rounds = Rounds("yard-test", take)
    rounds.start(0.0)
    assert began.wait(WAIT_S)
    rounds.close()

    assert [True] == broken_off


def test_a_round_that_raises_is_told_of_and_followed_by_others_at_longer_pauses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    taken, pauses = [], []

    def take() -> float:
        taken.append(len(taken))
        if len(taken) < 5:
            raise OSError(24, "Too many open files")
        return 3600.0

    def rest(pause_s: float) -> bool:
        pauses.append(pause_s)
        return len(taken) == 5 and Rounds.rest(rounds, pause_s)

    rounds = Rounds("yard-test", take)
    monkeypatch.setattr(rounds, "rest", rest)
    rounds.start(0.0)
    until(lambda: len(pauses) == 6)
    rounds.close()

    first_s = clock.FAILED_S
    assert [0.0, first_s, 2 * first_s, 4 * first_s, 8 * first_s, 3600.0] == pauses
    assert ["yard-test: Too many open files"] == [record.getMessage() for record in caplog.records]


def test_what_never_began_is_closed_at_once() -> None:
    began = time.monotonic()
    Rounds("yard-test", lambda: 0.0).close()
    assert time.monotonic() - began < WAIT_S
