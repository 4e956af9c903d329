"""Questions about one job, answered from a dump."""

import io

import pytest

from builders import Yard, ask, nodes
from gpuyard.core.dump import dump
from gpuyard.model import Job, JobSpec, JobSubmitted
from gpuyard.model.units import HOUR_MS, MINUTE_MS
from gpuyard.sim.oracle import Question, foresee, read, write
from gpuyard.sim.pastjobs import PastJob

PAST = (PastJob(0, JobSpec("t", ask(8)), 8000, HOUR_MS, 10 * MINUTE_MS),) * 30


def no_clock() -> float:
    return 0.0


def question(yard: Yard, job_id: int, *events: JobSubmitted) -> Question:
    return Question(dump(yard.state), yard.now_ms, job_id, PAST, 1, 1.0, events)


def taken() -> Yard:
    yard = Yard("fifo", nodes(1))
    yard.submit(8, limit_ms=HOUR_MS)
    yard.step()
    return yard


def test_a_waiting_job_gets_runs_a_bound_and_its_reasons() -> None:
    yard = taken()
    mine = yard.submit(8, limit_ms=HOUR_MS)

    found = foresee(question(yard, mine), no_clock)

    assert [10 * MINUTE_MS] * found.runs == found.waits_ms
    assert yard.now_ms + HOUR_MS == found.bound_ms
    assert 30 == found.history_jobs
    assert [] == found.nodes
    assert "placement" in [reason["by"] for reason in found.reasons]


def test_a_job_that_is_only_thought_of_is_placed() -> None:
    yard = Yard("fifo", nodes(1))
    new = Job(1, JobSpec("t", ask(2)), 0, HOUR_MS)

    found = foresee(question(yard, 1, JobSubmitted(0, new)), no_clock)

    assert [{"node": "h100-0", "gpus": [0, 1]}] == found.nodes
    assert ("H100", 2000) == (found.model, found.gpu_milli)
    assert [0] * found.runs == found.waits_ms


def test_a_running_job_is_told_to_run() -> None:
    found = foresee(question(taken(), 1), no_clock)

    assert ("RUNNING", 0) == (found.state, found.runs)


def test_the_budget_ends_it_early() -> None:
    yard = taken()
    mine = yard.submit(8, limit_ms=HOUR_MS)
    times = iter(range(100))

    found = foresee(question(yard, mine), lambda: float(next(times)))

    assert 2 == found.runs


def test_messages_go_through_a_pipe_whole_or_not_at_all() -> None:
    pipe = io.BytesIO()
    write(pipe, {"a": 1})
    whole = pipe.getvalue()

    assert {"a": 1} == read(io.BytesIO(whole))
    for cut in (0, 3, len(whole) - 1):
        with pytest.raises(EOFError):
            read(io.BytesIO(whole[:cut]))
