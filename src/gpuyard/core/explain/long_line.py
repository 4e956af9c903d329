"""A line that is too long to try things out on it, cut to the part that is looked at for one job.

What keeps a job waiting is at the front of the line, and right before the job. A hundred thousand jobs between them
that ask for what those ask for tell nothing new, and each trial would move them all.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from gpuyard.core.jobs.queue import WaitQueue
from gpuyard.core.jobs.queue_position import ahead, before_in_stream, in_order
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state import dependencies
from gpuyard.core.state.state import State

LOOKED_AT_MAX = 2000
"""Jobs that do not run of which so many are looked at; of more, some are left out, and the answer says how many."""
_HEADS = 4
"""Of each kind of job, so many that come first in line."""
_NEAR = LOOKED_AT_MAX // 4
"""Jobs of its own kind right before the one that is asked about."""


class Cut(NamedTuple):
    """What was left out."""

    left_out: int = 0
    """Jobs in line, or set aside, that the state no longer has."""
    ahead: int = 0
    """Those of them that are ahead of the job in line."""
    held: object = None
    """They themselves: to let go of them takes as long as to look at each."""


def is_long(state: State) -> bool:
    """Whether there are more jobs than are looked at."""
    return len(state.jobs) - len(state.running) > LOOKED_AT_MAX


def shorten(state: State, record: JobRecord) -> Cut:
    """Leave the part of a long line that is looked at for one job. The state is the caller's own, and is spoilt."""
    if not is_long(state):
        return Cut()
    before, running = state.jobs, state.running
    kept = {**running, **state.earmarks, record.id: record}
    for after in record.pending:
        kept |= {other.id: other for other in dependencies.waited(state, record, after)}
    for other in _of_interest(state.queue, record):
        if len(kept) - len(running) >= LOOKED_AT_MAX:
            break
        kept[other.id] = other
    held = (before, state.queue, state.deferred)
    in_line = record.phase is None and record.id not in state.deferred
    before_it = ahead(state.queue, record) if in_line else state.queue.count
    state.jobs = {job_id: kept[job_id] for job_id in sorted(kept)}
    state.deferred = {job_id: r for job_id, r in state.deferred.items() if job_id in kept}
    state.doomed = {job_id: r for job_id, r in state.doomed.items() if job_id in kept}
    state.dependents, state.arrays, state.namesakes = {}, {}, {}
    dependencies.reindex(state)
    state.reindex(state.queue.order)
    state.quiet = None
    state.stirred += 1
    before_it -= ahead(state.queue, record) if in_line else state.queue.count
    return Cut(len(before) - len(state.jobs), before_it, held)


def _of_interest(queue: WaitQueue, record: JobRecord) -> Iterator[JobRecord]:
    """Those in line that matter most first; some come twice."""
    queue.settle()
    heads = [
        row[-1]
        for key in queue.group_keys
        for streams in queue.groups[key].streams.values()
        for rows in streams.values()
        for row in rows[:_HEADS]
    ]
    yield from islice(heads, LOOKED_AT_MAX // 2)
    yield from islice(in_order(queue), LOOKED_AT_MAX // 4)
    yield from before_in_stream(queue, record, _NEAR)
    yield from in_order(queue)
