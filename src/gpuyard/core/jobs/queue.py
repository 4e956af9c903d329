"""Waiting jobs, kept in the policy's order.

Keys of single jobs are kept in sorted lists. The fair share is not a key, because starting one job of a tenant moves
all its others: there the tree is walked, least served first, and what the current pass has started already counts.

With fair share, a gang that has waited for `Order.turn_ms` leaves its user's line for the line of its team, which goes
by age and is served before the members' own. Between teams nothing changes. Its turn comes when a period of the fair
share ends, so the order follows from the state alone.

Jobs that would get the same answer are in one *stream*, in order. A pass that learns "there is no room for eight
GPUs on one node" closes the stream and does not examine the other thousand jobs with the same ask; so the cost of a
pass grows with the number of different asks, not with the length of the queue.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace, merge
from operator import itemgetter
from typing import Any, cast

from gpuyard.core.fleet.shapes import Shape
from gpuyard.core.jobs.order import Order
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.quota.tenants import ROOT, Tenants
from gpuyard.model.units import NO_LIMIT_MS

Row = tuple[Any, ...]
"""(keys…, place by age, id, estimate, record): ids are unique, so the fields after the id are never compared."""

_ESTIMATE_MS = itemgetter(-2)
_RECORD = itemgetter(-1)

_TOP = -(1 << 62)
"""Smaller than any key of an order: jobs that were moved to the top come first."""

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


class WaitQueue:
    """All eligible waiting jobs under one order."""

    def __init__(self, order: Order, tenants: Tenants) -> None:
        self.order = order
        self.tenants = tenants
        self.groups: dict[tuple[int, ...], FairGroup] = {}
        self.group_keys: list[tuple[int, ...]] = []
        self.count = 0
        self.alone: JobRecord | None = None
        """The only job, until it is sorted in."""
        self._fair = order.fair
        self._turned: dict[int, int] = {}
        """By id: the tenant in whose line a gang waits that has left its user's."""
        self._by_age = not order.before and not order.fair and not order.after
        self._nice = False
        """Whether a job may be behind others that are submitted later."""
        tenants.keep_fair_keys(order.fair)

    def add(self, record: JobRecord) -> None:
        """A job became eligible. A single job is sorted in only when another arrives or when it has to stay."""
        self.count += 1
        if self.count == 1:
            self.alone = record
            return
        self.settle()
        self._sort_in(record)

    def add_alike(self, first: JobRecord, records: Sequence[JobRecord]) -> None:
        """Jobs that differ from one just added in nothing but their ids, which are consecutive and above its own."""
        self.settle()
        self.count += len(records)
        if self.order.before or first.id in self._turned:
            for record in records:
                self._sort_in(record)
            return
        after, submitted_ms = self.order.after, first.job.submitted_ms
        estimate_ms, group, stream = first.estimate_ms, first.group, first.stream
        rows: list[Row] = []
        for record in records:
            row: Row = (submitted_ms, record.id, estimate_ms, record)
            if after:
                row = (*[c.key(record) for c in after], *row)
            record.entry, record.group, record.stream = row, group, stream
            rows.append(row)
        found, at = self.groups[group], ROOT
        if self._fair:
            at = first.leaf
            for number in self.tenants.chain[at]:
                found.counts[number] += len(rows)
        there = found.streams[at][stream]
        last = there[-1]
        there += rows
        if after or rows[0] < last:
            # Two runs in order, as a rule: that takes little.
            there.sort()

    def settle(self) -> None:
        """Sort in a job that was alone."""
        if self.alone is not None:
            self._sort_in(self.alone)
            self.alone = None

    def _sort_in(self, record: JobRecord) -> None:
        order, leaf, extras = self.order, record.leaf, record.extras
        boost, at_ms = 0, record.job.submitted_ms
        if extras is not None:
            boost, at_ms = extras.boost, record.line_ms
            self._nice = self._nice or extras.nice_ms > 0
        if boost:
            row: Row = (*[_TOP for _ in order.after], -boost, record.id, record.estimate_ms, record)
        elif self._by_age:
            row = (at_ms, record.id, record.estimate_ms, record)
        else:
            keys = [c.key(record) for c in order.after]
            row = (*keys, at_ms, record.id, record.estimate_ms, record)
        priority = record.klass.priority if order.by_rights else 0
        apart, party = order.by_rights or self.tenants.holding, record.party
        whose = party if self.tenants.guarded[party] else leaf if apart else ROOT
        record.stream = stream = (record.shape.index, whose, priority)
        record.entry = row
        record.group = key = self._group_of(record, boost) if self._fair else ()
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = FairGroup()
            insort(self.group_keys, key)
        at = ROOT
        if self._fair:
            at = self._line_for(record, boost)
            for number in self.tenants.chain[at]:
                group.counts[number] = group.counts.get(number, 0) + 1
        streams = group.streams.get(at)
        if streams is None:
            streams = group.streams[at] = {}
        rows = streams.get(stream)
        if rows is None:
            streams[stream] = [row]
        elif rows[-1] < row:
            rows.append(row)
        else:
            insort(rows, row)

    def _group_of(self, record: JobRecord, boost: int) -> tuple[int, ...]:
        """Jobs that were moved to the top come one by one before all others, whichever tenant is least served."""
        return (-boost,) if boost else (0, *[c.key(record) for c in self.order.before])

    def line(self, record: JobRecord) -> int:
        """The tenant in whose line a job waits: its own, or its team's once a gang's turn has come."""
        return self._turned.get(record.id, record.leaf) if self._fair else ROOT

    def _line_for(self, record: JobRecord, boost: int) -> int:
        """The line that a job joins now. Jobs that were moved to the top stay in their own: each is a group of one."""
        leaf, turn_ms = record.leaf, self.order.turn_ms
        if not turn_ms or boost or record.job.spec.ask.tasks == 1:
            return leaf
        if record.line_ms + turn_ms > self.tenants.period_start_ms:
            return leaf
        team = self.tenants.parent[leaf]
        if team == ROOT:
            return leaf
        self._turned[record.id] = team
        return team

    def take_turns(self) -> None:
        """A period of the fair share has ended: gangs that have waited long enough join their team's line."""
        turn_ms = self.order.turn_ms
        if not turn_ms or not self._fair:
            return
        until_ms = self.tenants.period_start_ms - turn_ms
        parent, after = self.tenants.parent, self.order.after
        due: list[JobRecord] = []
        for key in self.group_keys:
            if key[0]:
                # A job that was moved to the top.
                continue
            for at, streams in self.groups[key].streams.items():
                if parent[at] == ROOT:
                    continue
                for rows in streams.values():
                    if rows[0][-1].job.spec.ask.tasks == 1:
                        # All of a stream ask for the same.
                        continue
                    # Without further criteria the oldest is the first.
                    last = len(rows) if after else bisect_left(rows, (until_ms + 1,))
                    due += [r for r in map(_RECORD, rows[:last]) if r.leaf == at and r.line_ms <= until_ms]
        for record in due:
            self.remove(record)
            self.count += 1
            self._sort_in(record)

    def remove(self, record: JobRecord) -> None:
        """A job started or no longer waits."""
        self.count -= 1
        if self.alone is record:
            self.alone = None
            return
        group = self.groups[record.group]
        at = self.line(record)
        self._turned.pop(record.id, None)
        streams = group.streams[at]
        rows = streams[record.stream]
        if len(rows) > 1:
            del rows[0 if rows[0] is record.entry else bisect_left(rows, record.entry)]
        else:
            self._close(record.group, at, record.stream)
        # The row holds the record: drop it, so that no reference cycle remains.
        record.entry = ()
        if self._fair:
            for number in self.tenants.chain[at]:
                group.counts[number] -= 1

    def remove_all(self, records: Sequence[JobRecord]) -> None:
        """Remove many jobs: each stream is rewritten once, instead of shifting all its rows for every job."""
        self.settle()
        self.count -= len(records)
        leaving: dict[tuple[tuple[int, ...], int, StreamKey], set[int]] = {}
        for record in records:
            at = self.line(record)
            self._turned.pop(record.id, None)
            leaving.setdefault((record.group, at, record.stream), set()).add(record.id)
            if self._fair:
                counts = self.groups[record.group].counts
                for number in self.tenants.chain[at]:
                    counts[number] -= 1
            record.entry = ()
        for (key, at, stream), ids in leaving.items():
            rows = self.groups[key].streams[at][stream]
            rows[:] = [row for row in rows if row[-1].id not in ids]
            if not rows:
                self._close(key, at, stream)

    def _close(self, key: tuple[int, ...], at: int, stream: StreamKey) -> None:
        """Remove a stream that has no jobs left."""
        group = self.groups[key]
        streams = group.streams[at]
        del streams[stream]
        if not streams:
            del group.streams[at]
            if not group.streams:
                del self.groups[key]
                self.group_keys.remove(key)

    def behind(self, record: JobRecord, last_will_do: bool) -> bool:
        """Whether a job just sorted in comes after another of its stream, or, with `last_will_do`, after all jobs."""
        if self.count == 1 or self.tenants.softened:
            return False
        if self._by_age and last_will_do and not self._nice:
            return True
        return self.groups[record.group].streams[self.line(record)][record.stream][0] is not record.entry

    def sift(
        self, generation: int, most: int, hopeless: Callable[[Shape], bool], forces: Hopeless | None
    ) -> "tuple[JobRecord, Sequence[list[Row]] | Sequence[FairGroup]] | None":
        """The first job in the queue, if it has no hope of room, and the streams that have some; with fair share they
        are in their groups, the first one first.

        `generation` is the nodes' `room_generation`: while it stays, a shape without hope stays without. No node has
        more than `most` GPUs free. A job that `forces` room has hope, whatever is free; None: no job does.
        """
        self.settle()
        if self._fair:
            return self._sift_fair(generation, most, hopeless, forces)
        first: Row | None = None
        hopeful = []
        for rows in self.groups[()].streams[ROOT].values():
            row = rows[0]
            if first is None or row < first:
                first = row
            shape = row[-1].shape
            if shape.hopeless_at != generation:
                if shape.node_gpus > most or hopeless(shape):
                    shape.hopeless_at = generation
                else:
                    hopeful.append(rows)
                    continue
            if forces is not None and forces(row[-1]):
                hopeful.append(rows)
        assert first is not None
        record: JobRecord = first[-1]
        if record.shape.hopeless_at != generation or (forces is not None and forces(record)):
            return None
        return record, hopeful

    def _sift_fair(
        self, generation: int, most: int, hopeless: Callable[[Shape], bool], forces: Hopeless | None
    ) -> "tuple[JobRecord, Sequence[FairGroup]] | None":
        group = self.groups[self.group_keys[0]]
        leaf = pick_tenant(self.tenants, group, (), set())
        record: JobRecord = min([rows[0] for rows in group.streams[leaf].values()])[-1]
        shape = record.shape
        if shape.hopeless_at != generation:
            if shape.node_gpus <= most and not hopeless(shape):
                return None
            shape.hopeless_at = generation
        if forces is not None and forces(record):
            return None
        hopeful: list[FairGroup] = []
        for key in self.group_keys:
            part: FairGroup | None = None
            for at, streams in self.groups[key].streams.items():
                for stream, rows in streams.items():
                    shape = rows[0][-1].shape
                    if shape.hopeless_at != generation:
                        if shape.node_gpus <= most and not hopeless(shape):
                            part = self._enter(part, at, stream, rows)
                            continue
                        shape.hopeless_at = generation
                    if forces is not None and forces(rows[0][-1]):
                        part = self._enter(part, at, stream, rows)
            if part is not None:
                hopeful.append(part)
        return record, hopeful

    def _enter(self, part: FairGroup | None, at: int, stream: StreamKey, rows: list[Row]) -> FairGroup:
        """Enter a stream of a tenant in a part of a group. There are counts only of which tenants have jobs."""
        if part is None:
            part = FairGroup()
        there = part.streams.get(at)
        if there is None:
            there = part.streams[at] = {}
            for number in self.tenants.chain[at]:
                part.counts[number] = 1
        there[stream] = rows
        return part

    def only(self) -> JobRecord:
        """The job, if there is just one."""
        if self.alone is not None:
            return self.alone
        (group,) = self.groups.values()
        (streams,) = group.streams.values()
        (rows,) = streams.values()
        record: JobRecord = rows[0][-1]
        return record

    def shapes(self) -> set[Shape]:
        """The different asks that wait."""
        if self.alone is not None:
            return {self.alone.shape}
        streams = [each for group in self.groups.values() for each in group.streams.values()]
        return {rows[0][-1].shape for each in streams for rows in each.values()}

    def walk(self, per_tenant_max: int) -> "Walk":
        """Start a walk through the queue."""
        self.settle()
        if self._fair:
            return FairWalk(self.tenants, [self.groups[key] for key in self.group_keys], per_tenant_max)
        group = self.groups.get(())
        return Walk(() if group is None else group.streams[ROOT].values())

    def walk_past(
        self, first: JobRecord, hopeful: "Sequence[list[Row]] | Sequence[FairGroup]", per_tenant_max: int
    ) -> "Walk":
        """Start a walk through what `sift` found behind the first job."""
        if self._fair:
            return FairWalk(self.tenants, cast("Sequence[FairGroup]", hopeful), per_tenant_max, first)
        return Walk(cast("Sequence[list[Row]]", hopeful))


class Lane:
    """Streams merged in order. The heap holds the next row of each open stream."""

    __slots__ = ("_heap",)

    def __init__(self, streams: Iterable[list[Row]]) -> None:
        self._heap: list[tuple[Row, int, list[Row]]] = [(rows[0], 0, rows) for rows in streams]
        if len(self._heap) > 1:
            heapify(self._heap)

    def next(self) -> JobRecord | None:
        """The next job in order. `step` acts on its stream."""
        heap = self._heap
        if not heap:
            return None
        record: JobRecord = heap[0][0][-1]
        return record

    def step(self, within_ms: int) -> None:
        """Go past the current job to the next of its stream that runs no longer than `within_ms`.

        0 closes the stream, because all jobs behind it would get the same answer.
        """
        heap = self._heap
        if not within_ms:
            heappop(heap)
            return
        _row, at, rows = heap[0]
        at += 1
        last = len(rows)
        if within_ms < NO_LIMIT_MS and at < last:
            last = min(last, at + _SKIPPED_MAX)
            # Mostly all of them run longer: check that for all at once first.
            if min(map(_ESTIMATE_MS, rows[at:last])) > within_ms:
                at = last
            while at < last and rows[at][-2] > within_ms:
                at += 1
        if at < last:
            heapreplace(heap, (rows[at], at, rows))
        else:
            heappop(heap)

    def done(self) -> bool:
        """Whether all streams are closed."""
        return not self._heap

    def drop(self, hopeless: Hopeless) -> None:
        """Close the streams of jobs that cannot start."""
        kept = [item for item in self._heap if not hopeless(item[0][-1])]
        if len(kept) < len(self._heap):
            heapify(kept)
            self._heap = kept


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
        "_lanes",
        "_leaf",
        "_past",
        "_per_tenant_max",
        "_tenants",
        "_unseen",
    )

    def __init__(
        self,
        tenants: Tenants,
        groups: Sequence[FairGroup],
        per_tenant_max: int,
        past: JobRecord | None = None,
    ) -> None:
        """`past`: a job that was blocked before the walk begins."""
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
        """The tenant served last, until the order changes."""
        self._past = past

    def next(self) -> JobRecord | None:
        """The next job of the least served tenant."""
        while True:
            leaf = self._leaf
            if leaf < 0:
                leaf = self._leaf = self._pick()
                if leaf < 0:
                    if not self._next_group():
                        return None
                    continue
            lane = self._lanes.get(leaf)
            if lane is None:
                assert self._group is not None
                lane = self._lane(self._group.streams[leaf].values())
                self._lanes[leaf] = lane
                self._unseen -= 1
            record = lane.next()
            if record is None or self._blocked.get(leaf, 0) >= self._per_tenant_max:
                self._drained.add(leaf)
                self._leaf = -1
                continue
            return record

    def _lane(self, streams: Iterable[list[Row]]) -> Lane:
        hopeless = self._hopeless
        return Lane(streams if hopeless is None else [rows for rows in streams if not hopeless(rows[0][-1])])

    def done(self) -> bool:
        """Whether all streams of all tenants are closed. False may still mean that no job is left."""
        return not self._unseen and not any([lane._heap for lane in self._lanes.values()])

    def drop(self, hopeless: Hopeless) -> None:
        """Skip all jobs that cannot start, of every tenant."""
        self._hopeless = hopeless
        for lane in self._lanes.values():
            lane.drop(hopeless)

    def skip(self, _record: JobRecord) -> None:
        """Skip the stream without counting it against its tenant."""
        self._lanes[self._leaf].step(0)

    def started(self, _record: JobRecord) -> None:
        """Usage changed: choose the tenant again."""
        self._lanes[self._leaf].step(NO_LIMIT_MS)
        self._leaf = -1

    def blocked(self, _record: JobRecord, within_ms: int) -> None:
        """Usage did not change: continue with the same tenant."""
        self._lanes[self._leaf].step(within_ms)
        self._blocked[self._leaf] = self._blocked.get(self._leaf, 0) + 1

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


def count_ahead(queue: WaitQueue, record: JobRecord) -> int:
    """How many eligible jobs are ahead of a job in the queue."""
    queue.settle()
    count = sum([_size(queue.groups[key]) for key in queue.group_keys if key < record.group])
    group = queue.groups[record.group]
    at = queue.line(record)
    count += sum([bisect_left(rows, record.entry) for rows in group.streams[at].values()])
    if queue.order.fair:
        for number in _served(queue, group):
            if number == at:
                break
            count += sum([len(rows) for rows in group.streams[number].values()])
    return count


def find_before_in_stream(queue: WaitQueue, record: JobRecord, most: int) -> list[JobRecord]:
    """The jobs right before a job in its own stream, at most `most`; none for a job that is not in the queue."""
    if not record.entry:
        return []
    rows = queue.groups[record.group].streams[queue.line(record)][record.stream]
    at = bisect_left(rows, record.entry)
    return [row[-1] for row in rows[max(0, at - most) : at]]


def walk_in_order(queue: WaitQueue) -> Iterator[JobRecord]:
    """All eligible jobs, first to last, as a walk that starts none meets them. The queue must not change meanwhile."""
    for rows in _parts(queue):
        for row in rows:
            yield row[-1]


def list_ids_in_order(queue: WaitQueue) -> list[int]:
    """The ids of the same jobs, in a third of the time."""
    found: list[int] = []
    for rows in _parts(queue):
        found += [row[-3] for row in rows]
    return found


def list_ids_in_turn(queue: WaitQueue) -> list[int]:
    """The same as their turns come: jobs over a soft budget after all that are within theirs."""
    overspent = queue.tenants.overspent
    if not queue.tenants.softened:
        return list_ids_in_order(queue)
    first, last = list[int](), list[int]()
    for rows in _parts(queue):
        for row in rows:
            record = row[-1]
            behind = record.earmark is None and overspent(record.party)
            (last if behind else first).append(record.id)
    return first + last


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
