"""Jobs that wait for other jobs."""

import pytest

from builders import Yard, nodes
from gpuyard.core import apply, dependencies, explain
from gpuyard.core.dump import canonical, derived, dump, load
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

STARTED, ENDED, COMPLETED, FAILED = AfterKind


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
    assert (After(COMPLETED, 2),) == here.state.jobs[3].pending
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


def test_only_the_last_ends_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "REMEMBERED_MAX", 2)
    here = yard()
    for job_id in (3, 4, 5, 6):
        submit(here, job_id)
    for job_id in range(1, 7):
        end(here, job_id)
    assert {3, 4, 5, 6} == set(here.state.ends)


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
