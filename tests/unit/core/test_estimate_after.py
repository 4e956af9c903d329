"""When a job starts that waits for other jobs, and what is said where that cannot be told."""

import pytest

from gpuyard.core import apply, explain
from gpuyard.core.estimate.estimate import Estimate, estimate
from gpuyard.model import After, AfterKind, Ask, Job, JobSpec, JobSubmitted, Requested, Verb, Whole
from gpuyard.model.units import HOUR_MS, MINUTE_MS
from gpuyard.testing import nodes
from harness.yard import Yard

STARTED, ENDED, COMPLETED, _FAILED, ALONE = AfterKind


def submit(
    here: Yard, job_id: int, *after: After, gpus: int = 1, limit_ms: int = HOUR_MS, one: bool = False
) -> None:
    spec = JobSpec("t", Ask(Whole(gpus)), after=after, after_one=one)
    here.apply(JobSubmitted(here.now_ms, Job(job_id, spec, here.now_ms, limit_ms)))


def told(here: Yard, job_id: int) -> Estimate:
    return estimate(here.state, here.policy, 0, here.state.jobs[job_id])


def busy(limit_ms: int = HOUR_MS) -> Yard:
    """Job 1 has all GPUs."""
    here = Yard("fifo", nodes(1))
    submit(here, 1, gpus=8, limit_ms=limit_ms)
    here.step()
    return here


def test_each_of_a_chain_is_booked_after_the_one_it_waits_for() -> None:
    here = busy()
    submit(here, 2, After(COMPLETED, 1), limit_ms=5 * MINUTE_MS)
    submit(here, 3, After(ENDED, 2))

    assert HOUR_MS == told(here, 2).at_ms
    assert Estimate(HOUR_MS + 5 * MINUTE_MS, "when job 2, which it waits for, has ended as promised") == told(
        here, 3
    )


def test_one_that_is_not_in_line_yet_may_be_sooner_than_those_who_are() -> None:
    here = busy()
    submit(here, 2, After(COMPLETED, 1), gpus=8)
    submit(here, 3, gpus=8)

    assert Estimate(
        2 * HOUR_MS, "when job 3 ends as promised; at the latest, behind 1 job in line now"
    ) == told(here, 2)


def test_with_room_to_spare_it_still_waits_for_the_other() -> None:
    here = Yard("fifo", nodes(1))
    submit(here, 1)
    submit(here, 2, After(COMPLETED, 1))
    submit(here, 3, After(STARTED, 2, delay_ms=7))

    assert (HOUR_MS, HOUR_MS + 7) == (told(here, 2).at_ms, told(here, 3).at_ms)
    assert "when job 2, which it waits for, has started" == told(here, 3).how


@pytest.mark.parametrize(("one", "at_ms"), [(False, 2 * HOUR_MS), (True, HOUR_MS)])
def test_of_several_the_last_counts_or_the_first_where_one_will_do(one: bool, at_ms: int) -> None:
    here = Yard("fifo", nodes(1))
    submit(here, 1, limit_ms=2 * HOUR_MS)
    submit(here, 2)
    submit(here, 3, After(ENDED, 1), After(ENDED, 2), one=one)

    assert at_ms == told(here, 3).at_ms


def test_a_hold_further_up_is_named() -> None:
    here = Yard("fifo", nodes(1))
    submit(here, 1)
    apply(here.state, Requested(0, 1, Verb.HOLD))
    submit(here, 2, After(COMPLETED, 1))
    submit(here, 3, After(COMPLETED, 2))

    text = "it waits for job 1, which is on hold, and nobody has said for how long"
    assert Estimate(None, text) == told(here, 2) == told(here, 3)


def test_a_job_without_a_time_limit_that_is_waited_for_is_named() -> None:
    here = Yard("fifo", nodes(1))
    submit(here, 1, limit_ms=0)
    here.step()
    submit(here, 2, After(COMPLETED, 1))
    submit(here, 3, After(COMPLETED, 2))

    assert Estimate(None, "it waits for job 1, which has no time limit") == told(here, 2)
    assert Estimate(None, "it waits for job 2, and when that starts cannot be told") == told(here, 3)


def test_only_those_without_a_limit_are_said_to_have_none() -> None:
    here = busy(limit_ms=0)
    for job_id in range(2, 20):
        submit(here, job_id)

    assert Estimate(None, "it waits for job 1, which has no time limit") == told(here, 19)


def test_all_those_without_a_limit_that_have_to_end_are_named() -> None:
    here = Yard("fifo", nodes(1))
    for job_id in (1, 2):
        submit(here, job_id, gpus=4, limit_ms=0)
        here.now_ms += 1
        here.step()
    submit(here, 3, gpus=6)

    assert "it waits for jobs 1 and 2, which have no time limit" == told(here, 3).how


def test_a_task_behind_others_of_its_own_array_says_so() -> None:
    here = Yard("fifo", nodes(1))
    for index, after in enumerate([(), (After(ENDED, 11),)]):
        spec = JobSpec("t", Ask(Whole(1)), after=after)
        here.apply(JobSubmitted(0, Job(11 + index, spec, 0, array_id=10, array_index=index)))

    found = explain(here.state, here.policy, 12, 0)

    assert found is not None
    text = "as many tasks of its array run as may at a time; it comes after job 10_0"
    assert [text] == [reason.text for reason in found.reasons]


def test_the_tasks_of_an_array_that_are_waited_for_are_one_blocker() -> None:
    here = Yard("fifo", nodes(1))
    spec = JobSpec("t", Ask(Whole(1)))
    for index in range(3):
        here.apply(JobSubmitted(0, Job(11 + index, spec, 0, array_id=10, array_index=index)))
    submit(here, 14, *[After(COMPLETED, job_id) for job_id in (11, 12, 13)])
    submit(here, 15, After(ENDED, 12))

    found = [explain(here.state, here.policy, job_id, 0) for job_id in (14, 15)]

    assert ["it waits for 3 tasks of job 10 to complete", "it waits for job 10_1 to end"] == [
        reason.text for each in found if each is not None for reason in each.reasons
    ]


def test_of_an_array_the_last_task_counts() -> None:
    here = Yard("fifo", nodes(1))
    spec = JobSpec("t", Ask(Whole(8)))
    for job_id in (11, 12):
        here.apply(JobSubmitted(0, Job(job_id, spec, 0, HOUR_MS, array_id=10, array_index=job_id - 11)))
    submit(here, 13, After(COMPLETED, 10, tasks=2))
    submit(here, 14, After(ALONE, 0))

    assert Estimate(2 * HOUR_MS, "when job 10_1, which it waits for, has ended as promised") == told(here, 13)
    assert 2 * HOUR_MS <= (told(here, 14).at_ms or 0)
