"""`yard eta` without a job: those of the asker that wait."""

from typing import Any, Self

import pytest

from gpuyard.cli.commands.jobs import eta

from .conftest import Yard as Command

FOUND = {
    "task": None,
    "state": "PENDING",
    "now_ms": 0,
    "starts_by_ms": None,
    "bound_ms": None,
    "runs": 0,
    "how": "on hold",
}


class Yard:
    """A yard in which jobs of `ana` wait."""

    def __init__(self, *labels: str) -> None:
        self._labels = labels
        self.asked: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def me(self) -> dict[str, Any]:
        return {"user": "ana"}

    def queue(self, **asked: Any) -> dict[str, Any]:
        self.asked = asked
        return {"columns": ["id", "label"], "rows": [[n, label] for n, label in enumerate(self._labels)]}

    def eta(self, job: str) -> dict[str, Any]:
        return FOUND | {"job": job}


def told(command: Command, monkeypatch: pytest.MonkeyPatch, *labels: str) -> tuple[list[str], str]:
    yard = Yard(*labels)
    monkeypatch.setattr(eta, "client", lambda: yard)
    done = command("eta")
    assert (0, {"states": ["PENDING"], "user": "ana"}) == (done.code, yard.asked)
    return done.out.splitlines(), done.err


def test_own_jobs_that_wait_are_told_an_array_once(yard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = told(yard, monkeypatch, "17", "12_0", "12_1", "20")
    assert (["job 17: on hold", "job 12: on hold", "job 20: on hold"], "") == (out, err)


def test_where_no_job_waits_it_says_what_to_type(yard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ([], "no job of ana waits; for another one: yard eta JOB\n") == told(yard, monkeypatch)


def test_of_many_the_first_are_told(yard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = told(yard, monkeypatch, *[str(n) for n in range(1, 15)])
    assert (10, "job 10: on hold") == (len(out), out[-1])
    assert "the first 10 of 14 jobs of ana that wait" in err
