"""`apply(state, event)`: the one door through which state changes.

Each kind of event has one function, and each says from which states it may come. Anything else is an error of
whoever wrote the event, and raises with what is known of the job.
"""

from collections.abc import Callable
from typing import Any

from gpuyard.core import dependencies
from gpuyard.core import fold_fleet as fleet
from gpuyard.core.records import JobRecord
from gpuyard.core.state import InvalidEvent, State
from gpuyard.core.transitions import current, story
from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptStarted,
    AttemptState,
    AttemptStopping,
    AttemptUnknown,
    CheckpointSeen,
    ConfigSet,
    DemandLearned,
    Earmark,
    EarmarkDropped,
    EarmarkSet,
    Event,
    GpusTaken,
    JobCancelled,
    JobContinued,
    JobHeld,
    JobReleased,
    JobState,
    JobSubmitted,
    JobSuspended,
    NodeAdded,
    NodeChanged,
    NodeCordoned,
    NodeDown,
    NodeUncordoned,
    NodeUp,
    Outcome,
    Requested,
    StopCause,
    Ticked,
    Verb,
)
from gpuyard.model.units import NO_LIMIT_MS

# Looking a member up on its enum costs more than the rest of a step.
_STARTING, _RUNNING, _DONE = AttemptState.STARTING, JobState.RUNNING, JobState.COMPLETED
_COMPLETED, _PREEMPTED, _NODE_FAIL = Outcome.COMPLETED, Outcome.PREEMPTED, Outcome.NODE_FAIL


RETRY_FIRST_MS = 10_000
RETRY_MAX_MS = 600_000
"""A job that failed and may be tried again waits so long at first, twice as long each time, at most so long."""


def apply(state: State, event: Event) -> None:
    """Fold one event into the state."""
    state.now_ms = at_ms = event.at_ms
    state.stirred += 1
    if at_ms >= state.tenants.due_ms:
        # Shares and budgets have moved: what the last pass found no longer holds, not even for quiet arrivals.
        state.tenants.pass_time(at_ms)
        state.stirred += 1
    _STEPS[type(event)](state, event)


# -- jobs ----------------------------------------------------------------------------------------------------------


def _job_submitted(state: State, event: JobSubmitted) -> None:
    job = event.job
    if job.id <= state.last_job_id:
        raise InvalidEvent(f"{event}: id {job.id} is not above {state.last_job_id}")
    state.last_job_id = job.id
    spec = job.spec
    intake = state.intake.get(id(spec))
    if intake is None or intake[0] is not spec:
        intake = state.take_in(spec)
    record = JobRecord(job, intake[1], intake[2], intake[3])
    state.jobs[job.id] = record
    if spec.after:
        dependencies.enter(state, record)
    if record.begin_ms > event.at_ms or record.pending or record.doomed:
        state.deferred[job.id] = record
    else:
        queue = state.queue
        queue.add(record)
        quiet = state.quiet
        if (
            quiet is not None
            and quiet.stirred + 1 == state.stirred
            and queue.behind(record, quiet.settled)
            and record.stream not in quiet.looked
            and (quiet.refuses(record, event.at_ms) or state.hopeless(record.shape))
            and not any([rule.applies(state, record, event.at_ms) for rule in quiet.policy.rules])
        ):
            # Others are before it, and it cannot start anyway: nothing new to decide.
            state.stirred -= 1


def _job_held(state: State, event: JobHeld) -> None:
    _hold(state, current(state, event))


def _hold(state: State, record: JobRecord) -> None:
    # What is kept for it would only stand idle, and it may not start there.
    _drop_earmark(state, record)
    if record.id not in state.deferred:
        state.queue.remove(record)
        state.deferred[record.id] = record
    record.held = True


def _job_released(state: State, event: JobReleased) -> None:
    record = current(state, event)
    record.held = False
    _requeue_if_due(state, record, event.at_ms)


def _requeue_if_due(state: State, record: JobRecord, at_ms: int) -> None:
    if (
        record.id in state.deferred
        and not (record.held or record.pending or record.doomed)
        and record.begin_ms <= at_ms
    ):
        del state.deferred[record.id]
        state.queue.add(record)


def _requested(state: State, event: Requested) -> None:
    record = state.jobs.get(event.job_id)
    if record is None:
        return
    waits, verb = record.phase is None, event.verb
    if verb is Verb.CANCEL and waits:
        _cancel(state, record)
    elif verb is Verb.HOLD and waits:
        _hold(state, record)
    elif verb is Verb.RELEASE and waits:
        record.held = False
        # Who releases a job does not want it to sit out a failure either.
        record.begin_ms = record.job.begin_ms
        _requeue_if_due(state, record, event.at_ms)
    elif not waits and verb in _WANTED_FROM and record.phase in _WANTED_FROM[verb]:
        # A cancellation stands, whatever else is asked for.
        record.wanted = record.wanted if record.wanted is Verb.CANCEL else verb


_WANTED_FROM = {
    Verb.CANCEL: frozenset(AttemptState),
    Verb.REQUEUE: frozenset(AttemptState) - {AttemptState.STOPPING},
    Verb.SUSPEND: frozenset({AttemptState.STARTING, AttemptState.RUNNING}),
    Verb.CONTINUE: frozenset({AttemptState.STARTING, AttemptState.RUNNING, AttemptState.SUSPENDED}),
}
"""In which state of the attempt a wish about it makes sense."""


def _job_cancelled(state: State, event: JobCancelled) -> None:
    _cancel(state, current(state, event))


def _cancel(state: State, record: JobRecord) -> None:
    _drop_earmark(state, record)
    if state.deferred.pop(record.id, None) is None:
        state.queue.remove(record)
    record.state = JobState.CANCELLED
    _gone(state, record, state.now_ms)


def _gone(state: State, record: JobRecord, at_ms: int) -> None:
    """A job has ended for good: those who waited for it are told."""
    del state.jobs[record.id]
    if record.doomed:
        del state.doomed[record.id]
    for waiting in dependencies.ended(state, record):
        _requeue_if_due(state, waiting, at_ms)


# -- attempts ------------------------------------------------------------------------------------------------------


def _attempt_started(state: State, event: AttemptStarted) -> None:
    at_ms, job_id, attempt, grants = event
    record = state.jobs.get(job_id)
    if record is None or record.phase is not None:
        record = current(state, event)
    if attempt != record.attempt + 1 or job_id in state.deferred:
        raise InvalidEvent(f"{event}: {story(record)}")
    earmark = record.earmark
    if earmark is not None:
        state.nodes.give(earmark.grants)
    if not state.hold(record, grants, at_ms):
        if earmark is not None:
            state.nodes.take(earmark.grants)
        raise InvalidEvent(f"{event}: its room is taken; {story(record)}")
    if earmark is not None:
        state.nodes.freed += 1
        record.earmark = None
        del state.earmarks[record.id]
    state.queue.remove(record)
    record.attempt = attempt
    record.phase = _STARTING
    record.state = _RUNNING
    record.checkpoint_ms = 0
    state.running[record.id] = record
    if state.dependents:
        for waiting in dependencies.started(state, job_id):
            _requeue_if_due(state, waiting, at_ms)


def _attempt_confirmed(state: State, event: AttemptConfirmed) -> None:
    current(state, event).phase = AttemptState.RUNNING


def _attempt_unknown(state: State, event: AttemptUnknown) -> None:
    current(state, event).phase = AttemptState.UNKNOWN


def _attempt_stopping(state: State, event: AttemptStopping) -> None:
    record = current(state, event)
    record.wanted = record.wanted if record.wanted is Verb.CANCEL else None
    record.phase = AttemptState.STOPPING
    state.leaving[record.id] = record
    record.cause = event.cause
    record.for_job = event.for_job
    state.promise_end(record, min(record.end_ms, event.at_ms + record.klass.grace_ms))


def _attempt_ended(state: State, event: AttemptEnded) -> None:
    record = state.jobs.get(event.job_id)
    if record is None or record.phase is None or record.attempt != event.attempt:
        record = current(state, event)
    state.release(record, event.at_ms)
    del state.running[record.id]
    if record.cause is not None:
        del state.leaving[record.id]
    record.phase = None
    outcome = event.outcome
    if outcome is _COMPLETED:
        record.state = _DONE
        _gone(state, record, event.at_ms)
        return
    if not _waits_again(record, outcome):
        # It was to be cancelled, and it is gone; that its node went first does not bring it back.
        gone = outcome is _PREEMPTED or (outcome is _NODE_FAIL and record.job.spec.requeue)
        record.state = JobState.CANCELLED if gone else JobState(outcome.value)
        _gone(state, record, event.at_ms)
        return
    if outcome is Outcome.FAILED:
        record.failures += 1
        record.begin_ms = event.at_ms + min(RETRY_MAX_MS, RETRY_FIRST_MS << min(record.failures - 1, 16))
    record.clear()
    if record.cause is not None and record.cause.preempts:
        record.preemptions += 1
    record.cause = None
    record.for_job = 0
    record.keep(event.saved_ms)
    record.state = JobState.PENDING
    record.wanted = None
    if record.held or record.begin_ms > event.at_ms:
        state.deferred[record.id] = record
    else:
        state.queue.add(record)


def _waits_again(record: JobRecord, outcome: Outcome) -> bool:
    """Whether a job whose attempt did not complete gets another one."""
    if record.cause is StopCause.CANCEL or record.wanted is Verb.CANCEL:
        return False
    if outcome is _PREEMPTED:
        return True
    if outcome is _NODE_FAIL:
        return record.job.spec.requeue
    return outcome is Outcome.FAILED and record.failures < record.job.spec.retries


def _checkpoint_seen(state: State, event: CheckpointSeen) -> None:
    current(state, event).checkpoint_ms = event.saved_at_ms


def _job_suspended(state: State, event: JobSuspended) -> None:
    record = current(state, event)
    record.suspended_ms = event.at_ms
    state.promise_end(record, record.end_ms + NO_LIMIT_MS)
    record.phase = AttemptState.SUSPENDED
    record.state = JobState.SUSPENDED
    record.wanted = record.wanted if record.wanted is not Verb.SUSPEND else None


def _job_continued(state: State, event: JobContinued) -> None:
    record = current(state, event)
    frozen_ms = event.at_ms - record.suspended_ms
    state.promise_end(record, record.end_ms - NO_LIMIT_MS + frozen_ms)
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
    _drop_earmark(state, current(state, event))


def _drop_earmark(state: State, record: JobRecord) -> None:
    if record.earmark is not None:
        state.nodes.give(record.earmark.grants)
        state.nodes.freed += 1
        record.earmark = None
        del state.earmarks[record.id]


def _ticked(state: State, event: Ticked) -> None:
    for record in [r for r in state.deferred.values() if r.begin_ms <= event.at_ms]:
        _requeue_if_due(state, record, event.at_ms)
    for record in [r for r in state.earmarks.values() if r.earmark and r.earmark.expires_ms <= event.at_ms]:
        _drop_earmark(state, record)


_STEPS: dict[type, Callable[[State, Any], None]] = {
    ConfigSet: fleet.config_set,
    NodeAdded: fleet.node_added,
    NodeChanged: fleet.node_changed,
    NodeDown: fleet.node_down,
    NodeUp: fleet.node_up,
    NodeCordoned: fleet.node_cordoned,
    NodeUncordoned: fleet.node_uncordoned,
    GpusTaken: fleet.gpus_taken,
    DemandLearned: fleet.demand_learned,
    JobSubmitted: _job_submitted,
    JobHeld: _job_held,
    JobReleased: _job_released,
    JobCancelled: _job_cancelled,
    JobSuspended: _job_suspended,
    JobContinued: _job_continued,
    Requested: _requested,
    AttemptStarted: _attempt_started,
    AttemptConfirmed: _attempt_confirmed,
    AttemptUnknown: _attempt_unknown,
    AttemptStopping: _attempt_stopping,
    AttemptEnded: _attempt_ended,
    CheckpointSeen: _checkpoint_seen,
    EarmarkSet: _earmark_set,
    EarmarkDropped: _earmark_dropped,
    Ticked: _ticked,
}
