"""A job that ended, as a row of the history."""

from gpuyard.core.plain import to_plain
from gpuyard.core.records import JobRecord
from gpuyard.model import AttemptEnded, Event, Requested
from gpuyard.store import HistoryRow


def history_row(record: JobRecord, started_ms: int, event: Event) -> HistoryRow:
    """What is told of a job once it is gone: `event` is the one that ended it."""
    job, spec = record.job, record.job.spec
    exit_code, why, ended_ms = 0, record.doomed, event.at_ms
    if isinstance(event, AttemptEnded):
        exit_code, why, ended_ms = event.exit_code, event.why, event.ended_ms or event.at_ms
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
            "spec": to_plain(spec),
            "limit_ms": record.limit_ms,
            "deadline_ms": job.deadline_ms,
            "begin_ms": job.begin_ms,
            "grants": to_plain(record.grants),
        },
    )
