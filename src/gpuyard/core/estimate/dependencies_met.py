"""When all dependencies of a job are met, if running jobs end when expected.

Dependencies point only to earlier jobs. So the jobs that matter are visited in the order of their ids, and each finds
the times of its own dependencies already known.
"""

from collections.abc import Callable
from typing import NamedTuple

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import count_text
from gpuyard.core.state.dependencies import find_awaited
from gpuyard.core.state.state import State
from gpuyard.model import After, AfterKind, AttemptState, JobState
from gpuyard.model.units import ENDLESS_MS

OTHERS_MAX = 200
"""How many jobs that are waited for, directly or through others, are taken into account."""


class Times(NamedTuple):
    """The latest start and end of a job."""

    start_ms: int
    end_ms: int


class DependenciesMet(NamedTuple):
    """When the last dependency is met; None: unknown."""

    at_ms: int | None
    how: str


Book = Callable[[JobRecord, int], Times | None]
"""Book a job, not before that time; None: there is no time for it."""


def stuck_reason(state: State, record: JobRecord) -> str:
    """Why a job with dependencies never starts by itself: it is doomed, or waits for a held job; else empty."""
    if record.doomed:
        return f"it can never start: {record.doomed}"
    for other in _others(state, record) or []:
        one_will_do = record.job.spec.after_one and len(record.pending) > 1
        if other.held and other.state is JobState.PENDING and not one_will_do:
            return f"it waits for job {other.job.label}, which is on hold, and nobody has said for how long"
    return ""


def find_ready(
    state: State, now_ms: int, record: JobRecord, booked: dict[int, Times], book: Book
) -> DependenciesMet:
    """When the job's dependencies are met. `booked` has the jobs in the queue, and grows."""
    others = _others(state, record)
    if others is None:
        return DependenciesMet(
            None, f"it waits for more than {count_text(OTHERS_MAX, 'job')}, one after the other"
        )
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
    """Its dependencies and theirs, the first submitted first; None: too many."""
    found: dict[int, JobRecord] = {}
    open_ends = [record]
    while open_ends:
        waiting = open_ends.pop()
        for after in waiting.pending:
            for other in find_awaited(state, waiting, after):
                if other.id not in found:
                    found[other.id] = other
                    open_ends.append(other)
                    if len(found) > OTHERS_MAX:
                        return None
    return [found[job_id] for job_id in sorted(found)]


def _ready(state: State, now_ms: int, record: JobRecord, booked: dict[int, Times]) -> DependenciesMet:
    known: list[tuple[int, int, AfterKind]] = []
    unknown = ""
    for after in record.pending:
        last = (now_ms, 0, after.kind)
        for other in find_awaited(state, record, after):
            at_ms, why = _met(other, after, booked)
            if at_ms is None or at_ms - now_ms >= ENDLESS_MS:
                unknown = unknown or why
                break
            last = max(last, (at_ms, other.id, after.kind), key=lambda found: found[:2])
        else:
            known.append(last)
    one_will_do = record.job.spec.after_one
    if unknown and not (one_will_do and known):
        return DependenciesMet(None, f"it waits for {unknown}")
    if not known:
        return DependenciesMet(now_ms, "")
    at_ms, job_id, kind = (min if one_will_do else max)(known, key=lambda found: found[:2])
    if not job_id:
        return DependenciesMet(now_ms, "")
    verb = "has started" if kind is AfterKind.STARTED else "has ended as promised"
    return DependenciesMet(
        max(at_ms, now_ms), f"when job {state.jobs[job_id].job.label}, which it waits for, {verb}"
    )


def _met(other: JobRecord, after: After, booked: dict[int, Times]) -> tuple[int | None, str]:
    """When a dependency on a job is met; if unknown, what to say about that job."""
    name = f"job {other.job.label}"
    times = booked.get(other.id)
    if times is None:
        return None, f"{name}, {_unforeseen(other)}"
    if after.kind is AfterKind.STARTED:
        return times.start_ms + after.delay_ms, f"{name}, and when that starts cannot be told"
    no_limit = other.estimate_ms >= ENDLESS_MS
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
