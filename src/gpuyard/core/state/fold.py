"""`apply(state, event)`: the only way to change the state.

Each kind of event has one function, and `transitions` says in which states it may come. Any other event is a bug in
the code that wrote it, and raises with what is known of the job.

The events that every job has are folded in `lifecycle`.
"""

from collections.abc import Callable
from typing import Any, get_args

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state import fold_fleet as fleet
from gpuyard.core.state.lifecycle import (
    close_periods,
    end,
    finish_job,
    hold,
    requeue_if_due,
    start,
    submit,
    submit_tasks,
)
from gpuyard.core.state.state import InvalidEvent, State
from gpuyard.core.state.transitions import current, story
from gpuyard.model import (
    AccessEvent,
    AttemptConfirmed,
    AttemptEnded,
    AttemptStarted,
    AttemptState,
    AttemptStopping,
    AttemptUnknown,
    BookEvent,
    CheckpointSeen,
    ConfigSet,
    DemandLearned,
    Earmark,
    EarmarkDropped,
    EarmarkSet,
    EngineSeen,
    Event,
    GpusTaken,
    JobCancelled,
    JobContinued,
    JobHeld,
    JobReleased,
    JobState,
    JobSubmitted,
    JobSuspended,
    LayoutMade,
    LayoutPinned,
    LayoutReleased,
    NodeAdded,
    NodeChanged,
    NodeCordoned,
    NodeDown,
    NodeUncordoned,
    NodeUp,
    Requested,
    TasksSubmitted,
    Ticked,
    Verb,
)
from gpuyard.model.units import NO_LIMIT_MS


def apply(state: State, event: Event) -> None:
    """Fold one event into the state."""
    if isinstance(event, tuple):
        _OF_EVERY_JOB[type(event)](state, *event)
        return
    state.now_ms = at_ms = event.at_ms
    if at_ms >= state.tenants.due_ms:
        close_periods(state, at_ms)
    step = _STEPS[type(event)]
    if step is None:
        # An event of another domain: time has passed, and the last plan stands.
        return
    state.change_seq += 1
    step(state, event)


# -- jobs ----------------------------------------------------------------------------------------------------------


def _job_held(state: State, event: JobHeld) -> None:
    hold(state, current(state, event))


def _job_released(state: State, event: JobReleased) -> None:
    record = current(state, event)
    record.held = False
    requeue_if_due(state, record, event.at_ms)


def _requested(state: State, event: Requested) -> None:
    record = state.jobs.get(event.job_id)
    if record is None:
        return
    waits, verb = record.phase is None, event.verb
    if verb is Verb.CANCEL and waits:
        _cancel(state, record)
    elif verb in (Verb.TOP, Verb.BACK):
        _move(state, record, event)
    elif verb is Verb.HOLD and waits:
        hold(state, record)
    elif verb is Verb.RELEASE and waits:
        record.held = False
        # A user who releases a job does not want it to wait out a retry delay either.
        record.begin_ms = record.job.begin_ms
        requeue_if_due(state, record, event.at_ms)
    elif record.wanted is Verb.CANCEL:
        # A cancellation stands, whatever else is requested.
        pass
    elif not waits and verb in _WANTED_FROM and record.phase in _WANTED_FROM[verb]:
        record.wanted, record.wanted_by = verb, (event.by, event.at_ms)


def _move(state: State, record: JobRecord, event: Requested) -> None:
    """Move a waiting job ahead of all others, or back to its place in the order."""
    if record.phase is not None:
        return
    most = max([other.boost for other in state.jobs.values()])
    in_line = record.id not in state.deferred
    if in_line:
        state.queue.remove(record)
    record.move(most + 1 if event.verb is Verb.TOP else 0, event.by)
    if in_line:
        state.queue.add(record)


_WANTED_FROM = {
    Verb.CANCEL: frozenset(AttemptState),
    Verb.REQUEUE: frozenset(AttemptState) - {AttemptState.STOPPING},
    Verb.SUSPEND: frozenset({AttemptState.STARTING, AttemptState.RUNNING}),
    Verb.CONTINUE: frozenset(AttemptState) - {AttemptState.STOPPING},
}
"""The states of the attempt in which each request makes sense."""


def _job_cancelled(state: State, event: JobCancelled) -> None:
    _cancel(state, current(state, event))


def _cancel(state: State, record: JobRecord) -> None:
    state.drop_earmark(record)
    if state.deferred.pop(record.id, None) is None:
        state.queue.remove(record)
    record.state = JobState.CANCELLED
    record.count.jobs -= 1
    record.count.of_user.jobs -= 1
    finish_job(state, record, state.now_ms)


# -- attempts ------------------------------------------------------------------------------------------------------


def _attempt_confirmed(state: State, event: AttemptConfirmed) -> None:
    record = current(state, event)
    if event.started_ms:
        state.backdate(record, event.started_ms)
    # A suspended attempt that was out of sight for a while is still suspended.
    record.phase = AttemptState.SUSPENDED if record.state is JobState.SUSPENDED else AttemptState.RUNNING


def _attempt_unknown(state: State, event: AttemptUnknown) -> None:
    current(state, event).phase = AttemptState.UNKNOWN


def _attempt_stopping(state: State, event: AttemptStopping) -> None:
    record = current(state, event)
    record.wanted = record.wanted if record.wanted is Verb.CANCEL else None
    record.phase = AttemptState.STOPPING
    state.leaving[record.id] = record
    record.cause = event.cause
    record.for_job = event.for_job
    state.expect_end(record, min(record.end_ms, event.at_ms + record.klass.grace_ms))


def _checkpoint_seen(state: State, event: CheckpointSeen) -> None:
    record = current(state, event)
    record.checkpoint_ms = event.saved_at_ms
    # Stopping it now costs less: caches go by the nodes.
    state.nodes.touched += [grant.node for grant in record.grants]


def _job_suspended(state: State, event: JobSuspended) -> None:
    record = current(state, event)
    if record.state is not JobState.SUSPENDED:
        record.suspended_ms = event.at_ms
        state.expect_end(record, record.end_ms + NO_LIMIT_MS)
    record.phase = AttemptState.SUSPENDED
    record.state = JobState.SUSPENDED
    record.wanted = record.wanted if record.wanted is not Verb.SUSPEND else None


def _job_continued(state: State, event: JobContinued) -> None:
    record = current(state, event)
    frozen_ms = event.at_ms - record.suspended_ms
    state.expect_end(record, record.end_ms - NO_LIMIT_MS + frozen_ms)
    record.suspended_ms = 0
    record.phase = AttemptState.RUNNING
    record.state = JobState.RUNNING
    record.wanted = record.wanted if record.wanted is not Verb.CONTINUE else None


# -- earmarks and time ---------------------------------------------------------------------------------------------


def _earmark_set(state: State, event: EarmarkSet) -> None:
    record = current(state, event)
    if record.earmark is not None:
        raise InvalidEvent(f"{event}: it has an earmark; {story(record)}")
    record.earmark = Earmark(record.id, event.grants, event.expires_ms)
    state.earmarks[record.id] = record
    state.nodes.take(event.grants)


def _earmark_dropped(state: State, event: EarmarkDropped) -> None:
    state.drop_earmark(current(state, event))


def _ticked(state: State, event: Ticked) -> None:
    for record in [r for r in state.deferred.values() if r.begin_ms <= event.at_ms]:
        requeue_if_due(state, record, event.at_ms)
    for record in [r for r in state.earmarks.values() if r.earmark and r.earmark.expires_ms <= event.at_ms]:
        state.drop_earmark(record)


_OF_EVERY_JOB: dict[type, Callable[..., object]] = {
    JobSubmitted: submit,
    TasksSubmitted: submit_tasks,
    AttemptStarted: start,
    AttemptEnded: end,
}
"""Steps that take the fields of the event as arguments."""

_STEPS: dict[type, Callable[[State, Any], None] | None] = {
    ConfigSet: fleet.config_set,
    NodeAdded: fleet.node_added,
    NodeChanged: fleet.node_changed,
    EngineSeen: fleet.engine_seen,
    NodeDown: fleet.node_down,
    NodeUp: fleet.node_up,
    NodeCordoned: fleet.node_cordoned,
    NodeUncordoned: fleet.node_uncordoned,
    GpusTaken: fleet.gpus_taken,
    LayoutPinned: fleet.layout_pinned,
    LayoutReleased: fleet.layout_released,
    LayoutMade: fleet.layout_made,
    DemandLearned: fleet.demand_learned,
    JobHeld: _job_held,
    JobReleased: _job_released,
    JobCancelled: _job_cancelled,
    JobSuspended: _job_suspended,
    JobContinued: _job_continued,
    Requested: _requested,
    AttemptConfirmed: _attempt_confirmed,
    AttemptUnknown: _attempt_unknown,
    AttemptStopping: _attempt_stopping,
    CheckpointSeen: _checkpoint_seen,
    EarmarkSet: _earmark_set,
    EarmarkDropped: _earmark_dropped,
    Ticked: _ticked,
    **dict.fromkeys(get_args(AccessEvent)),
    **dict.fromkeys(get_args(BookEvent)),
}
"""The function for each kind of event; None: the event belongs to another domain."""
