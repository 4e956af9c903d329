"""A walk through the waiting jobs in order: streams merged; with fair share tenant by tenant, least served first."""

from collections.abc import Callable, Container, Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from operator import itemgetter
from typing import Any

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.quota.tenants import ROOT, Tenants
from gpuyard.model.units import NO_LIMIT_MS

Row = tuple[Any, ...]
"""(keys…, place by age, id, estimate, record): ids are unique, so the fields after the id are never compared."""

_ESTIMATE_MS = itemgetter(-2)

Hopeless = Callable[[JobRecord], bool]
"""Whether a quick check shows that a job, and its whole stream, cannot start."""

_SKIPPED_MAX = 200
"""How many jobs that run too long are skipped in one stream before the rest of it is skipped too."""

StreamKey = tuple[int, int, int]
"""(shape, tenant, priority): tenant and priority only where they make a difference."""


class FairGroup:
    """Jobs that are equal before the fair share applies. Without fair share there is one group, of one tenant."""

    __slots__ = ("counts", "streams")

    def __init__(self) -> None:
        self.streams: dict[int, dict[StreamKey, list[Row]]] = {}
        """By tenant (`ROOT` for all, without fair share)."""
        self.counts: dict[int, int] = {}
        """Jobs in each tenant's subtree."""


class Lane:
    """Streams merged in order. The heap holds the next row of each open stream."""

    __slots__ = ("heap", "least")

    def __init__(self, streams: Iterable[list[Row]], least: dict[int, int]) -> None:
        """`least`: by `id()` of the rows of a stream, no more than the shortest estimate there."""
        self.heap: list[tuple[Row, int, list[Row]]] = [(rows[0], 0, rows) for rows in streams]
        self.least = least
        if len(self.heap) > 1:
            heapify(self.heap)

    def next(self) -> JobRecord | None:
        """The next job in order. `step` acts on its stream."""
        heap = self.heap
        if not heap:
            return None
        record: JobRecord = heap[0][0][-1]
        return record

    def step(self, within_ms: int) -> None:
        """Go past the current job to the next of its stream that runs no longer than `within_ms`.

        0 closes the stream, because all jobs behind it would get the same answer.
        """
        heap = self.heap
        if not within_ms:
            heappop(heap)
            return
        _row, at, rows = heap[0]
        at += 1
        last = len(rows)
        if within_ms < NO_LIMIT_MS and at < last:
            # Mostly all of them run longer: check that for all at once first.
            if self.least[id(rows)] > within_ms:
                heappop(heap)
                return
            last = min(last, at + _SKIPPED_MAX)
            least_ms = min(map(_ESTIMATE_MS, rows[at:last]))
            if at == 1 and last == len(rows):
                self.least[id(rows)] = min(least_ms, rows[0][-2])
            if least_ms > within_ms:
                at = last
            while at < last and rows[at][-2] > within_ms:
                at += 1
        if at < last:
            heapreplace(heap, (rows[at], at, rows))
        else:
            heappop(heap)

    def done(self) -> bool:
        """Whether all streams are closed."""
        return not self.heap

    def drop(self, hopeless: Hopeless) -> None:
        """Close the streams of jobs that cannot start."""
        kept = [item for item in self.heap if not hopeless(item[0][-1])]
        if len(kept) < len(self.heap):
            heapify(kept)
            self.heap = kept


class Walk(Lane):
    """A walk through a queue without fair share, or through some of its streams."""

    __slots__ = ()

    def skip(self, _record: JobRecord) -> None:
        """Skip the current job and its whole stream, as if they had been dropped."""
        self.step(0)

    def started(self, _record: JobRecord) -> None:
        """The current job starts in this pass."""
        self.step(NO_LIMIT_MS)

    def blocked(self, _record: JobRecord, within_ms: int) -> None:
        """The current job does not start; nor would the jobs of its stream that run longer than this."""
        self.step(within_ms)


class FairWalk(Walk):
    """A walk through the tenant tree, least served first, group by group."""

    __slots__ = (
        "_blocked",
        "_closed",
        "_drained",
        "_group",
        "_groups",
        "_hopeless",
        "_lane",
        "_lanes",
        "_leaf",
        "_left",
        "_past",
        "_per_tenant_max",
        "_tenants",
        "_unseen",
    )

    def __init__(
        self,
        tenants: Tenants,
        groups: Sequence[FairGroup],
        least: dict[int, int],
        per_tenant_max: int,
        past: JobRecord | None = None,
    ) -> None:
        """`past`: a job that was blocked before the walk begins."""
        self.heap = []
        self.least = least
        self._tenants = tenants
        self._groups = iter(groups)
        self._group: FairGroup | None = None
        self._unseen = sum([len(group.streams) for group in groups])
        """How many tenants of groups have not had a turn."""
        self._per_tenant_max = per_tenant_max
        self._lanes: dict[int, Lane] = {}
        self._blocked: dict[int, int] = {}
        self._drained: set[int] = set()
        """Tenants with no own jobs left to examine."""
        self._closed: set[int] = set()
        """Tenants with no jobs left below them."""
        self._hopeless: Hopeless | None = None
        self._leaf = -1
        """The tenant served last."""
        self._lane: Lane | None = None
        """Its jobs, until the order changes."""
        self._left = 0
        """How many more of them may be blocked."""
        self._past = past

    def next(self) -> JobRecord | None:
        """The next job of the least served tenant."""
        lane = self._lane
        while True:
            if lane is not None:
                heap = lane.heap
                if heap and self._left > 0:
                    record: JobRecord = heap[0][0][-1]
                    return record
                self._blocked[self._leaf] = self._per_tenant_max - self._left
                self._drained.add(self._leaf)
                self._lane = None
            leaf = self._leaf = self._pick()
            if leaf < 0:
                if not self._next_group():
                    return None
                lane = None
                continue
            lane = self._lanes.get(leaf)
            if lane is None:
                assert self._group is not None
                lane = self._lanes[leaf] = self._open(self._group.streams[leaf].values())
                self._unseen -= 1
            self._lane = lane
            self._left = self._per_tenant_max - self._blocked.get(leaf, 0)

    def _open(self, streams: Iterable[list[Row]]) -> Lane:
        hopeless = self._hopeless
        if hopeless is not None:
            streams = [rows for rows in streams if not hopeless(rows[0][-1])]
        return Lane(streams, self.least)

    def done(self) -> bool:
        """Whether all streams of all tenants are closed. False may still mean that no job is left."""
        return not self._unseen and not any([lane.heap for lane in self._lanes.values()])

    def drop(self, hopeless: Hopeless) -> None:
        """Skip all jobs that cannot start, of every tenant."""
        self._hopeless = hopeless
        for lane in self._lanes.values():
            lane.drop(hopeless)

    def skip(self, _record: JobRecord) -> None:
        """Skip the stream without counting it against its tenant."""
        assert self._lane is not None
        self._lane.step(0)

    def started(self, _record: JobRecord) -> None:
        """Usage changed: choose the tenant again."""
        assert self._lane is not None
        self._lane.step(NO_LIMIT_MS)
        self._blocked[self._leaf] = self._per_tenant_max - self._left
        self._lane = None

    def blocked(self, _record: JobRecord, within_ms: int) -> None:
        """Usage did not change: continue with the same tenant."""
        assert self._lane is not None
        self._lane.step(within_ms)
        self._left -= 1

    def _next_group(self) -> bool:
        group = next(self._groups, None)
        if group is None:
            return False
        self._group = group
        self._lanes.clear()
        self._blocked.clear()
        self._drained.clear()
        self._closed.clear()
        past, self._past = self._past, None
        if past is not None:
            # It was the first job of all: if any group has it, this one.
            rows = next(iter(next(iter(group.streams.values())).values()))
            if rows[0][-1].group == past.group:
                self._blocked[past.leaf] = 1
        return True

    def _pick(self) -> int:
        if self._group is None:
            return -1
        return pick_tenant(self._tenants, self._group, self._drained, self._closed)


def pick_tenant(tenants: Tenants, group: FairGroup, drained: Container[int], closed: set[int]) -> int:
    """Down the tree: 1. least usage over weight; 2. lowest number. A tenant's own jobs go before its members'.

    `drained` tenants have no own jobs left; those found to have none below them either become `closed`. -1: no tenant
    has any.
    """
    streams, counts = group.streams, group.counts
    keys, children = tenants.fair_key, tenants.children
    while ROOT not in closed:
        number = ROOT
        while True:
            if number in streams and number not in drained:
                return number
            best = -1
            for child in children[number]:
                if counts.get(child, 0) and child not in closed and (best < 0 or keys[child] < keys[best]):
                    best = child
            if best < 0:
                closed.add(number)
                break
            number = best
    return -1
