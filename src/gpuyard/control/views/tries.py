"""The tries of a job, as they are shown: those after which it waited again, and the last one; and what they used.

A job that has run at most once has none: all there is to tell about it is in the job. Of what is only seen in Slurm
each try is a job of its own, and those before it are found in the history.
"""

from collections.abc import Callable

from gpuyard.control.clock import time_text
from gpuyard.control.reading.plain_views import View
from gpuyard.control.replica.labels import row_label
from gpuyard.engines.contract import Usage
from gpuyard.engines.slurm.words.states import NODE_FAILED, WAITS_AGAIN
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.model.serialise import to_plain
from gpuyard.model.units import HOUR_MS, MICRO_USD, MILLI, SECOND_MS
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


def taken(job: View, usage: Callable[[int], Usage]) -> View:
    """CPU time over all tries, and the most memory of any; None where a try is not known of."""
    ran = [each["attempt"] for each in job.get("tries") or () if each["started_ms"]]
    found = [usage(attempt) for attempt in (ran or range(1, job["attempts"] + 1))[-TRIES_MAX:]]
    cpu, memory, process = (
        [getattr(each, name) for each in found] for name in ("cpu_ms", "memory_mib", "process_mib")
    )
    image = found[-1].image if found else None
    return ({"image": to_plain(image)} if image is not None else {}) | {
        "cpu_s": None if None in cpu or not cpu else round(sum(cpu) / SECOND_MS, 2),
        "memory_mib": None if None in memory or not memory else max(memory),
        "process_mib": None if None in process or not process else max(process),
    }


def used_in_all(job: View, owed_micro_usd: int | None) -> View:
    """The same of an ended job as the history has it: its tries together."""
    return used({"gpus": job["gpus"], "started_ms": 1, "ended_ms": 1 + job["ran_ms"]}, 0, owed_micro_usd)


def used(job: View, now_ms: int, owed_micro_usd: int | None) -> View:
    """Over all tries of a job as it is shown, and what it owes by the books, if they know that."""
    gpu_milli, run_ms = round(job["gpus"] * MILLI), 0
    for each in job.get("tries") or [job]:
        if each["started_ms"]:
            run_ms += max(0, (each["ended_ms"] or now_ms) - each["started_ms"])
    if owed_micro_usd is None and not run_ms:
        owed_micro_usd = 0
    return {
        "run_s": run_ms // SECOND_MS,
        "gpu_hours": round(gpu_milli * run_ms / (MILLI * HOUR_MS), 4),
        "cost_usd": None if owed_micro_usd is None else round(owed_micro_usd / MICRO_USD, 4),
    }
