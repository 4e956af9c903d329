"""Which jobs to stop first: candidates in the order in which they are drafted away, worked out only as far as needed.

Nodes come in the order of the work that is lost when they are emptied far enough, and on a node the cheapest candidates
first. What it costs to empty a node changes with time and depends on whose job wants it. So every node has a *floor*:
no job could empty it for less, until something happens there or a time comes that is known beforehand (a job loses its
protection, or saves its work). Floors are kept from pass to pass. Nodes are looked at in the order of their floors
until no other node can be cheaper than the cheapest one found: a few of thousands.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heappop, heappush, merge
from operator import attrgetter
from typing import NamedTuple

from gpuyard.core.caches import CacheSlot
from gpuyard.core.fleet.bits import each
from gpuyard.core.fleet.nodes import NEVER_MS, DirtyNodes, Nodes
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.passes import Pass, Rule
from gpuyard.core.schedule.running_jobs import RunningJobs, VictimGroup, protected_until_ms
from gpuyard.core.state.state import State
from gpuyard.model import AttemptState, StopCause
from gpuyard.model.units import MILLI

_PHASES = frozenset({AttemptState.STARTING, AttemptState.RUNNING, AttemptState.SUSPENDED})
"""A suspended job is stopped like any other; else it could hold room that was promised to others for ever."""

_NODE_BITS = 24
_NODE_MASK = (1 << _NODE_BITS) - 1
"""A cost and a node's number are packed into one integer, cost first, so that sorting is total and cheap."""

_LAST_RESORT = 1 << 80
"""Added to the cost of a node that cannot be emptied far enough: a last resort, for jobs that spread over nodes."""

_GROWTH_STEP = 125
"""Floors grow by multiples of this, so that there are few lists of them where GPUs are shared."""

_ONE_BY_ONE_MAX = 512
"""Changed floors up to this number are sorted in one by one; with more, the list is sorted again."""

Right = Callable[[JobRecord], bool]


class Candidate(NamedTuple):
    """A job that may be stopped."""

    destroyed: int
    """The work that is lost, in GPU-milliseconds."""
    id: int
    victim: JobRecord
    may_stop: Right
    cause: StopCause


class _Priced(NamedTuple):
    """What stopping the jobs on a node costs."""

    at_ms: int
    """When it was worked out."""
    prices: list[tuple[int, int]]
    """(Price of a thousandth, thousandths) of each job, cheapest first."""
    groups: int
    """The groups of these jobs, as a set."""
    steady: bool
    """Whether every price grows by at least 1 a millisecond."""
    least: int
    """The cost of the cheapest job."""
    smallest: int
    """The size of the smallest job."""


def free_milli(nodes: Nodes, number: int) -> int:
    """What is free on a node."""
    if number in nodes.partly_free:
        return sum([left for left in nodes.gpu_free[number] if left > 0])
    return nodes.free_mask[number].bit_count() * MILLI


class StopCosts:
    """What stopping the jobs on each node costs, by thousandths of a GPU: the groundwork of all floors."""

    __slots__ = ("_dirty", "_due", "_floors", "rows")

    def __init__(self) -> None:
        self._dirty = DirtyNodes()
        self._due: list[tuple[int, int]] = []
        """A heap of the times at which something on a node may cost less, among others that no longer matter."""
        self._floors: dict[tuple[int, int], Floors] = {}
        self.rows: dict[int, _Priced] = {}

    def floors(self, state: State, now_ms: int, jobs: RunningJobs, kind: int, wanted_milli: int) -> "Floors":
        """The floors of the nodes of a kind, brought up to date."""
        self._refresh(state, now_ms, jobs)
        floors = self._floors.get((kind, wanted_milli))
        if floors is None:
            floors = self._floors[kind, wanted_milli] = Floors(wanted_milli)
            floors.changed.update(each(state.nodes.kinds[kind].members))
        floors.refresh(state.nodes, self.rows)
        return floors

    def _refresh(self, state: State, now_ms: int, jobs: RunningJobs) -> None:
        due, rows, kinds = self._due, self.rows, state.nodes.kind
        changed = {*self._dirty.changed(state.nodes), *each(state.nodes.overlaid)}
        while due and due[0][0] <= now_ms:
            changed.add(heappop(due)[1])
        for number in changed:
            rows[number] = self._priced(state, now_ms, jobs, number)
        for (kind, _wanted_milli), floors in self._floors.items():
            floors.changed.update([number for number in changed if kinds[number] == kind])

    def _priced(self, state: State, now_ms: int, jobs: RunningJobs, number: int) -> _Priced:
        group_of, running = jobs.group_of, state.running
        prices: list[tuple[int, int]] = []
        groups, due_ms, steady, least, smallest = 0, NEVER_MS, True, _LAST_RESORT, _LAST_RESORT
        for job_id, (_end_ms, grant) in state.nodes.attempts_on[number].items():
            group = group_of.get(job_id)
            if group is None:
                continue
            record = running[job_id]
            until_ms = protected_until_ms(record)
            if until_ms <= now_ms:
                groups |= group.bit
                until_ms = record.saves_ms(now_ms)
                milli = grant.gpus.bit_count() * grant.milli
                if milli:
                    destroyed, gpu_milli = record.destroyed_gpu_ms(now_ms), record.shape.gpu_milli
                    prices.append((destroyed // milli, milli))
                    steady = steady and milli <= gpu_milli
                    if destroyed < least:
                        least = destroyed
                    if gpu_milli < smallest:
                        smallest = gpu_milli
            if until_ms < due_ms:
                due_ms = until_ms
        if due_ms < NEVER_MS:
            heappush(self._due, (due_ms, number))
        prices.sort()
        return _Priced(now_ms, prices, groups, steady, least, smallest)


_BY_COST = attrgetter("destroyed", "id")
_COSTS: CacheSlot[StopCosts] = CacheSlot("costs of stops")


class Floors:
    """For nodes of one kind and an amount wanted on each: what it costs at least to empty them that far.

    As long as nothing happens on a node, each thousandth that it lacks costs 1 more every millisecond. So nodes that
    lack the same stay in the same order, and are ranked by what their floors would be at time 0.
    """

    __slots__ = ("_place", "_wanted_milli", "changed", "ranked")

    def __init__(self, wanted_milli: int) -> None:
        self._wanted_milli = wanted_milli
        self.changed: set[int] = set()
        """The nodes to look at again."""
        self._place: dict[int, tuple[int, int]] = {}
        """By node: its list in `ranked`, and its value there."""
        self.ranked: dict[int, list[int]] = {}
        """By how much a floor grows each millisecond: the floors at time 0 in order, with the node in the low bits.
        A node without a job that might be stopped is in none."""

    def refresh(self, nodes: Nodes, rows: dict[int, _Priced]) -> None:
        """Work out the floors that may have changed."""
        place, ranked = self._place, self.ranked
        one_by_one = len(self.changed) <= _ONE_BY_ONE_MAX
        for number in self.changed:
            before, after = place.get(number), self._floor(nodes, number, rows[number])
            if before == after:
                continue
            if before is not None:
                del place[number]
                if one_by_one:
                    values = ranked[before[0]]
                    del values[bisect_left(values, before[1])]
            if after is not None:
                place[number] = after
                if one_by_one:
                    insort(ranked.setdefault(after[0], []), after[1])
        # Room that is taken for a moment only comes back unseen.
        self.changed = {number for number in self.changed if nodes.overlaid >> number & 1}
        if not one_by_one:
            self.ranked = ranked = {}
            for growth, value in place.values():
                ranked.setdefault(growth, []).append(value)
            for values in ranked.values():
                values.sort()

    def _floor(self, nodes: Nodes, number: int, priced: _Priced) -> tuple[int, int] | None:
        """What the cheapest thousandths of a GPU cost that would have to go; None: no job there might be stopped."""
        at_ms, prices, groups, steady, least, smallest = priced
        if not groups:
            return None
        lacks = self._wanted_milli - free_milli(nodes, number)
        if lacks <= 0:
            return 0, number
        growth, floor = lacks, 0
        for price, milli in prices:
            floor += price * (milli if milli < lacks else lacks)
            lacks -= milli
            if lacks <= 0:
                break
        else:
            return 0, _LAST_RESORT << _NODE_BITS | number
        if floor < least:
            # A job goes whole: one at least has to.
            growth, floor = smallest, least
        growth = growth // _GROWTH_STEP * _GROWTH_STEP if steady else 0
        return growth, floor - growth * at_ms << _NODE_BITS | number

    def in_order(self, now_ms: int) -> Iterator[int]:
        """The floors at a time, lowest first, each with its node in the low bits."""
        lists = [
            map((growth * now_ms << _NODE_BITS).__add__, values)
            for growth, values in self.ranked.items()
            if values
        ]
        return lists[0] if len(lists) == 1 else merge(*lists)

    def emptied_max(self) -> int:
        """How many nodes could be emptied far enough, at the most, or have enough free already."""
        return (
            len(self._place)
            - len(self.ranked.get(0, ()))
            + bisect_left(self.ranked.get(0, []), _LAST_RESORT << _NODE_BITS)
        )


class VictimOrder:
    """The candidates for one job. Nodes are only looked at while no victim is drafted away."""

    __slots__ = (
        "_current",
        "_exact",
        "_floors",
        "_jobs",
        "_known",
        "_left",
        "_next",
        "_overlaid",
        "_reach",
        "_reached",
        "_rights",
        "_rows",
        "_seen",
        "_there",
        "wanted_milli",
    )

    def __init__(self, current: Pass, record: JobRecord, rules: list[Rule], jobs: RunningJobs) -> None:
        state, now_ms, nodes = current.state, current.now_ms, current.state.nodes
        self._current = current
        self._jobs = jobs
        self._rights = [(rule.rights(state, record, now_ms), rule.cause) for rule in rules]
        self._reach = [rule.reaches(state, record) for rule in rules]
        self._known: dict[int, Candidate | None] = {}
        """The jobs that were looked at, and whether each is a candidate."""
        self._there: dict[int, list[Candidate]] = {}
        """The candidates on nodes that were looked at and did not have their turn."""
        self._exact: list[int] = []
        """A heap of these nodes: what emptying each of them costs, with its number in the low bits."""
        self._seen: set[int] = set()
        ways = record.shape.ways
        most = max([way.tasks_per_node for way in ways], default=1)
        self.wanted_milli = record.shape.gpus * record.shape.milli * most
        self._reached = 0
        """The groups in which a job may still be stopped, as a set."""
        for group in jobs.groups.values():
            if group.count and self._reaches(group):
                self._reached |= group.bit
        self._floors: dict[int, Floors] = {}
        self._rows: dict[int, _Priced] = {}
        self._left: Iterator[int] = iter(())
        # Where room is taken for a moment only, a floor may be of the time before: these nodes are looked at anyway.
        self._overlaid = nodes.overlaid
        self._next = -1
        if self._reached:
            prices = jobs.caches.get(_COSTS) or jobs.caches.put(_COSTS, StopCosts())
            self._rows = prices.rows
            for way in ways:
                self._floors[way.kind] = prices.floors(state, now_ms, jobs, way.kind, self.wanted_milli)
            self._left = merge(*[floors.in_order(now_ms) for floors in self._floors.values()])
            self._next = next(self._left, -1)
            for number in each(self._overlaid):
                if nodes.kind[number] in self._floors:
                    self._look_at(number)

    def _reaches(self, group: VictimGroup) -> bool:
        return any([reach(group.leaf, group.klass.priority) for reach in self._reach])

    def reached(self) -> list[VictimGroup]:
        """The groups in which a job may still be stopped."""
        return [group for group in self._jobs.groups.values() if group.bit & self._reached]

    def kept_for_good(self, victim: JobRecord) -> bool:
        """A candidate may not be stopped any more. Returns whether no other one may either."""
        group = self._jobs.group_of[victim.id]
        if self._reached & group.bit and not self._reaches(group):
            self._reached ^= group.bit
        return not self._reached

    def emptied_max(self, kind: int) -> int:
        """How many nodes of a kind could be emptied far enough for the job, at the most."""
        floors = self._floors.get(kind)
        return 0 if floors is None else floors.emptied_max() + self._overlaid.bit_count()

    def more(self, count: int) -> list[Candidate]:
        """The candidates of the next `count` nodes, each candidate once; of more nodes, if these have none left."""
        found: list[Candidate] = []
        while self._reached and (count > 0 or not found):
            self._look_further()
            if not self._exact:
                break
            count -= 1
            for candidate in self._there.pop(heappop(self._exact) & _NODE_MASK):
                if candidate.id not in self._seen:
                    self._seen.add(candidate.id)
                    found.append(candidate)
        return found

    def _look_further(self) -> None:
        """Look at nodes until no other can be cheaper than the cheapest one."""
        exact = self._exact
        while self._next >= 0 and (not exact or self._next < exact[0]):
            number = self._next & _NODE_MASK
            if self._rows[number].groups & self._reached and not self._overlaid >> number & 1:
                self._look_at(number)
            self._next = next(self._left, -1)

    def _look_at(self, number: int) -> None:
        """Find the candidates on a node, and what it costs to empty it far enough."""
        nodes, known = self._current.state.nodes, self._known
        attempts = nodes.attempts_on[number]
        there: list[Candidate] = []
        for job_id in attempts:
            if job_id not in known:
                known[job_id] = self._candidate(job_id)
            found = known[job_id]
            if found is not None:
                there.append(found)
        if not there:
            return
        # Cost, then id: ids are unique, so the order is total.
        there.sort(key=_BY_COST)
        cost, free = 0, free_milli(nodes, number)
        for candidate in there:
            if free >= self.wanted_milli:
                break
            cost += candidate.destroyed
            _end_ms, grant = attempts[candidate.id]
            free += grant.gpus.bit_count() * grant.milli
        if free < self.wanted_milli:
            cost += _LAST_RESORT
        self._there[number] = there
        heappush(self._exact, cost << _NODE_BITS | number)

    def _candidate(self, job_id: int) -> Candidate | None:
        """A job as a candidate, if it may be stopped now."""
        current = self._current
        if job_id not in self._jobs.group_of or job_id in current.stopping:
            return None
        victim = current.state.running[job_id]
        if protected_until_ms(victim) > current.now_ms or victim.phase not in _PHASES:
            return None
        for may_stop, cause in self._rights:
            if may_stop(victim):
                return Candidate(victim.destroyed_gpu_ms(current.now_ms), job_id, victim, may_stop, cause)
        return None
