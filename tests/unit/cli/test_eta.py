"""`yard eta` without a job: those of the asker that wait."""

from typing import Any

from gpuyard.wire.endpoints import ETA, ME, QUEUE

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


def told(command: Command, answering_yard: Any, *labels: str) -> tuple[list[str], str]:
    """What the command says of a yard in which these jobs of `ana` wait."""
    rows = [[number, label] for number, label in enumerate(labels)]
    yard = answering_yard(
        {
            ME: {"user": "ana"},
            QUEUE: {"columns": ["id", "label"], "rows": rows},
            ETA: lambda wanted: FOUND | {"job": wanted["id"]},
        }
    )
    done = command("eta")
    assert (0, [{"state": "PENDING", "user": "ana"}]) == (done.code, yard.asked_of(QUEUE))
    return done.out.splitlines(), done.err


def test_own_jobs_that_wait_are_told_an_array_once(yard: Command, answering_yard: Any) -> None:
    out, err = told(yard, answering_yard, "17", "12_0", "12_1", "20")
    assert (["job 17: on hold", "job 12: on hold", "job 20: on hold"], "") == (out, err)


def test_where_no_job_waits_it_says_what_to_type(yard: Command, answering_yard: Any) -> None:
    assert ([], "no job of ana waits; for another one: yard eta JOB\n") == told(yard, answering_yard)


def test_of_many_the_first_are_told(yard: Command, answering_yard: Any) -> None:
    out, err = told(yard, answering_yard, *[str(n) for n in range(1, 15)])
    assert (10, "job 10: on hold") == (len(out), out[-1])
    assert "the first 10 of 14 jobs of ana that wait" in err
