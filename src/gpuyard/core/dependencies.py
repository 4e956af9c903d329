"""Jobs that wait for other jobs.

A job with dependencies is set aside until they are met. One that can never be met dooms it: it stays set aside, with
the reason, until someone cancels it (the control loop does). How jobs ended is remembered for the last few thousand,
because a job may be submitted just when the one it waits for ends.
"""

from gpuyard.core.records import JobRecord
from gpuyard.core.state import State
from gpuyard.model import After, AfterKind, JobState

REMEMBERED_MAX = 10_000
"""Ends that are remembered at least: those of the jobs with the highest ids."""

_MET_BY_START = frozenset({AfterKind.STARTED})


def enter(state: State, record: JobRecord) -> None:
    """A job has come in that waits for others."""
    spec = record.job.spec
    pending, done, broken = [], 0, ""
    for after in spec.after:
        answer = _answer(state, after)
        if answer and after.delay_ms and after.job_id in state.jobs:
            record.begin_ms = max(record.begin_ms, state.jobs[after.job_id].started_ms + after.delay_ms)
        if answer is None:
            pending.append(after)
        elif answer:
            done += 1
        else:
            broken = broken or _broken(after, state.ends.get(after.job_id))
    if spec.after_one and done:
        pending, broken = [], ""
    record.pending = tuple(pending)
    if broken and not (spec.after_one and pending):
        doom(state, record, broken)
    index(state, record)


def index(state: State, record: JobRecord) -> None:
    """Let those it waits for know of it."""
    for after in record.pending:
        state.dependents.setdefault(after.job_id, set()).add(record.id)


def doom(state: State, record: JobRecord, why: str) -> None:
    """It can never start."""
    record.doomed = why
    state.doomed[record.id] = record


def _answer(state: State, after: After) -> bool | None:
    """Whether a dependency is met; None: not yet known."""
    other = state.jobs.get(after.job_id)
    if other is not None:
        return True if after.kind in _MET_BY_START and other.attempt > 0 else None
    ended = state.ends.get(after.job_id)
    if ended is None:
        # Whoever took the job in has looked it up: it ended too long ago to be remembered, and as was wanted.
        return True
    return met(after.kind, ended)


def met(kind: AfterKind, ended: JobState) -> bool:
    """Whether a job that ended so has done what was wanted of it."""
    if kind is AfterKind.COMPLETED:
        return ended is JobState.COMPLETED
    if kind is AfterKind.FAILED:
        return ended is not JobState.COMPLETED
    return True


def _broken(after: After, ended: JobState | None) -> str:
    how = ended.value if ended is not None else "gone"
    wanted = "complete" if after.kind is AfterKind.COMPLETED else "fail"
    return f"job {after.job_id} is {how} and was to {wanted}"


def started(state: State, job_id: int) -> list[JobRecord]:
    """A job has started; who has nothing left to wait for."""
    return _tell(state, job_id, None)


def ended(state: State, record: JobRecord) -> list[JobRecord]:
    """A job has ended; who has nothing left to wait for."""
    ends = state.ends
    ends[record.id] = record.state
    if len(ends) > 2 * REMEMBERED_MAX:
        for job_id in sorted(ends)[:REMEMBERED_MAX]:
            del ends[job_id]
    return _tell(state, record.id, record.state) if state.dependents else []


def _tell(state: State, job_id: int, end: JobState | None) -> list[JobRecord]:
    ready = []
    for waiting_id in sorted(state.dependents.get(job_id, ())):
        record = state.jobs.get(waiting_id)
        if record is None:
            continue
        kept, done, broken = [], False, ""
        for after in record.pending:
            if after.job_id != job_id or (end is None and after.kind not in _MET_BY_START):
                kept.append(after)
            elif end is None or met(after.kind, end):
                done = True
                if end is None and after.delay_ms:
                    record.begin_ms = max(record.begin_ms, state.now_ms + after.delay_ms)
            else:
                broken = broken or _broken(after, end)
        one = record.job.spec.after_one
        record.pending = () if one and done else tuple(kept)
        if broken and not (one and (done or kept)):
            doom(state, record, broken)
        elif not record.pending and not record.doomed:
            ready.append(record)
    if end is not None:
        state.dependents.pop(job_id, None)
    return ready
