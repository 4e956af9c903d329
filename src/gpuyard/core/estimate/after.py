"""From when on a job has nothing left to wait for in other jobs, if what runs ends when promised.

Dependencies point backwards only, to jobs that were there before. So those that matter are walked through in the order
of their ids, and each finds the times of those it waits for itself.
"""

from collections.abc import Callable
from typing import NamedTuple

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import count_text
from gpuyard.core.state.dependencies import waited
from gpuyard.core.state.state import State
from gpuyard.model import After, AfterKind, AttemptState, JobState
from gpuyard.model.units import NO_LIMIT_MS

OTHERS_MAX = 200
"""So many jobs that are waited for, directly or through others, are taken into account."""


class Times(NamedTuple):
    """When a job starts and ends at the latest."""

    start_ms: int
    end_ms: int


class Ready(NamedTuple):
    """When the last of the jobs that are waited for has done what is wanted of it; None: that cannot be told."""

    at_ms: int | None
    how: str


Book = Callable[[JobRecord, int], Times | None]
"""Book a job in, not before that time; None: it finds none."""


def stuck(state: State, record: JobRecord) -> str:
    """Why a job that waits for others never starts by itself: one of them is on hold; empty: nothing is known."""
    if record.doomed:
        return f"it can never start: {record.doomed}"
    for other in _others(state, record) or []:
        one_will_do = record.job.spec.after_one and len(record.pending) > 1
        if other.held and other.state is JobState.PENDING and not one_will_do:
            return f"it waits for job {other.job.label}, which is on hold, and nobody has said for how long"
    return ""


def ready(state: State, now_ms: int, record: JobRecord, booked: dict[int, Times], book: Book) -> Ready:
    """From when on the job could start, as far as other jobs are concerned. `booked` is those in line, and grows."""
    others = _others(state, record)
    if others is None:
        return Ready(None, f"it waits for more than {count_text(OTHERS_MAX, 'job')}, one after the other")
    for other in others:
        if other.id in booked:
            continue
        if other.state is not JobState.PENDING:
            if other.phase is not AttemptState.SUSPENDED:
                booked[other.id] = Times(other.started_ms, max(other.end_ms, now_ms))
            continue
        if other.held or other.doomed or other.id not in state.deferred:
            continue
        own = _ready(state, now_ms, other, booked)
        if own.at_ms is not None:
            found = book(other, max(own.at_ms, other.begin_ms))
            if found is not None:
                booked[other.id] = found
    return _ready(state, now_ms, record, booked)


def _others(state: State, record: JobRecord) -> list[JobRecord] | None:
    """Those it waits for, and those they wait for, the first submitted first; None: too many."""
    found: dict[int, JobRecord] = {}
    open_ends = [record]
    while open_ends:
        waiting = open_ends.pop()
        for after in waiting.pending:
            for other in waited(state, waiting, after):
                if other.id not in found:
                    found[other.id] = other
                    open_ends.append(other)
                    if len(found) > OTHERS_MAX:
                        return None
    return [found[job_id] for job_id in sorted(found)]


def _ready(state: State, now_ms: int, record: JobRecord, booked: dict[int, Times]) -> Ready:
    known: list[tuple[int, int, AfterKind]] = []
    unknown = ""
    for after in record.pending:
        last = (now_ms, 0, after.kind)
        for other in waited(state, record, after):
            at_ms, why = _met(other, after, booked)
            if at_ms is None or at_ms - now_ms >= NO_LIMIT_MS // 2:
                unknown = unknown or why
                break
            last = max(last, (at_ms, other.id, after.kind), key=lambda found: found[:2])
        else:
            known.append(last)
    one_will_do = record.job.spec.after_one
    if unknown and not (one_will_do and known):
        return Ready(None, f"it waits for {unknown}")
    if not known:
        return Ready(now_ms, "")
    at_ms, job_id, kind = (min if one_will_do else max)(known, key=lambda found: found[:2])
    if not job_id:
        return Ready(now_ms, "")
    verb = "has started" if kind is AfterKind.STARTED else "has ended as promised"
    return Ready(max(at_ms, now_ms), f"when job {state.jobs[job_id].job.label}, which it waits for, {verb}")


def _met(other: JobRecord, after: After, booked: dict[int, Times]) -> tuple[int | None, str]:
    """When a dependency on a job is met; else what to say of that job."""
    name = f"job {other.job.label}"
    times = booked.get(other.id)
    if times is None:
        return None, f"{name}, {_unforeseen(other)}"
    if after.kind is AfterKind.STARTED:
        return times.start_ms + after.delay_ms, f"{name}, and when that starts cannot be told"
    no_limit = other.estimate_ms >= NO_LIMIT_MS // 2
    return (
        times.end_ms,
        f"{name}, {'which has no time limit' if no_limit else 'and when that starts cannot be told'}",
    )


def _unforeseen(other: JobRecord) -> str:
    if other.phase is AttemptState.SUSPENDED:
        return "which is suspended, and nobody has said for how long"
    if other.held:
        return "which is on hold, and nobody has said for how long"
    return "and when that starts cannot be told"
