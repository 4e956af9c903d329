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
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import cast

from gpuyard.core.fleet.shapes import Shape
from gpuyard.core.jobs.order import Order
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.jobs.walk import FairGroup, FairWalk, Row, StreamKey, Walk, pick_tenant
from gpuyard.core.quota.tenants import ROOT, Tenants

_RECORD = itemgetter(-1)

_TOP = -(1 << 62)
"""Smaller than any key of an order: jobs that were moved to the top come first."""

Reach = Callable[[JobRecord], int]
"""Up to which ask, in milli-GPU, jobs of the same tenant, class and GPU models may force room; -1: none."""


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
        self._least: dict[int, int] = {}
        """By `id()` of the rows of a stream: no job there has a shorter estimate. Exact when it was last asked for."""
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
            rows = streams[stream] = [row]
            self._least[id(rows)] = record.estimate_ms
            return
        if record.estimate_ms < self._least[id(rows)]:
            self._least[id(rows)] = record.estimate_ms
        if rows[-1] < row:
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
        del self._least[id(streams.pop(stream))]
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
        self, generation: int, most: int, hopeless: Callable[[Shape], bool], within: Reach | None
    ) -> "tuple[JobRecord, Sequence[list[Row]] | Sequence[FairGroup]] | None":
        """The first job in the queue, if it has no hope of room, and the streams that have some; with fair share they
        are in their groups, the first one first.

        `generation` is the nodes' `room_generation`: while it stays, a shape without hope stays without. No node has
        more than `most` GPUs free. A job that may force room, as it asks for no more than `within` says, has hope,
        whatever is free; None: no job may.
        """
        self.settle()
        if self._fair:
            return self._sift_fair(generation, most, hopeless, within)
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
            if within is not None and shape.gpu_milli <= within(row[-1]):
                hopeful.append(rows)
        assert first is not None
        record: JobRecord = first[-1]
        shape = record.shape
        if shape.hopeless_at != generation or (within is not None and shape.gpu_milli <= within(record)):
            return None
        return record, hopeful

    def _sift_fair(
        self, generation: int, most: int, hopeless: Callable[[Shape], bool], within: Reach | None
    ) -> "tuple[JobRecord, Sequence[FairGroup]] | None":
        groups, keys = self.groups, self.group_keys
        leaf = pick_tenant(self.tenants, groups[keys[0]], (), set())
        record: JobRecord = min([rows[0] for rows in groups[keys[0]].streams[leaf].values()])[-1]
        shape = record.shape
        if shape.hopeless_at != generation:
            if shape.node_gpus <= most and not hopeless(shape):
                return None
            shape.hopeless_at = generation
        reach, whose, klass, models = -1, -1, record.klass, shape.models
        if within is not None:
            whose, reach = record.leaf, within(record)
            if shape.gpu_milli <= reach:
                return None
        hopeful: list[FairGroup] = []
        for key in keys:
            part: FairGroup | None = None
            for at, streams in groups[key].streams.items():
                for stream, rows in streams.items():
                    head: JobRecord = rows[0][-1]
                    shape = head.shape
                    if shape.hopeless_at != generation:
                        if shape.node_gpus <= most and not hopeless(shape):
                            part = self._enter(part, at, stream, rows)
                            continue
                        shape.hopeless_at = generation
                    if within is None:
                        continue
                    if head.leaf != whose or head.klass is not klass or shape.models != models:
                        # Most streams beside each other differ in size alone.
                        whose, klass, models, reach = head.leaf, head.klass, shape.models, within(head)
                    if shape.gpu_milli <= reach:
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
            groups = [self.groups[key] for key in self.group_keys]
            return FairWalk(self.tenants, groups, self._least, per_tenant_max)
        group = self.groups.get(())
        return Walk(() if group is None else group.streams[ROOT].values(), self._least)

    def walk_past(
        self, first: JobRecord, hopeful: "Sequence[list[Row]] | Sequence[FairGroup]", per_tenant_max: int
    ) -> "Walk":
        """Start a walk through what `sift` found behind the first job."""
        if not self._fair:
            return Walk(cast("Sequence[list[Row]]", hopeful), self._least)
        groups = cast("Sequence[FairGroup]", hopeful)
        if len(groups) == 1 and len(groups[0].streams) == 1:
            # One tenant, as mostly: no other can have a turn, and it has fewer jobs than may be examined.
            (streams,) = groups[0].streams.values()
            if sum(map(len, streams.values())) < per_tenant_max:
                return Walk(streams.values(), self._least)
        return FairWalk(self.tenants, groups, self._least, per_tenant_max, first)


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
