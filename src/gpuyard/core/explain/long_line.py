"""A queue that is too long for trials, cut to the part that matters for one job.

What keeps a job waiting is at the front of the queue and right before the job. A hundred thousand jobs in between with
the same asks add nothing new, and each trial would have to move them all.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from gpuyard.core.jobs.queue import WaitQueue, count_ahead, find_before_in_stream, walk_in_order
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state import dependencies
from gpuyard.core.state.state import State

LOOKED_AT_MAX = 2000
"""How many jobs that do not run are examined; if there are more, some are left out, and the answer says how many."""
_HEADS = 4
"""How many jobs are taken from the front of each stream."""


class LeftOutJobs(NamedTuple):
    """What was left out."""

    left_out: int = 0
    """Queued or deferred jobs that the state no longer has."""
    ahead: int = 0
    """How many of them are ahead of the job in the queue."""
    held: tuple[dict[int, JobRecord], WaitQueue, dict[int, JobRecord]] | None = None
    """Keeps them alive: freeing them takes as long as examining each."""


def is_long(state: State, most: int = LOOKED_AT_MAX) -> bool:
    """Whether there are more jobs than are examined."""
    return len(state.jobs) - len(state.running) > most


def shorten(state: State, record: JobRecord, most: int = LOOKED_AT_MAX) -> LeftOutJobs:
    """Keep only the part of a long queue that is examined for one job. The state is the caller's own, and is spoilt."""
    if not is_long(state, most):
        return LeftOutJobs()
    before, running = state.jobs, state.running
    kept = {**running, **state.earmarks, record.id: record}
    for after in record.pending:
        kept |= {other.id: other for other in dependencies.find_awaited(state, record, after)}
    for other in _of_interest(state.queue, record, most):
        if len(kept) - len(running) >= most:
            break
        kept[other.id] = other
    held = (before, state.queue, state.deferred)
    in_line = record.phase is None and record.id not in state.deferred
    before_it = count_ahead(state.queue, record) if in_line else state.queue.count
    state.jobs = {job_id: kept[job_id] for job_id in sorted(kept)}
    state.recount()
    state.deferred = {job_id: r for job_id, r in state.deferred.items() if job_id in kept}
    state.doomed = {job_id: r for job_id, r in state.doomed.items() if job_id in kept}
    state.dependents, state.arrays, state.namesakes = {}, {}, {}
    dependencies.reindex(state)
    state.reindex(state.queue.order)
    state.idle_plan = None
    state.change_seq += 1
    before_it -= count_ahead(state.queue, record) if in_line else state.queue.count
    return LeftOutJobs(len(before) - len(state.jobs), before_it, held)


def _of_interest(queue: WaitQueue, record: JobRecord, most: int) -> Iterator[JobRecord]:
    """Queued jobs, those that matter most first; some come twice."""
    queue.settle()
    heads = [
        row[-1]
        for key in queue.group_keys
        for streams in queue.groups[key].streams.values()
        for rows in streams.values()
        for row in rows[:_HEADS]
    ]
    yield from islice(heads, most // 2)
    yield from islice(walk_in_order(queue), most // 4)
    # Of its own stream, those right before the job in question.
    yield from find_before_in_stream(queue, record, most // 4)
    yield from walk_in_order(queue)
