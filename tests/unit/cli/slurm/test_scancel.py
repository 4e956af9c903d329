"""`scancel -s KILL`: who gets which signal, and when jobs are told to end."""

import signal
from collections.abc import Sequence
from typing import Any

import pytest

from gpuyard.cli.slurm.commands.scancel import kill

CONT, KILL = signal.SIGCONT, signal.SIGKILL


@pytest.mark.parametrize(
    ("absent", "asked"),
    [
        ((), [("1", CONT), ("2", CONT), ("3", CONT), "cancel", ("1", KILL), ("2", KILL), ("3", KILL)]),
        (("2", "3"), [("1", CONT), ("2", CONT), "cancel", ("1", KILL)]),
    ],
)
def test_a_job_that_is_up_and_starts_by_what_the_yard_has_heard_is_killed_at_once(
    absent: tuple[str, ...], asked: list[Any]
) -> None:
    """It had its grace. One that is not up is waited for once, and not every other one of an array, too."""
    done: list[Any] = []

    def send(labels: Sequence[int | str], number: int) -> list[object]:
        done.extend([(label, number) for label in labels])
        return [label for label in labels if label in absent]

    def cancel() -> list[object]:
        done.append("cancel")
        return ["cancelled"]

    assert ["cancelled"] == kill(cancel, send, running=["1"], starting=["2", "3"])
    assert asked == done
