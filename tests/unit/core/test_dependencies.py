"""Jobs that wait for other jobs."""

import random
import time

import pytest

from gpuyard.core import apply, explain
from gpuyard.core.state import dependencies
from gpuyard.core.state.dump import canonical, derived, dump, load
from gpuyard.model import (
    After,
    AfterKind,
    Ask,
    AttemptEnded,
    AttemptStarted,
    Grant,
    Job,
    JobCancelled,
    JobSpec,
    JobSubmitted,
    Outcome,
    Requested,
    Ticked,
    Verb,
    Whole,
)
from gpuyard.model.serialise import from_plain
from gpuyard.testing import nodes
from harness.yard import Yard

STARTED, ENDED, COMPLETED, FAILED, ALONE = AfterKind


def yard() -> Yard:
    """Jobs 1 and 2 wait for nobody."""
    here = Yard("fifo", nodes(1))
    for job_id in (1, 2):
        submit(here, job_id)
    return here


def submit(here: Yard, job_id: int, *after: After, one: bool = False, begin_ms: int = 0) -> None:
    spec = JobSpec("t", Ask(Whole(1)), after=after, after_one=one)
    apply(here.state, JobSubmitted(0, Job(job_id, spec, 0, begin_ms=begin_ms)))


def start(here: Yard, job_id: int) -> None:
    apply(here.state, AttemptStarted(1, job_id, 1, (Grant(0, 1 << job_id, 1000, 0, 0, 1),)))


def end(here: Yard, job_id: int, outcome: Outcome = Outcome.COMPLETED) -> None:
    if here.state.jobs[job_id].phase is None:
        start(here, job_id)
    apply(here.state, AttemptEnded(2, job_id, 1, outcome))


def waiting(here: Yard) -> set[int]:
    """Who may start; and a state that was loaded agrees."""
    loaded = load(dump(here.state))
    assert canonical(here.state) == canonical(loaded)
    assert derived(here.state) == derived(loaded)
    assert here.state.dependents.keys() >= loaded.dependents.keys()
    assert here.state.doomed.keys() == loaded.doomed.keys()
    return {job_id for job_id in here.state.jobs if job_id not in here.state.deferred}


@pytest.mark.parametrize(
    ("kind", "outcome", "goes"),
    [
        (COMPLETED, Outcome.COMPLETED, True),
        (COMPLETED, Outcome.FAILED, False),
        (FAILED, Outcome.COMPLETED, False),
        (FAILED, Outcome.TIMEOUT, True),
        (ENDED, Outcome.COMPLETED, True),
        (ENDED, Outcome.FAILED, True),
        (STARTED, Outcome.FAILED, True),
    ],
)
@pytest.mark.parametrize("comes_late", [False, True])
def test_a_job_goes_or_is_doomed_by_how_another_ends(
    kind: AfterKind, outcome: Outcome, goes: bool, comes_late: bool
) -> None:
    here = yard()
    if comes_late:
        end(here, 1, outcome)
    submit(here, 3, After(kind, 1))
    if not comes_late:
        assert {1, 2} == waiting(here)
        end(here, 1, outcome)
    assert ({2, 3} if goes else {2}) == waiting(here)
    assert goes == (3 not in here.state.doomed)


def test_the_start_of_another_is_enough() -> None:
    here = yard()
    submit(here, 3, After(STARTED, 1), After(COMPLETED, 2))
    start(here, 1)
    assert [After(COMPLETED, 2)] == list(here.state.jobs[3].pending)
    end(here, 2)
    assert 3 in waiting(here)


def test_one_of_several_will_do() -> None:
    here = yard()
    submit(here, 3, After(COMPLETED, 1), After(COMPLETED, 2), one=True)
    end(here, 1, Outcome.FAILED)
    assert {2} == waiting(here)
    end(here, 2)
    assert {3} == waiting(here)


def test_none_of_several_dooms() -> None:
    here = yard()
    submit(here, 3, After(COMPLETED, 1), After(COMPLETED, 2), one=True)
    end(here, 1, Outcome.FAILED)
    end(here, 2, Outcome.FAILED)
    assert "job 2 is FAILED and was to complete" == here.state.jobs[3].doomed


def test_a_cancelled_job_counts_as_not_completed_down_the_chain() -> None:
    here = yard()
    submit(here, 3, After(COMPLETED, 1))
    submit(here, 4, After(ENDED, 3))
    apply(here.state, Requested(1, 1, Verb.CANCEL))
    assert [3] == list(here.state.doomed)
    apply(here.state, JobCancelled(2, 3))
    assert {2, 4} == waiting(here)
    assert {} == here.state.doomed


def test_a_begin_time_and_a_hold_still_count() -> None:
    here = yard()
    submit(here, 3, After(ENDED, 1), begin_ms=5000)
    submit(here, 4, After(ENDED, 1))
    apply(here.state, Requested(1, 4, Verb.HOLD))
    end(here, 1)
    assert {2} == waiting(here)
    apply(here.state, Ticked(5000))
    apply(here.state, Requested(5000, 4, Verb.RELEASE))
    assert {2, 3, 4} == waiting(here)


def test_a_release_does_not_lift_a_dependency() -> None:
    here = yard()
    submit(here, 3, After(ENDED, 1))
    apply(here.state, Requested(1, 3, Verb.RELEASE))
    assert {1, 2} == waiting(here)


def test_the_reason_names_the_job_and_what_is_wanted_of_it() -> None:
    here = yard()
    submit(here, 3, After(COMPLETED, 1))
    found = explain(here.state, here.policy, 3, 0)
    assert found is not None
    assert "it waits for job 1 to complete" in [reason.text for reason in found.reasons]
    end(here, 1, Outcome.FAILED)
    found = explain(here.state, here.policy, 3, 2)
    assert found is not None
    assert ["it can never start: job 1 is FAILED and was to complete"] == [r.text for r in found.reasons]


def test_only_the_last_ends_are_remembered() -> None:
    most, here = dependencies.REMEMBERED_MAX, yard()
    for job_id in range(3, 2 * most + 3):
        submit(here, job_id)
    for job_id in range(1, 2 * most + 3):
        apply(here.state, JobCancelled(1, job_id))
    assert set(range(most + 1, 2 * most + 3)) == set(here.state.ends)


def test_a_wait_is_counted_from_the_others_start() -> None:
    here = yard()
    submit(here, 3, After(STARTED, 1, delay_ms=5000))
    apply(here.state, AttemptStarted(1000, 1, 1, (Grant(0, 1, 1000, 0, 0, 1),)))
    assert 3 in here.state.deferred
    assert 6000 == here.state.jobs[3].begin_ms
    # One that comes later counts from the same start, and is dumped with it.
    spec = JobSpec("t", Ask(Whole(1)), after=(After(STARTED, 1, delay_ms=2000),))
    apply(here.state, JobSubmitted(2000, Job(4, spec, 2000)))
    assert 3000 == here.state.jobs[4].begin_ms
    assert 4 in here.state.deferred
    assert canonical(here.state) == canonical(load(dump(here.state)))
    apply(here.state, Ticked(3000))
    assert [3] == list(here.state.deferred)
    apply(here.state, Ticked(6000))
    assert not here.state.deferred


# -- arrays ----------------------------------------------------------------------------------------------------------


def with_array(tasks: int = 3) -> Yard:
    """Array 10 with its tasks 11, 12, …"""
    here = Yard("fifo", nodes(1))
    spec = JobSpec("t", Ask(Whole(1)))
    for index in range(tasks):
        job = Job(11 + index, spec, 0, array_id=10, array_index=index)
        apply(here.state, JobSubmitted(0, job))
    return here


def finish(here: Yard, job_id: int, outcome: Outcome = Outcome.COMPLETED) -> None:
    if here.state.jobs[job_id].phase is None:
        apply(here.state, AttemptStarted(1, job_id, 1, (Grant(0, 1 << job_id - 11, 1000, 0, 0, 1),)))
    apply(here.state, AttemptEnded(2, job_id, 1, outcome))


def test_an_array_is_waited_for_until_its_last_task_has_ended() -> None:
    here = with_array()
    submit(here, 20, After(COMPLETED, 10, tasks=3))
    submit(here, 21, After(ENDED, 10, tasks=3))
    submit(here, 22, After(FAILED, 10, tasks=3))
    for job_id in (11, 13):
        finish(here, job_id)
        assert not {20, 21, 22} & waiting(here)
    finish(here, 12)
    assert {20, 21} == waiting(here)
    assert "all tasks of job 10 completed, and one was to fail" == here.state.jobs[22].doomed
    assert not here.state.arrays


def test_the_first_task_that_fails_breaks_afterok_and_is_enough_for_afternotok() -> None:
    here = with_array()
    submit(here, 20, After(COMPLETED, 10, tasks=3))
    submit(here, 22, After(FAILED, 10, tasks=3))
    finish(here, 12, Outcome.FAILED)
    assert "a task of job 10 is FAILED and was to complete" == here.state.jobs[20].doomed
    submit(here, 23, After(FAILED, 10, tasks=3))
    submit(here, 24, After(COMPLETED, 10, tasks=3))
    assert [20, 24] == sorted(here.state.doomed)
    finish(here, 11)
    assert {13} == waiting(here)
    finish(here, 13)
    assert {22, 23} == waiting(here)


def test_an_array_has_started_when_its_last_task_has() -> None:
    here = with_array()
    submit(here, 20, After(STARTED, 10, tasks=3))
    submit(here, 21, After(STARTED, 10, delay_ms=5000, tasks=3))
    apply(here.state, AttemptStarted(1000, 11, 1, (Grant(0, 1, 1000, 0, 0, 1),)))
    apply(here.state, JobCancelled(1500, 13))
    assert {11, 12} == waiting(here)
    apply(here.state, AttemptStarted(2000, 12, 1, (Grant(0, 2, 1000, 0, 0, 1),)))
    assert {11, 12, 20} == waiting(here)
    assert 7000 == here.state.jobs[21].begin_ms
    spec = JobSpec("t", Ask(Whole(1)), after=(After(STARTED, 10, delay_ms=1000, tasks=3),))
    apply(here.state, JobSubmitted(2500, Job(22, spec, 2500)))
    assert 3000 == here.state.jobs[22].begin_ms


def test_where_one_will_do_an_array_counts_as_one() -> None:
    here = with_array()
    submit(here, 20)
    submit(here, 21, After(COMPLETED, 10, tasks=3), After(COMPLETED, 20), one=True)
    submit(here, 22, After(COMPLETED, 10, tasks=3), After(COMPLETED, 20), one=True)
    finish(here, 11, Outcome.FAILED)
    assert not here.state.doomed
    apply(here.state, JobCancelled(2, 20))
    assert [21, 22] == sorted(here.state.doomed)


@pytest.mark.parametrize("seed", range(20))
def test_an_array_is_waited_for_like_each_of_its_tasks(seed: int) -> None:
    rng = random.Random(seed)
    tasks, wanted = rng.randint(1, 6), [STARTED, ENDED, COMPLETED]
    whole, each = with_array(tasks), with_array(tasks)
    steps = [(job_id, rng.choice(list(Outcome)[:3])) for job_id in range(11, 11 + tasks)]
    rng.shuffle(steps)
    next_id = 20
    for job_id, outcome in steps:
        for kind in wanted:
            submit(whole, next_id, After(kind, 10, tasks=tasks))
            submit(each, next_id, *[After(kind, 11 + index) for index in range(tasks)])
            next_id += 1
        for here in (whole, each):
            finish(here, job_id, outcome)
        assert waiting(whole) == waiting(each)
        assert whole.state.doomed.keys() == each.state.doomed.keys()


def test_one_that_wants_to_be_alone_waits_for_all_earlier_ones_of_its_name_and_user() -> None:
    here = Yard("fifo", nodes(1))

    def named(job_id: int, *after: After, user: str = "u", name: str = "daily", array_id: int = 0) -> None:
        spec = JobSpec("t", Ask(Whole(1)), user=user, name=name, after=after)
        apply(here.state, JobSubmitted(0, Job(job_id, spec, 0, array_id=array_id)))

    named(1)
    named(2, user="v")
    named(3, After(ALONE, 0), name="hourly")
    named(4, After(ALONE, 0))
    named(5)
    named(7, After(ALONE, 0), array_id=6)
    named(8, After(ALONE, 0), array_id=6)
    assert {1, 2, 3, 5} == waiting(here)
    found = explain(here.state, here.policy, 7, 0)
    assert found is not None
    assert "it waits for 3 earlier jobs of its name to end" in [reason.text for reason in found.reasons]
    apply(here.state, JobCancelled(1, 1))
    assert {2, 3, 4, 5} == waiting(here)
    apply(here.state, JobCancelled(1, 5))
    assert {2, 3, 4} == waiting(here)
    apply(here.state, JobCancelled(1, 4))
    assert {2, 3, 7, 8} == waiting(here)
    assert not here.state.namesakes


def test_what_an_end_costs_does_not_grow_with_the_tasks_of_an_array() -> None:
    # 300 jobs that wait for 3,000 tasks each were 900,000 dependencies, and every end looked at all of them.
    here = with_array(3000)
    for job_id in range(4000, 4300):
        submit(here, job_id, After(ENDED, 10, tasks=3000))
    began_s = time.process_time()
    for job_id in range(11, 3011):
        apply(here.state, JobCancelled(1, job_id))
    assert 10.0 > time.process_time() - began_s
    assert set(range(4000, 4300)) == set(here.state.jobs) - set(here.state.deferred)


def test_a_dependency_of_an_earlier_release_is_one_on_a_job() -> None:
    assert After(COMPLETED, 1) == from_plain(After, {"kind": "afterok", "job_id": 1, "delay_ms": 0})


def test_one_that_has_met_another_is_not_doomed_by_a_later_end() -> None:
    here = with_array()
    submit(here, 20)
    submit(here, 21)
    after = (
        After(COMPLETED, 20),
        After(COMPLETED, 21),
        After(COMPLETED, 10, tasks=3),
        After(FAILED, 10, tasks=3),
    )
    submit(here, 22, *after, one=True)
    apply(here.state, AttemptStarted(1, 20, 1, (Grant(0, 1, 1000, 0, 0, 1),)))
    apply(here.state, AttemptEnded(2, 20, 1, Outcome.COMPLETED))
    assert 22 in waiting(here)
    for job_id in (21, 11, 12, 13):
        apply(here.state, JobCancelled(3, job_id))
    assert {22} == waiting(here)
    assert not here.state.doomed


def test_a_task_of_an_array_is_called_what_every_list_calls_it() -> None:
    """Live and remembered, also from a dump: task 3 of array 7 is job 11 to nobody."""
    here = yard()
    tasks = {8: 0, 9: 1, 10: 2, 11: 3}
    for job_id, index in tasks.items():
        spec = JobSpec("t", Ask(Whole(1)))
        apply(here.state, JobSubmitted(0, Job(job_id, spec, 0, array_id=7, array_index=index)))
    submit(here, 12, After(COMPLETED, 11))
    apply(here.state, AttemptStarted(1, 11, 1, (Grant(0, 1, 1000, 0, 0, 1),)))
    apply(here.state, AttemptEnded(2, 11, 1, Outcome.FAILED))
    assert "job 7_3 is FAILED and was to complete" == here.state.jobs[12].doomed
    for state in (here.state, load(dump(here.state))):
        spec = JobSpec("t", Ask(Whole(1)), after=(After(COMPLETED, 11),))
        apply(state, JobSubmitted(2, Job(13, spec, 2)))
        assert "job 7_3 is FAILED and was to complete" == state.jobs[13].doomed
