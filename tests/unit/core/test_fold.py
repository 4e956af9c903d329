"""One door for every change: each event may follow only what its table says, and is folded completely."""

import pytest

from gpuyard.core import InvalidEvent, apply
from gpuyard.core.state.dump import canonical
from gpuyard.core.state.transitions import FROM
from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptStarted,
    AttemptState,
    AttemptStopping,
    CheckpointSeen,
    EarmarkDropped,
    EarmarkSet,
    Event,
    Grant,
    JobCancelled,
    JobContinued,
    JobHeld,
    JobReleased,
    JobState,
    JobSubmitted,
    JobSuspended,
    NodeAdded,
    Outcome,
    StopCause,
)
from gpuyard.testing import nodes
from harness.machines.checked import CheckedYard, replayed
from harness.yard import Yard

ROOM = (Grant(0, 1, 1000, 0, 0, 1),)
ELSEWHERE = (Grant(1, 1, 1000, 0, 0, 1),)

PHASES = [None, AttemptState.STARTING, AttemptState.RUNNING, AttemptState.SUSPENDED, AttemptState.STOPPING]
EVENTS: list[Event] = [
    AttemptStarted(0, 1, 1, ROOM),
    AttemptConfirmed(0, 1, 1),
    AttemptStopping(0, 1, 1, StopCause.CANCEL),
    AttemptEnded(0, 1, 1, Outcome.COMPLETED),
    CheckpointSeen(0, 1, 1, 0),
    JobHeld(0, 1),
    JobReleased(0, 1),
    JobCancelled(0, 1),
    JobSuspended(0, 1),
    JobContinued(0, 1),
    EarmarkSet(0, 1, ELSEWHERE, 10),
    EarmarkDropped(0, 1),
]


def job_in(phase: AttemptState | None) -> Yard:
    here = Yard("fifo", nodes(2))
    here.submit(1)
    if phase is not None:
        here.apply(AttemptStarted(0, 1, 1, ROOM))
    if phase is AttemptState.RUNNING:
        here.apply(AttemptConfirmed(0, 1, 1))
    if phase is AttemptState.SUSPENDED:
        here.apply(JobSuspended(0, 1))
    if phase is AttemptState.STOPPING:
        here.apply(AttemptStopping(0, 1, 1, StopCause.CANCEL))
    return here


@pytest.mark.parametrize("phase", PHASES, ids=str)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_follows_only_what_the_table_says(event: Event, phase: AttemptState | None) -> None:
    here = job_in(phase)
    if phase in FROM[type(event)]:
        here.apply(event)
        assert canonical(replayed(here.log)) == canonical(here.state)
    else:
        before = canonical(here.state)
        with pytest.raises(InvalidEvent, match="job 1 is"):
            apply(here.state, event)
        assert before == canonical(here.state)


def test_terminal_is_terminal() -> None:
    """Nothing can be said of a job that has ended, and its id is not given again."""
    here = job_in(AttemptState.RUNNING)
    here.end(1)
    for event in EVENTS:
        with pytest.raises(InvalidEvent, match="no live job 1"):
            apply(here.state, event)
    spec = here.log[3].job.spec  # type: ignore[union-attr]
    with pytest.raises(InvalidEvent, match="id 1 is not above 1"):
        apply(here.state, JobSubmitted(0, here.log[3].job))  # type: ignore[union-attr]
    assert "t" == spec.tenant


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (AttemptStarted(0, 2, 1, ROOM), "its room is taken"),
        (AttemptStarted(0, 2, 2, ELSEWHERE), "attempt 0"),
        (AttemptEnded(0, 1, 2, Outcome.COMPLETED), "the current attempt is 1"),
        (AttemptStopping(0, 1, 7, StopCause.CANCEL), "the current attempt is 1"),
        (NodeAdded(0, nodes(1)[0]), "a node of that name"),
        (AttemptConfirmed(0, 9, 1), "no live job 9"),
    ],
)
def test_what_cannot_have_happened_is_refused(event: Event, why: str) -> None:
    here = job_in(AttemptState.STARTING)
    here.submit(1)
    before = canonical(here.state)
    with pytest.raises(InvalidEvent, match=why):
        apply(here.state, event)
    assert before == canonical(here.state)


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_ends_a_job_or_sends_it_back(outcome: Outcome) -> None:
    here = CheckedYard("fifo", nodes(1))
    here.submit(8)
    here.step()
    here.end(1, outcome)
    back = outcome in (Outcome.PREEMPTED, Outcome.NODE_FAIL)
    assert ([1] if back else []) == here.started(here.step())
    if not back:
        assert JobState(outcome.value) is here.books.ended[1]


def test_a_requeued_job_has_less_to_do_and_a_restart_to_pay() -> None:
    here = CheckedYard("fifo", nodes(1))
    here.submit(8, limit_ms=60_000, checkpoint_ms=10_000, restart_cost_ms=2_000)
    here.step()
    here.now_ms = 25_000
    here.end(1, Outcome.PREEMPTED, saved_ms=20_000)
    here.step()
    assert 25_000 + 40_000 + 2_000 == here.state.jobs[1].end_ms


def test_a_frozen_job_ends_later_by_the_time_it_was_frozen() -> None:
    here = CheckedYard("fifo", nodes(1))
    here.submit(8, limit_ms=60_000)
    here.step()
    here.now_ms = 10_000
    here.apply(JobSuspended(10_000, 1))
    here.now_ms = 40_000
    here.apply(JobContinued(40_000, 1))
    assert 90_000 == here.state.jobs[1].end_ms


def test_events_of_one_moment_may_come_in_any_order() -> None:
    """Three ends reported at once: the state and the plan are the same however they are sorted."""
    wanted = None
    for order in ([1, 2, 3], [3, 1, 2], [2, 3, 1]):
        here = CheckedYard("default", nodes(3))
        for _ in range(6):
            here.submit(8, limit_ms=10_000)
        here.step()
        here.now_ms = 5000
        for job in order:
            here.end(job)
        found = (canonical(here.state), here.step())
        wanted = wanted or found
        assert wanted == found
