"""A job that ended, as a row of the history; a try that did not end its job, as a row of the tries."""

from functools import lru_cache

from gpuyard.core import State
from gpuyard.core.bits import positions
from gpuyard.core.plain import Plain, to_plain
from gpuyard.core.records import JobRecord
from gpuyard.core.words import span
from gpuyard.model import AttemptEnded, Event, JobSpec, JobState, Outcome, Requested, StopCause
from gpuyard.model.units import SECOND_MS
from gpuyard.store import HistoryRow, TryRow

_STOPPED = {
    StopCause.RECLAIM: "preempted for {}, whose tenant is due what this one borrowed",
    StopCause.CLASS: "preempted for {}, which is of a higher class",
    StopCause.SHORTER: "preempted for {}, which is much shorter",
    StopCause.REQUEUE: "requeued on request",
}


def history_row(record: JobRecord, started_ms: int, event: Event) -> HistoryRow:
    """What is told of a job once it is gone: `event` is the one that ended it."""
    job, spec = record.job, record.job.spec
    exit_code, why, ended_ms = 0, record.doomed, event.at_ms
    if isinstance(event, AttemptEnded):
        exit_code, why, ended_ms = event.exit_code, event.why, event.ended_ms or event.at_ms
        if record.state is JobState.CANCELLED:
            why = "; ".join([text for text in (_cancelled(record, ended_ms), why) if text])
    elif isinstance(event, Requested) and event.by:
        why = f"cancelled by {event.by}"
    return HistoryRow(
        id=job.id,
        name=spec.name,
        tenant=spec.tenant,
        user=spec.user,
        klass=record.klass.name,
        state=record.state.value,
        gpus_milli=record.shape.gpu_milli,
        submitted_ms=job.submitted_ms,
        started_ms=started_ms,
        ended_ms=ended_ms,
        array_id=job.array_id,
        array_index=job.array_index,
        attempts=record.attempt,
        preemptions=record.preemptions,
        exit_code=exit_code,
        why=why,
        detail={
            "spec": _plain(spec),
            "limit_ms": record.limit_ms,
            "deadline_ms": job.deadline_ms,
            "begin_ms": job.begin_ms,
            "ran_ms": record.ran_ms,
            "grants": to_plain(record.grants),
        },
    )


@lru_cache(maxsize=64)
def _plain(spec: JobSpec) -> Plain:
    """All tasks of an array have the same one, and they often end together."""
    return to_plain(spec)


def _cancelled(record: JobRecord, ended_ms: int) -> str:
    """Who cancelled a job that ran, and how long before it ended; empty: that is not known."""
    by, at_ms = record.wanted_by
    if not by:
        return ""
    late = f" ({span(ended_ms - at_ms)} before it ended)" if ended_ms - at_ms >= SECOND_MS else ""
    return f"cancelled by {by}{late}"


def try_row(state: State, record: JobRecord, event: AttemptEnded) -> TryRow:
    """What is told of a try that is about to end: made before the event is folded, for then its job forgets it."""
    nodes = state.nodes.node
    return TryRow(
        job_id=record.id,
        attempt=event.attempt,
        started_ms=record.started_ms,
        ended_ms=event.ended_ms or event.at_ms,
        outcome=event.outcome.value,
        exit_code=event.exit_code,
        why=_why(state, record, event),
        nodes=tuple([nodes[grant.node].name for grant in record.grants]),
        gpu_indices=tuple([positions[grant.gpus] for grant in record.grants]),
    )


def _why(state: State, record: JobRecord, event: AttemptEnded) -> str:
    """In the engine's words; of a preempted job also for which one, which no engine knows."""
    if event.outcome is not Outcome.PREEMPTED or record.cause is None:
        return event.why
    other = state.jobs.get(record.for_job)
    label = other.job.label if other is not None else record.for_job
    told = _STOPPED.get(record.cause, "").format(f"job {label}" if label else "another job")
    return "; ".join([text for text in (told, event.why) if text])
