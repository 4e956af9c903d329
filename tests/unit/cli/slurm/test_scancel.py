"""`scancel -s KILL`: who gets which signal, and when jobs are told to end."""

import signal
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.cli.connection import piped_command
from gpuyard.cli.connection.visits import NotThere
from gpuyard.cli.slurm.commands import scancel

CONT, KILL = int(signal.SIGCONT), int(signal.SIGKILL)


class Yard:
    """A yard with jobs in these states, of which some have no process yet; it writes down what is asked of it."""

    def __init__(self, absent: Sequence[str] = ()) -> None:
        self.absent = absent
        self.asked: list[Any] = []

    def __enter__(self) -> "Yard":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def recipe(self, _label: str) -> dict[str, str]:
        return {"script": ""}

    def ask_many(self, verb: str, labels: Sequence[str]) -> list[object]:
        self.asked.append((verb, *labels))
        return [{"status": 202, "label": label} for label in labels]

    def signal(self, _yard: object, label: str, number: int, _whom: str) -> int:
        self.asked.append((label, number))
        if label in self.absent:
            raise NotThere(f"job {label} is STARTING; there is nothing to enter until it runs")
        return 1


@pytest.mark.parametrize(
    ("absent", "asked"),
    [
        ((), [("1", CONT), ("2", CONT), ("3", CONT), ("cancel", "1", "2", "3", "4"), ("1", KILL), ("2", KILL),
              ("3", KILL)]),
        (("2", "3"), [("1", CONT), ("2", CONT), ("cancel", "1", "2", "3", "4"), ("1", KILL)]),
    ],
)  # fmt: skip
def test_a_job_that_is_up_and_starts_by_what_the_yard_has_heard_is_killed_at_once(
    monkeypatch: pytest.MonkeyPatch, absent: tuple[str, ...], asked: list[Any]
) -> None:
    """It had its grace. One that is not up is waited for once, and not every other one of an array, too."""
    states = {"1": "RUNNING", "2": "CONFIGURING", "3": "CONFIGURING", "4": "PENDING"}
    there = [SimpleNamespace(label=label, state=state) for label, state in states.items()]
    yard = Yard(absent)
    monkeypatch.setattr(scancel, "Client", lambda: yard)
    monkeypatch.setattr(scancel, "_found", lambda *_: there)
    monkeypatch.setattr(piped_command, "send_signal", yard.signal)

    assert 0 == scancel.run(["-s", "KILL", "--me"])
    assert asked == yard.asked
