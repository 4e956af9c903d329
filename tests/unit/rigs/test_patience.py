"""Waiting: limits that grow with the load of the machine, and an end for what failed tests leave."""

import os
import subprocess
from pathlib import Path

import pytest

from e2e.conftest import Box
from harness import patience
from rigs.kills import processes_with


def test_limits_grow_with_the_load_and_never_shrink_below_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    cores, found = len(os.sched_getaffinity(0)), []
    for mean, now in ((0.0, 1), (3.0 * cores, 1), (0.0, 5 * cores)):
        monkeypatch.setattr(os, "getloadavg", lambda mean=mean: (mean, 0.0, 0.0))
        found.append(patience.patient(10, lambda now=now: now))
    assert [10.0, 30.0, 50.0] == found


def test_a_wait_goes_on_when_the_machine_gets_busy_meanwhile() -> None:
    limits = [0.0, 0.0]
    wait = patience.Patience(0.0, lambda _s: limits.pop() if limits else 3600.0)
    assert not wait
    assert wait


def test_what_came_true_is_given_and_what_did_not_is_said() -> None:
    turns = iter(["", "", "there"])
    assert "there" == patience.until(lambda: next(turns))
    with pytest.raises(AssertionError, match="the door is shut"):
        patience.until(lambda: False, 0.01, lambda: "the door is shut")


def test_no_process_of_a_yard_is_left_and_those_of_others_are(tmp_path: Path) -> None:
    ours = {"YARD_ATTEMPT_DIR": f"{tmp_path}/yard/engine/attempts/y-1-1"}, {"YARD_DATA": f"{tmp_path}/yard"}
    theirs = (
        {"YARD_ATTEMPT_DIR": f"{tmp_path}/yard2/engine/attempts/y-1-1"},
        {"YARD_DATA": f"{tmp_path}/yard2"},
    )
    started = [subprocess.Popen(["sleep", "600"], env=each) for each in (*ours, *theirs)]
    try:
        # A process has its environment only once it runs its program.
        patience.until(lambda: 4 == len(processes_with(f"{tmp_path}/yard")))
        Box(tmp_path / "yard").kill()
        assert [-9, -9, None, None] == [
            started[0].wait(120),
            started[1].wait(120),
            *[each.poll() for each in started[2:]],
        ]
    finally:
        for each in started:
            each.kill()
            each.wait()
