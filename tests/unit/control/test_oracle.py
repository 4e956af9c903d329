"""Questions about one job, answered on a state of their own."""

from collections.abc import Callable

import pytest

from gpuyard.control.foresight.oracle import Foresight, Question, answer_of, foresee
from gpuyard.control.replica.questions import QuestionContext
from gpuyard.core.state.dump import dump, load
from gpuyard.model import Job, JobSpec, JobSubmitted
from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS, NO_LIMIT_MS
from gpuyard.sim.forward import Forward
from gpuyard.sim.pastjobs import PastJob
from gpuyard.store import Store
from gpuyard.testing import ask, nodes
from harness.yard import Yard

PAST = (PastJob(0, JobSpec("t", ask(8)), 8000, HOUR_MS, 10 * MINUTE_MS),) * 30


def no_clock() -> float:
    return 0.0


def foreseen(
    yard: Yard,
    job_id: int,
    *events: JobSubmitted,
    clock_s: Callable[[], float] = no_clock,
    looked_at_max: int = 2000,
) -> Foresight:
    own = QuestionContext(load(dump(yard.state)), yard.policy, no_store)
    asked = Question(yard.now_ms, job_id, PAST, 1, 1.0, events, looked_at_max=looked_at_max)
    found = foresee(own, asked, clock_s)
    assert found is not None
    return found


def no_store() -> Store:
    raise AssertionError("what lies ahead is not in the store")


def taken() -> Yard:
    yard = Yard("fifo", nodes(1))
    yard.submit(8, limit_ms=HOUR_MS)
    yard.step()
    return yard


def test_a_waiting_job_gets_runs_a_bound_and_its_reasons() -> None:
    yard = taken()
    mine = yard.submit(8, limit_ms=HOUR_MS)

    found = foreseen(yard, mine)

    assert [10 * MINUTE_MS] * found.runs == found.waits_ms
    assert yard.now_ms + HOUR_MS == found.bound_ms
    assert 30 == found.history_jobs
    assert [] == found.nodes
    assert "placement" in [reason["by"] for reason in found.reasons]


def test_a_job_that_is_only_thought_of_is_placed() -> None:
    yard = Yard("fifo", nodes(1))
    new = Job(1, JobSpec("t", ask(2)), 0, HOUR_MS)

    found = foreseen(yard, 1, JobSubmitted(0, new))

    assert [{"node": "h100-0", "gpus": [0, 1]}] == found.nodes
    assert ("H100", 2000) == (found.model, found.gpu_milli)
    assert [0] * found.runs == found.waits_ms


@pytest.mark.parametrize("days", [15, 1000, 12 * 365, 90_000])
def test_a_begin_beyond_the_horizon_is_told_without_running_forward(days: int) -> None:
    yard = taken()
    begin_ms = yard.now_ms + days * DAY_MS

    found = foreseen(
        yard, 2, JobSubmitted(yard.now_ms, Job(2, JobSpec("t", ask(2)), 0, HOUR_MS, 0, begin_ms))
    )

    assert 0 == found.runs
    assert (begin_ms, "at its begin time, when there is room") == (found.bound_ms, found.how)


@pytest.mark.parametrize("days", [15, 12 * 365])
def test_a_begin_far_ahead_finds_no_room_that_a_job_without_a_time_limit_has(days: int) -> None:
    yard = Yard("fifo", nodes(1))
    yard.submit(8, limit_ms=NO_LIMIT_MS)
    yard.step()
    begin_ms = yard.now_ms + days * DAY_MS

    found = foreseen(
        yard, 2, JobSubmitted(yard.now_ms, Job(2, JobSpec("t", ask(2)), 0, HOUR_MS, 0, begin_ms))
    )

    assert (None, "it waits for job 1, which has no time limit") == (found.bound_ms, found.how)


def test_a_running_job_is_told_to_run() -> None:
    found = foreseen(taken(), 1)

    assert ("RUNNING", 0) == (found.state, found.runs)


def test_the_budget_ends_it_early() -> None:
    yard = taken()
    mine = yard.submit(8, limit_ms=HOUR_MS)
    times = iter(range(100))

    found = foreseen(yard, mine, clock_s=lambda: float(next(times)))

    assert 2 == found.runs


def test_of_a_line_too_long_to_run_forward_a_part_is_run_and_the_answer_says_so() -> None:
    yard = taken()
    waiting = [yard.submit(8, limit_ms=HOUR_MS) for _ in range(60)]
    behind = foreseen(yard, waiting[5], looked_at_max=20)
    last = foreseen(yard, waiting[-1], looked_at_max=20)

    assert (40, 0) == (behind.left_out, behind.left_out_ahead)
    assert [6 * 10 * MINUTE_MS] * behind.runs == behind.waits_ms, "nobody ahead of it was left out"
    assert (40, 40) == (last.left_out, last.left_out_ahead)
    assert [20 * 10 * MINUTE_MS] * last.runs == last.waits_ms
    said = answer_of(0, "PENDING", last, {50: 12_000_000, 90: 12_000_000}, {})
    assert (None, 12_000_000, 40) == (said["starts_by_ms"], said["not_before_ms"], said["left_out_ahead"])
    assert "40 of the jobs ahead of it were left out" in said["how"]
    assert (
        "without 40 of the jobs behind it, and without those still to come"
        in answer_of(0, "PENDING", behind)["how"]
    )


def test_of_a_line_too_long_to_run_forward_nobody_new_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = taken()
    waiting = [yard.submit(8, limit_ms=HOUR_MS) for _ in range(60)]
    # What came within a quarter of an hour would come again in each of the next.
    yard.now_ms += 15 * MINUTE_MS
    arrived: list[object] = []
    monkeypatch.setattr(Forward, "_arrive", lambda _self, past, _now_ms: arrived.append(past))

    assert foreseen(yard, waiting[-1], looked_at_max=20).runs
    assert [] == arrived
    assert foreseen(yard, waiting[-1]).runs
    assert arrived
