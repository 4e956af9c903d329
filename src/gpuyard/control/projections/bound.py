"""The bound projections: what an event leaves in a table in its own transaction, to be kept for ever.

A job that ended leaves a row of the history; a try that did not end its job, a row of the tries. Whether there is a row
shows when the event is folded, and what is in it often only before: so a projection looks twice. A version of the
configuration has a text that no event tells: its row is handed to the draft beside the event (`Draft.keep`).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from gpuyard.core import State
from gpuyard.core.fleet.bits import positions
from gpuyard.core.jobs.records import JobRecord
from gpuyard.model import (
    AttemptEnded,
    Event,
    JobCancelled,
    JobSpec,
    JobState,
    Outcome,
    Requested,
    StopCause,
)
from gpuyard.model.serialise import Plain, to_plain
from gpuyard.model.units import SECOND_MS
from gpuyard.quantities import span_words
from gpuyard.store import HISTORY_ROWS, TRY_ROWS, BoundTable, HistoryRow, TryRow
from gpuyard.wire.replies.jobs import REQUEUED

_STOPPED = {
    StopCause.RECLAIM: "preempted for {}, whose tenant is due what this one borrowed",
    StopCause.CLASS: "preempted for {}, which is of a higher class",
    StopCause.SHORTER: "preempted for {}, which is much shorter",
    StopCause.REQUEUE: REQUEUED,
    StopCause.TAINT: "stopped for a taint of its node, which lets it wait again",
}
_NOT_AGAIN = "it was not tried again, as each attempt would fail alike"


class Bound(NamedTuple):
    """A projection into one table."""

    table: BoundTable[Any]
    kinds: tuple[type, ...]
    """Only events of these kinds make rows."""
    before: Callable[[State, Any], Any]
    """Called with the event before it is folded; None: it will make no row."""
    after: Callable[[State, Any, Any], Any]
    """Called once it is folded, with what `before` gave: the row, or None."""


def history_row(record: JobRecord, started_ms: int, event: Event) -> HistoryRow:
    """The history row of a job that `event` ended."""
    job, spec = record.job, record.job.spec
    exit_code, why, ended_ms = 0, record.doomed, event.at_ms
    if isinstance(event, AttemptEnded):
        exit_code, why, ended_ms = event.exit_code, event.why, event.ended_ms or event.at_ms
        if event.for_good and record.failures < spec.retries:
            why = f"{why}; {_NOT_AGAIN}"
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
    """The user that cancelled a running job, and how long before it ended; empty: not known."""
    by, at_ms = record.wanted_by
    if not by:
        return ""
    late = f" ({span_words(ended_ms - at_ms)} before it ended)" if ended_ms - at_ms >= SECOND_MS else ""
    return f"cancelled by {by}{late}"


def try_row(state: State, record: JobRecord, event: AttemptEnded) -> TryRow:
    """The row of a try that is about to end. It is made before the event is folded: the fold forgets the try."""
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
        numbers=tuple([grant.node for grant in record.grants]),
    )


def _why(state: State, record: JobRecord, event: AttemptEnded) -> str:
    """In the engine's words; of a preempted job also for which one, which no engine knows."""
    if event.outcome is not Outcome.PREEMPTED or record.cause is None:
        return event.why
    other = state.jobs.get(record.for_job)
    label = other.job.label if other is not None else record.for_job
    told = _STOPPED.get(record.cause, "").format(f"job {label}" if label else "another job")
    return "; ".join([text for text in (told, event.why) if text])


def _about(state: State, event: AttemptEnded | JobCancelled | Requested) -> tuple[JobRecord, int] | None:
    """The job that an event may end, and when its last attempt started."""
    record = state.jobs.get(event.job_id)
    return (record, record.started_ms) if record is not None else None


def _ended(state: State, event: Event, seen: tuple[JobRecord, int]) -> HistoryRow | None:
    record, started_ms = seen
    return history_row(record, started_ms, event) if record.id not in state.jobs else None


def _try(state: State, event: AttemptEnded) -> TryRow | None:
    record = state.jobs.get(event.job_id)
    return try_row(state, record, event) if record and event.outcome is not Outcome.COMPLETED else None


def _tried(state: State, event: AttemptEnded, row: TryRow) -> TryRow | None:
    # The job's row of the history has the last try.
    return row if event.job_id in state.jobs else None


BOUND = (
    Bound(HISTORY_ROWS, (AttemptEnded, JobCancelled, Requested), _about, _ended),
    Bound(TRY_ROWS, (AttemptEnded,), _try, _tried),
)
BY_KIND: dict[type, tuple[Bound, ...]] = {
    kind: tuple([each for each in BOUND if kind in each.kinds])
    for kind in {kind: None for each in BOUND for kind in each.kinds}
}
"""Most events make no rows, and are not held up."""
