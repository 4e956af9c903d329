"""The step of `apply` for `JobChanged`: a live job asks for something else, or has other times, or another place.

A job that waits is taken out of the queue and of all that it waits for, gets its new spec, and comes back by the same
rules as a new job. Nothing else is decided here: what a change may be is judged before it is written. A job that holds
GPUs keeps them, with the class and the tenant that they are counted for.
"""

from dataclasses import replace

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.quota.usage import UsageDelta
from gpuyard.core.state import dependencies
from gpuyard.core.state.state import InvalidEvent, State
from gpuyard.core.state.transitions import record_text
from gpuyard.model import AttemptState, Job, JobChanged


def change_job(state: State, record: JobRecord, event: JobChanged) -> list[JobRecord]:
    """Put a job's new spec in force; return the jobs that have nothing left to wait for, now that it has its name."""
    before, job = record.job, event.job
    if _identity(before) != _identity(job):
        raise InvalidEvent(f"{event}: it is another job; {record_text(record)}")
    if record.phase is None:
        return _change_waiting(state, record, event)
    if _claim(before) != _claim(job):
        raise InvalidEvent(f"{event}: it holds what it asked for; {record_text(record)}")
    state.leave_off(record, event.at_ms)
    record.job = job
    if state.counts_for_tenant(job.spec):
        record.party = state.party_of(record.leaf, job.spec)
    used = record.usage
    record.usage = UsageDelta(record.party, used.model, used.milli, used.rate, used.measure)
    estimate_ms = record.estimate_ms
    _set_limit(state, record, before)
    if record.phase is not AttemptState.STOPPING:
        state.expect_end(record, record.end_ms + record.estimate_ms - estimate_ms)
    record.stand(event.joined_ms, event.nice_ms)
    state.go_on(record, event.at_ms, 0)
    return dependencies.rename(state, record, before.spec.name) if _renamed(before, job) else []


def _change_waiting(state: State, record: JobRecord, event: JobChanged) -> list[JobRecord]:
    before, job = record.job, event.job
    if record.earmark is not None and _kept_for(before) != _kept_for(job):
        raise InvalidEvent(f"{event}: room is kept for what it asked for before; {record_text(record)}")
    if state.deferred.pop(record.id, None) is None:
        state.queue.remove(record)
    record.count.jobs -= 1
    record.count.of_user.jobs -= 1
    waits_anew = _waits(before) != _waits(job)
    if waits_anew:
        dependencies.leave(state, record)
        record.begin_ms = job.begin_ms
    record.job = job
    _spec, record.shape, record.klass, record.leaf, record.party, waits, record.count = state.take_in(
        job.spec
    )
    state.relax_level(record)
    record.count.jobs += 1
    record.count.of_user.jobs += 1
    _set_limit(state, record, before)
    if event.joined_ms > record.joined_ms:
        # At the end of its line, it is no longer at the top of all.
        record.move(0, "")
    record.stand(event.joined_ms, event.nice_ms)
    ready = dependencies.rename(state, record, before.spec.name) if _renamed(before, job) else []
    if waits_anew and waits:
        dependencies.enter(state, record)
    if not record.only_begins or record.begin_ms > event.at_ms:
        state.defer(record)
    else:
        state.queue.add(record)
    return ready


def _set_limit(state: State, record: JobRecord, before: Job) -> None:
    """A job keeps its limit, whatever became of its class since, until it is given another limit or class, or other
    pools give it another one. Which pools are open to it goes by its limit."""
    job, walled = record.job, state.walls is not None
    moved = walled and not job.limit_ms and _claim(job) != _claim(before)
    if moved or job.limit_ms != before.limit_ms or job.spec.klass != before.spec.klass:
        record.limit_ms = job.limit_ms or state.limit_for(job.spec, 0)
    if walled:
        record.shape = state.shape_for(replace(job.spec, ask=record.shape.ask), record.limit_ms)
    record.keep(record.saved_ms)


def _identity(job: Job) -> tuple[object, ...]:
    spec = job.spec
    return (
        job.id,
        job.submitted_ms,
        job.array_id,
        job.array_index,
        spec.user,
        spec.recipe,
        spec.recipe_bytes,
        spec.origin,
    )


def _claim(job: Job) -> tuple[object, ...]:
    """What its GPUs are given for."""
    return job.spec.ask, job.spec.tenant, job.spec.klass


def _kept_for(job: Job) -> tuple[object, ...]:
    """What room is kept for, and for whom."""
    return *_claim(job), job.spec.labels, job.limit_ms


def _waits(job: Job) -> tuple[object, ...]:
    """What it waits for besides room; a name makes other jobs wait."""
    spec = job.spec
    return job.begin_ms, spec.after, spec.after_one, spec.name if spec.after else ""


def _renamed(before: Job, job: Job) -> bool:
    return before.spec.name != job.spec.name
