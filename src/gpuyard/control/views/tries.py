"""The tries of a job, as they are shown: those after which it waited again, and the last one.

A job that has run at most once has none: all there is to tell about it is in the job. Of what is only seen in Slurm
each try is a job of its own, and those before it are found in the history.
"""

from collections.abc import Callable

from gpuyard.control.moments import time_text
from gpuyard.control.reading.plain_views import View
from gpuyard.control.replica.labels import row_label
from gpuyard.engines.slurm.words.states import NODE_FAILED, WAITS_AGAIN
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.store import HistoryRow, Store, TryRow
from gpuyard.store.tables.tries import TRIES_MAX


def tries_of(store: Store, job: View, shown: Callable[[HistoryRow], View]) -> list[View]:
    """Of a job as it is shown, live or ended; oldest first. The tries are asked for only if it has run before."""
    if job["id"] >= FIRST_EXTERNAL_ID:
        return _seen_elsewhere(store, job, shown)
    runs = job["started_ms"] is not None
    before = job["attempts"] - runs
    if before < 1:
        return []
    # None after these, though there may be by now: the list is of the job as it is shown.
    found = [_view(row) for row in store.tries(job["id"], before)]
    return [*found, _last(job)] if runs else found


def last_try(store: Store, job_id: int, attempt: int) -> View | None:
    """The try with this number, if it is known."""
    rows = store.tries(job_id, attempt, 1)
    return _view(rows[0]) if rows and rows[0].attempt == attempt else None


def _seen_elsewhere(store: Store, job: View, shown: Callable[[HistoryRow], View]) -> list[View]:
    """Slurm gives an id again after a long time: what did not wait again before this one was another job."""
    rows = [
        row
        for row in store.array_history(job["array_id"], job["array_index"] - 1, TRIES_MAX)
        if row_label(row) == job["label"] and row.started_ms and row.submitted_ms < job["submitted_ms"]
    ]
    earlier: list[View] = []
    for row in sorted(rows, key=lambda row: (row.submitted_ms, row.id), reverse=True):
        if row.user != job["user"] or not row.why.endswith((WAITS_AGAIN, NODE_FAILED)):
            break
        earlier.insert(0, shown(row))
    if not earlier:
        return []
    tries = [*earlier, job] if job["started_ms"] else earlier
    return [_last(each) | {"attempt": number} for number, each in enumerate(tries, start=1)]


def _view(row: TryRow) -> View:
    return {
        "attempt": row.attempt,
        **_times(row.started_ms, row.ended_ms),
        "nodes": list(row.nodes),
        "gpu_indices": [list(gpus) for gpus in row.gpu_indices],
        "outcome": row.outcome,
        "exit_code": row.exit_code,
        "why": row.why,
    }


def _last(job: View) -> View:
    """The try that runs, or the one that ended the job."""
    ended = job["ended_ms"] is not None
    return {
        "attempt": job["attempts"],
        **_times(job["started_ms"], job["ended_ms"] or 0),
        "nodes": job["nodes"],
        "gpu_indices": job["gpu_indices"],
        "outcome": job["state"] if ended else None,
        "exit_code": job["exit_code"],
        "why": job["reason"] if ended else "",
    }


def _times(started_ms: int, ended_ms: int) -> View:
    return {
        "started": time_text(started_ms),
        "started_ms": started_ms,
        "ended": time_text(ended_ms),
        "ended_ms": ended_ms or None,
    }
