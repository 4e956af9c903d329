"""`apply(state, event)`: the only way to change the state.

Each kind of event has one function, and `transitions` says in which states it may come. Any other event is a bug in
the code that wrote it, and raises with what is known of the job.

What every job goes through comes first: `submit` (or `submit_tasks`), `start` and `end`, each with the fields of its
event. `apply` calls them to fold an event. The simulator, which keeps no log, calls them directly: making the event
would cost as much as folding it.
"""

from collections.abc import Callable, Iterator
from typing import Any, get_args

from gpuyard.core.fleet.nodes import TOUCHED_MAX
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state import dependencies
from gpuyard.core.state import fold_fleet as fleet
from gpuyard.core.state.fold_change import change_job
from gpuyard.core.state.state import Intake, InvalidEvent, State
from gpuyard.core.state.transitions import check_transition, record_text
from gpuyard.model import (
    AccessEvent,
    After,
    AttemptConfirmed,
    AttemptEnded,
    AttemptStarted,
    AttemptState,
    AttemptStopping,
    AttemptUnknown,
    BookEvent,
    BudgetReached,
    CheckpointSeen,
    ClockSet,
    ConfigSet,
    DemandLearned,
    Earmark,
    EarmarkDropped,
    EarmarkSet,
    EngineSeen,
    Event,
    GpusTaken,
    Grant,
    Job,
    JobCancelled,
    JobChanged,
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
    NodeMarked,
    NodeUncordoned,
    NodeUp,
    Outcome,
    Requested,
    StopCause,
    TasksSubmitted,
    Ticked,
    Verb,
)
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.model.units import NO_LIMIT_MS

# Looking a member up on its enum costs more than the rest of a step.
_STARTING, _RUNNING, _DONE = AttemptState.STARTING, JobState.RUNNING, JobState.COMPLETED
_COMPLETED, _PREEMPTED, _NODE_FAIL = Outcome.COMPLETED, Outcome.PREEMPTED, Outcome.NODE_FAIL


RETRY_FIRST_MS = 10_000
RETRY_MAX_MS = 600_000
"""A failed job that may be retried waits `RETRY_FIRST_MS` at first, then twice as long each time, up to the maximum."""


def close_periods(state: State, at_ms: int) -> None:
    """Time has closed a period or a window."""
    # Shares and budgets have changed, so the findings of the last pass no longer hold, not even for quiet arrivals.
    state.tenants.pass_time(at_ms)
    state.queue.take_turns()
    state.relax_levels()
    state.nodes.start_over()
    if state.moved is not None and len(state.moved) > TOUCHED_MAX:
        state.moved = None
    state.change_seq += 1


def submit(state: State, at_ms: int, job: Job, held: bool = False, intake: Intake | None = None) -> JobRecord:
    """`JobSubmitted`; `held`: it may not start until it is released, and never enters the queue before.

    `intake` is what is known of its spec, if the caller knows it.
    """
    state.now_ms = at_ms
    state.change_seq += 1
    if at_ms >= state.tenants.due_ms:
        close_periods(state, at_ms)
    job_id, spec = job[0], job[1]
    external = job_id >= FIRST_EXTERNAL_ID
    last_id = state.last_external_id if external else state.last_job_id
    if job_id <= last_id:
        raise InvalidEvent(f"{JobSubmitted(at_ms, job)}: id {job_id} is not above {last_id}")
    if external:
        state.last_external_id = job_id
    else:
        state.last_job_id = job_id
    if intake is None:
        intake = state.intake.get(id(spec))
        if intake is None or intake[0] is not spec:
            intake = state.take_in(spec)
    _spec, shape, klass, leaf, party, waits, count = intake
    state.jobs[job_id] = record = JobRecord(job, shape, klass, leaf, party, count)
    if state.walls is not None:
        state.wall_in(record)
    count.jobs += 1
    count.of_user.jobs += 1
    if spec.recipe_bytes:
        count.of_user.keep(spec, 1)
    if not external:
        arrived = state.arrived
        arrived[shape] = arrived.get(shape, 0) + 1
        state.arrivals += 1
    if state.namesakes:
        dependencies.note_submission(state, record)
    if waits:
        dependencies.enter(state, record)
    if job[5] > at_ms or (waits and (record.pending or record.doomed or record.begin_ms > at_ms)):
        state.defer(record)
        if held:
            record.held = True
        return record
    if held:
        state.deferred[job_id] = record
        record.held = True
        return record
    queue, idle_plan = state.queue, state.idle_plan
    queue.add(record)
    if (
        idle_plan is not None
        and idle_plan.change_seq + 1 == state.change_seq
        and queue.behind(record, idle_plan.settled)
        and record.stream not in idle_plan.looked
        and (idle_plan.refuses(record, at_ms) or state.hopeless(record.shape))
        and not any([applies(state, record, at_ms) for applies in idle_plan.applies])
    ):
        # Other jobs are ahead of it, and it cannot start anyway: nothing new to decide.
        state.change_seq -= 1
    return record


def submit_tasks(
    state: State,
    at_ms: int,
    job: Job,
    indices: tuple[int, ...],
    own: tuple[tuple[After, ...], ...],
    beside: tuple[After, ...],
    at_once: int,
    held: bool,
) -> None:
    """`TasksSubmitted`: the same as `submit` for each task."""
    alike: Intake | None = None
    tasks = TasksSubmitted(at_ms, job, indices, own, beside, at_once).jobs()
    plain = not (own or at_once or job.spec.after or state.namesakes or job.begin_ms > at_ms)
    if plain and (
        not beside or (not (held or job.begin_ms) and dependencies.all_wait(state, beside, len(indices)))
    ):
        _submit_alike(state, at_ms, tasks, held)
        return
    for task in tasks:
        spec = task.spec
        if alike is None:
            first = submit(state, at_ms, task, held)
            shape = state.shape_of(spec.ask)
            alike = (spec, shape, first.klass, first.leaf, first.party, bool(spec.after), first.count)
        elif spec is alike[0]:
            submit(state, at_ms, task, held, alike)
        else:
            # It differs from the first task only in what it waits for.
            _spec, shape, klass, leaf, party, _waits, count = alike
            submit(state, at_ms, task, held, (spec, shape, klass, leaf, party, bool(spec.after), count))


def _submit_alike(state: State, at_ms: int, tasks: Iterator[Job], held: bool) -> None:
    """Tasks that differ in nothing but their ids and the one task that each waits for, if they wait: a thousand of
    them in a part of the time.
    """
    change_seq = state.change_seq
    first = submit(state, at_ms, next(tasks), held)
    shape, klass, leaf, party, count = first.shape, first.klass, first.leaf, first.party, first.count
    records = [JobRecord(task, shape, klass, leaf, party, count) for task in tasks]
    if not records:
        return
    if state.walls is not None:
        for record in records:
            record.limit_ms = record.estimate_ms = first.limit_ms
    by_id = {record.id: record for record in records}
    state.jobs.update(by_id)
    more = len(records)
    count.jobs += more
    count.of_user.jobs += more
    if first.job.spec.recipe_bytes:
        count.of_user.keep(first.job.spec, more)
    if first.id < FIRST_EXTERNAL_ID:
        state.last_job_id = records[-1].id
        state.arrived[state.shape_of(first.job.spec.ask)] += more
        state.arrivals += more
    else:
        state.last_external_id = records[-1].id
    if first.id in state.deferred:
        state.deferred.update(by_id)
        if held:
            for record in records:
                record.held = True
        else:
            dependencies.enter_alike(state, records)
    else:
        state.queue.add_alike(first, records)
    if state.change_seq != change_seq:
        # Else nothing is to be decided about the first, and the others are behind it.
        state.change_seq += more


def hold(state: State, record: JobRecord) -> None:
    """Keep a waiting job from starting until it is released."""
    # An earmark would only keep GPUs idle: the job may not start.
    state.drop_earmark(record)
    if record.id not in state.deferred:
        state.queue.remove(record)
        state.deferred[record.id] = record
    record.held = True


def start(state: State, at_ms: int, job_id: int, attempt: int, grants: tuple[Grant, ...]) -> JobRecord:
    """`AttemptStarted`."""
    state.now_ms = at_ms
    state.change_seq += 1
    if at_ms >= state.tenants.due_ms:
        close_periods(state, at_ms)
    record = state.jobs.get(job_id)
    if record is None or record.phase is not None:
        record = check_transition(state, AttemptStarted(at_ms, job_id, attempt, grants))
    if attempt != record.attempt + 1 or job_id in state.deferred:
        raise InvalidEvent(f"{AttemptStarted(at_ms, job_id, attempt, grants)}: {record_text(record)}")
    earmark = record.earmark
    if earmark is not None:
        state.nodes.give(earmark.grants)
    if not state.hold(record, grants, at_ms):
        if earmark is not None:
            state.nodes.take(earmark.grants)
        event = AttemptStarted(at_ms, job_id, attempt, grants)
        raise InvalidEvent(f"{event}: its room is taken; {record_text(record)}")
    if earmark is not None:
        state.nodes.gain_room()
        record.earmark = None
        del state.earmarks[job_id]
    if state.nodes.slices_idle:
        state.nodes.use_slices(grants)
    state.queue.remove(record)
    if record.extras is not None:
        # A job that was moved to the top has had its turn.
        record.move(0, "")
    record.attempt = attempt
    record.phase = _STARTING
    count = record.count
    count.jobs -= 1
    count.of_user.jobs -= 1
    record.state = _RUNNING
    if attempt > 1:
        record.checkpoint_ms = 0
    state.running[job_id] = record
    if state.moved is not None:
        state.moved.append(job_id)
    if state.dependents:
        for waiting in dependencies.note_start(state, record):
            requeue_if_due(state, waiting, at_ms)
    return record


def end(
    state: State,
    at_ms: int,
    job_id: int,
    attempt: int,
    outcome: Outcome,
    saved_ms: int = 0,
    _exit_code: int = 0,
    _why: str = "",
    ended_ms: int = 0,
    for_good: bool = False,
) -> None:
    """`AttemptEnded`."""
    # What another scheduler tells of is charged as it was, however late it is told.
    until_ms = ended_ms if ended_ms and job_id >= FIRST_EXTERNAL_ID else at_ms
    record = state.jobs.get(job_id)
    if record is None or record.phase is None or record.attempt != attempt:
        record = check_transition(state, AttemptEnded(at_ms, job_id, attempt, outcome, saved_ms))
    if outcome is _COMPLETED:
        complete(state, at_ms, record, until_ms)
        return
    state.now_ms = at_ms
    state.change_seq += 1
    if at_ms >= state.tenants.due_ms:
        close_periods(state, at_ms)
    state.release(record, until_ms)
    if record.shape.profile:
        state.nodes.leave_slices(record.grants)
    del state.running[job_id]
    if state.moved is not None:
        state.moved.append(job_id)
    state.leaving.pop(job_id, None)
    record.phase = None
    if not _waits_again(record, outcome, for_good):
        # The job was to be cancelled and its attempt is over; a node failure just before that does not bring it back.
        cancelled = outcome is _PREEMPTED or (outcome is _NODE_FAIL and record.job.spec.requeue)
        record.state = JobState.CANCELLED if cancelled else JobState(outcome.value)
        finish_job(state, record, at_ms)
        return
    if outcome is Outcome.FAILED:
        record.failures += 1
        record.begin_ms = at_ms + min(RETRY_MAX_MS, RETRY_FIRST_MS << min(record.failures - 1, 16))
    record.ran_ms += max(0, (ended_ms or at_ms) - record.started_ms)
    record.clear()
    if record.cause is not None and record.cause.preempts:
        record.preemptions += 1
    record.cause = None
    record.for_job = 0
    record.keep(saved_ms)
    record.state = JobState.PENDING
    record.count.jobs += 1
    record.count.of_user.jobs += 1
    record.wanted = None
    if record.held or record.begin_ms > at_ms:
        state.defer(record)
    else:
        state.queue.add(record)


def complete(state: State, at_ms: int, record: JobRecord, until_ms: int = 0) -> None:
    """`AttemptEnded` for an attempt that is known to run and has completed, as nearly all do; it is charged up to
    `until_ms`, or to the event.
    """
    state.now_ms = at_ms
    state.change_seq += 1
    if at_ms >= state.tenants.due_ms:
        close_periods(state, at_ms)
    job_id = record.id
    state.release(record, until_ms or at_ms)
    if record.shape.profile:
        state.nodes.leave_slices(record.grants)
    del state.running[job_id]
    if state.moved is not None:
        state.moved.append(job_id)
    record.phase = None
    record.state = _DONE
    ends = state.ends
    if state.dependents or state.doomed or state.leaving or len(ends) >= 2 * dependencies.REMEMBERED_MAX:
        state.leaving.pop(job_id, None)
        finish_job(state, record, at_ms)
    else:
        del state.jobs[job_id]
        job = record.job
        if job[1].recipe_bytes:
            record.count.of_user.drop(job[1], at_ms, state.counts.bytes_a_day)
        ends[job_id] = _DONE
        if job[6]:
            state.ended_tasks[job_id] = job.label


def set_clock(state: State, at_ms: int, by_ms: int) -> None:
    """`ClockSet`: count all that runs up to the time that was left, and on from the one that is set.

    What another scheduler runs keeps its times: they are by that scheduler's clock.
    """
    left_ms = min(at_ms, max(state.now_ms, at_ms - by_ms))
    running = [record for record in state.running.values() if record.id < FIRST_EXTERNAL_ID]
    state.change_seq += 1
    state.skipped_ms += at_ms - left_ms
    _pass_time(state, left_ms)
    for record in running:
        state.leave_off(record, left_ms)
    _pass_time(state, at_ms)
    for record in running:
        state.go_on(record, at_ms, at_ms - left_ms)
    state.nodes.marks.skip(at_ms - left_ms)
    state.nodes.start_over()


def _pass_time(state: State, at_ms: int) -> None:
    state.now_ms = at_ms
    if at_ms >= state.tenants.due_ms:
        close_periods(state, at_ms)


def _waits_again(record: JobRecord, outcome: Outcome, for_good: bool) -> bool:
    """Whether a job gets another attempt after one that did not complete."""
    if record.cause is StopCause.CANCEL or record.wanted is Verb.CANCEL:
        return False
    if outcome is _PREEMPTED:
        return True
    if outcome is _NODE_FAIL:
        return record.job.spec.requeue
    return outcome is Outcome.FAILED and not for_good and record.failures < record.job.spec.retries


def finish_job(state: State, record: JobRecord, at_ms: int) -> None:
    """A job has ended for good: remove it, and requeue the jobs that waited for it."""
    del state.jobs[record.id]
    spec = record.job.spec
    if spec.recipe_bytes:
        record.count.of_user.drop(spec, at_ms, state.counts.bytes_a_day)
    if state.doomed:
        state.doomed.pop(record.id, None)
    for waiting in dependencies.note_end(state, record):
        requeue_if_due(state, waiting, at_ms)


def requeue_if_due(state: State, record: JobRecord, at_ms: int) -> None:
    """Put a deferred job back in the queue if nothing keeps it out."""
    if record.id not in state.deferred or not record.only_begins:
        return
    if record.begin_ms > at_ms:
        # From now on only time keeps it out.
        state.defer(record)
        return
    del state.deferred[record.id]
    state.queue.add(record)
    state.touch(record)


def apply(state: State, event: Event) -> None:
    """Fold one event into the state."""
    if isinstance(event, tuple) and (of_parts := _OF_PARTS.get(type(event))) is not None:
        of_parts(state, *event)
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
    hold(state, check_transition(state, event))


def _job_released(state: State, event: JobReleased) -> None:
    record = check_transition(state, event)
    record.held = False
    requeue_if_due(state, record, event.at_ms)


def _job_changed(state: State, event: JobChanged) -> None:
    for waiting in change_job(state, check_transition(state, event), event):
        requeue_if_due(state, waiting, event.at_ms)


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
    _cancel(state, check_transition(state, event))


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
    record = check_transition(state, event)
    if event.started_ms:
        state.backdate(record, event.started_ms)
    # A suspended attempt that was out of sight for a while is still suspended.
    record.phase = AttemptState.SUSPENDED if record.state is JobState.SUSPENDED else AttemptState.RUNNING


def _attempt_unknown(state: State, event: AttemptUnknown) -> None:
    check_transition(state, event).phase = AttemptState.UNKNOWN


def _attempt_stopping(state: State, event: AttemptStopping) -> None:
    record = check_transition(state, event)
    record.wanted = record.wanted if record.wanted is Verb.CANCEL else None
    record.phase = AttemptState.STOPPING
    state.leaving[record.id] = record
    record.cause = event.cause
    record.for_job = event.for_job
    state.expect_end(record, min(record.end_ms, event.at_ms + record.klass.grace_ms))


def _checkpoint_seen(state: State, event: CheckpointSeen) -> None:
    record = check_transition(state, event)
    record.checkpoint_ms = event.saved_at_ms
    # Stopping it now costs less: caches go by the nodes.
    state.nodes.touch(record.grants)


def _job_suspended(state: State, event: JobSuspended) -> None:
    record = check_transition(state, event)
    if record.state is not JobState.SUSPENDED:
        record.suspended_ms = event.at_ms
        state.expect_end(record, record.end_ms + NO_LIMIT_MS)
    record.phase = AttemptState.SUSPENDED
    record.state = JobState.SUSPENDED
    record.wanted = record.wanted if record.wanted is not Verb.SUSPEND else None


def _job_continued(state: State, event: JobContinued) -> None:
    record = check_transition(state, event)
    frozen_ms = event.at_ms - record.suspended_ms
    state.expect_end(record, record.end_ms - NO_LIMIT_MS + frozen_ms)
    record.suspended_ms = 0
    record.phase = AttemptState.RUNNING
    record.state = JobState.RUNNING
    record.wanted = record.wanted if record.wanted is not Verb.CONTINUE else None


# -- earmarks and time ---------------------------------------------------------------------------------------------


def _earmark_set(state: State, event: EarmarkSet) -> None:
    record = check_transition(state, event)
    if record.earmark is not None:
        raise InvalidEvent(f"{event}: it has an earmark; {record_text(record)}")
    record.earmark = Earmark(record.id, event.grants, event.expires_ms)
    state.earmarks[record.id] = record
    state.nodes.take(event.grants)


def _earmark_dropped(state: State, event: EarmarkDropped) -> None:
    state.drop_earmark(check_transition(state, event))


def _budget_reached(state: State, event: BudgetReached) -> None:
    row = state.tenants.budget_row.get(event.budget)
    spend = None if row is None else state.tenants.spend[row]
    # The settings may have changed since: then there is nothing to note.
    if spend is not None:
        spend.told = max(spend.told, event.percent)


def _ticked(state: State, event: Ticked) -> None:
    for record in [r for r in state.deferred.values() if r.begin_ms <= event.at_ms]:
        requeue_if_due(state, record, event.at_ms)
    for record in [r for r in state.earmarks.values() if r.earmark and r.earmark.expires_ms <= event.at_ms]:
        state.drop_earmark(record)


_OF_PARTS: dict[type, Callable[..., object]] = {
    JobSubmitted: submit,
    TasksSubmitted: submit_tasks,
    AttemptStarted: start,
    AttemptEnded: end,
    ClockSet: set_clock,
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
    NodeMarked: fleet.node_marked,
    GpusTaken: fleet.gpus_taken,
    LayoutPinned: fleet.layout_pinned,
    LayoutReleased: fleet.layout_released,
    LayoutMade: fleet.layout_made,
    DemandLearned: fleet.demand_learned,
    JobChanged: _job_changed,
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
    BudgetReached: _budget_reached,
    Ticked: _ticked,
    **dict.fromkeys(get_args(AccessEvent)),
    **dict.fromkeys(get_args(BookEvent)),
}
"""The function for each kind of event; None: the event belongs to another domain."""
