"""Work in a thread of its own: its pauses, and its end."""

import threading
import time

from gpuyard.control.clock import Rounds

WAIT_S = 20


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


def test_what_never_began_is_closed_at_once() -> None:
    began = time.monotonic()
    Rounds("yard-test", lambda: 0.0).close()
    assert time.monotonic() - began < WAIT_S
