"""The queue as it stands: which jobs are ahead of which, if none starts meanwhile."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge

from gpuyard.core.jobs.queue import FairGroup, Row, WaitQueue
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.quota.tenants import ROOT


def ahead(queue: WaitQueue, record: JobRecord) -> int:
    """How many eligible jobs are ahead of a job in the queue."""
    queue.settle()
    count = sum([_size(queue.groups[key]) for key in queue.group_keys if key < record.group])
    group = queue.groups[record.group]
    at = record.leaf if queue.order.fair else ROOT
    count += sum([bisect_left(rows, record.entry) for rows in group.streams[at].values()])
    if queue.order.fair:
        for number in _served(queue, group):
            if number == record.leaf:
                break
            count += sum([len(rows) for rows in group.streams[number].values()])
    return count


def before_in_stream(queue: WaitQueue, record: JobRecord, most: int) -> list[JobRecord]:
    """The jobs right before a job in its own stream, at most `most`; none for a job that is not in the queue."""
    if not record.entry:
        return []
    rows = queue.groups[record.group].streams[record.leaf if queue.order.fair else ROOT][record.stream]
    at = bisect_left(rows, record.entry)
    return [row[-1] for row in rows[max(0, at - most) : at]]


def in_order(queue: WaitQueue) -> Iterator[JobRecord]:
    """All eligible jobs, first to last, as a walk that starts none meets them. The queue must not change meanwhile."""
    for rows in _parts(queue):
        for row in rows:
            yield row[-1]


def ids_in_order(queue: WaitQueue) -> list[int]:
    """The ids of the same jobs, in a third of the time."""
    found: list[int] = []
    for rows in _parts(queue):
        found += [row[-3] for row in rows]
    return found


def _parts(queue: WaitQueue) -> Iterator[Iterable[Row]]:
    """The rows of the queue in order, tenant by tenant."""
    queue.settle()
    for key in queue.group_keys:
        group = queue.groups[key]
        for number in _served(queue, group) if queue.order.fair else (ROOT,):
            streams = list(group.streams[number].values())
            yield streams[0] if len(streams) == 1 else merge(*streams)


def _size(group: FairGroup) -> int:
    return sum([len(rows) for streams in group.streams.values() for rows in streams.values()])


def _served(queue: WaitQueue, group: FairGroup) -> Iterator[int]:
    """Tenants with jobs in this group, in the order in which the fair share serves them."""
    tenants = queue.tenants
    stack = [ROOT]
    while stack:
        number = stack.pop()
        if number in group.streams:
            yield number
        # 1. least usage over weight; 2. lowest number. The next one goes on top.
        children = [child for child in tenants.children[number] if group.counts.get(child, 0)]
        stack += sorted(children, key=lambda child: (tenants.fair_key[child], child), reverse=True)
