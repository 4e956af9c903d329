"""The fleet over time: what is free when, and when a job can have its room.

Running attempts give their room back at their expected ends; waiting jobs are booked one after the other. For most
nodes one time is enough, "from then on there is room", and those times are kept between passes (`ready times`). Only
nodes with a booking are followed step by step, GPU by GPU, because there room comes and goes.

Where a job is booked depends only on the jobs ahead of it: of the nodes that have the room, the one that those jobs
leave fullest, then the lowest number. A job that starts in a gap meanwhile moves no booking, so the next pass, which
starts from nothing, arrives at the same bookings.
"""

from bisect import bisect_left, insort
from typing import NamedTuple

from gpuyard.core.fleet.bits import positions
from gpuyard.core.fleet.fixed_choice import choose_gpus, choose_nodes
from gpuyard.core.fleet.gpu_reserves import keep_cores
from gpuyard.core.fleet.levels import in_order
from gpuyard.core.fleet.nodes import NEVER_MS
from gpuyard.core.fleet.placing import choose_on
from gpuyard.core.fleet.shapes import Shape, Way
from gpuyard.core.fleet.ways import gpus_on_node
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.passes import PolicyParts
from gpuyard.core.schedule.quota_profile import QuotaProfile
from gpuyard.core.schedule.reserve import (
    NODE_BITS,
    NODE_MASK,
    find_closed,
    find_soonest,
    is_end_unknown,
)
from gpuyard.core.schedule.steps import Need, NodeSteps
from gpuyard.core.state.state import State
from gpuyard.model import AttemptState, Grant
from gpuyard.model.units import ENDLESS_MS, MILLI

Able = dict[int, list[int]]
"""Nodes by the number of tasks they have room for."""


_NO_LOW = (0, 0)


def lasts_ms(record: JobRecord) -> int:
    """How long the job needs its room: without a time limit for ever, so that it fits into no gap before a booking."""
    return record.estimate_ms if record.estimate_ms < ENDLESS_MS else NEVER_MS


class Slot(NamedTuple):
    """A time and a place for a job."""

    at_ms: int
    way: Way
    grants: tuple[Grant, ...]


class FleetProfile:
    """Bookings on top of the running attempts. The state is only read."""

    def __init__(self, state: State, policy: PolicyParts, now_ms: int) -> None:
        self._state = state
        self._now_ms = now_ms
        self._order = policy.order
        self.quotas = QuotaProfile(state, now_ms) if policy.spec.quotas else None
        self._steps: dict[int, NodeSteps] = {}
        self._booked: dict[int, list[tuple[int, int, Grant]]] = {}
        """By node: (start, end, grant)."""
        self._followed: set[int] = set()
        """Nodes where room may come and go: a ready time does not describe them."""
        self._kept: dict[int, list[tuple[int, Grant]]] = {}
        """By node, the room that is earmarked, and until when the jobs will need it."""
        self._floors: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """By ask (and tenant, where quotas apply): a job's run time, and the time before which it could not start."""
        self._lows: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        """By way and tasks, the same for each followed node."""
        self._ranks: dict[int, tuple[int, ...]] = {}
        self._epoch = state.nodes.epoch
        self._seen = len(state.nodes.touched)
        self._keep_earmarks()

    def _keep_earmarks(self) -> None:
        for record in self._state.earmarks.values():
            if record.earmark is None or record.grants:
                continue
            end_ms = freed_ms(self._state, record, self._now_ms) + record.estimate_ms
            for grant in record.earmark.grants:
                self._kept.setdefault(grant.node, []).append((end_ms, grant))
                self._followed.add(grant.node)

    # -- questions ---------------------------------------------------------------------------------------------

    def earliest(self, record: JobRecord, from_ms: int, ways: tuple[Way, ...] | None = None) -> Slot | None:
        """The first time from which the job has room and quota for as long as it runs; of equals, the preferred way."""
        if is_end_unknown(self._state.nodes, record.shape):
            return None
        self._catch_up()
        guarded = self.quotas is not None and self.quotas.concerns(record)
        floors = self._floors.setdefault((record.shape.index, record.party if guarded else -1), [])
        run_ms = lasts_ms(record)
        # A job with the same ask that runs at least as long cannot start before the earlier one.
        low_ms = max([from_ms, *[at_ms for shorter_ms, at_ms in floors if shorter_ms <= run_ms]])
        best: tuple[int, Way, Able] | None = None
        for way in record.shape.in_order if ways is None else ways:
            at_ms, able = self._earliest(record, way, low_ms, guarded)
            if at_ms < NEVER_MS and (best is None or at_ms < best[0]):
                best = (at_ms, way, able)
        if best is None:
            return None
        if ways is None:
            floors.append((run_ms, best[0]))
        at_ms, way, able = best
        return Slot(at_ms, way, self._choose(record, way, at_ms, able))

    def has_quota(self, record: JobRecord, model: int) -> bool:
        """Whether a start now leaves the tenants' bookings their quota."""
        quotas = self.quotas
        if quotas is None or not quotas.concerns(record):
            return True
        return quotas.earliest(record, model, self._now_ms) == self._now_ms

    def booked_on(self, grants: tuple[Grant, ...]) -> bool:
        """Whether any of these nodes has a booking."""
        return any([grant.node in self._booked for grant in grants])

    def holds(self, run_ms: int) -> tuple[Grant, ...]:
        """What is free now but booked, or needed for a booking, at some time within `run_ms`."""
        self._catch_up()
        found: list[Grant] = []
        nodes = self._state.nodes
        for number in sorted(self._booked):
            steps = self._of(number)
            least = steps.least(self._now_ms + run_ms)
            by_milli: dict[int, int] = {}
            for gpu, free in enumerate(nodes.gpu_free[number]):
                keep = min(max(0, free), free - least[gpu])
                if keep > 0:
                    by_milli[keep] = by_milli.get(keep, 0) | 1 << gpu
            found += [Grant(number, mask, keep, 0, 0, 0) for keep, mask in sorted(by_milli.items())]
            cpu = max(0, nodes.cpu_free[number] - least[-2])
            memory = max(0, nodes.memory_free[number] - least[-1])
            own_cpu, own_memory = 0, 0
            if number in nodes.beside:
                now, beside = nodes.beside[number], steps.least_beside(self._now_ms + run_ms)
                own_cpu, own_memory = max(0, now[0] - beside[0]), max(0, now[1] - beside[1])
            found += keep_cores(number, (cpu, memory), (own_cpu, own_memory))
            # With one user per shared GPU, a booked GPU belongs to that user, even if nothing of it is kept now.
            found += [
                Grant(number, grant.gpus, 0, 0, 0, 0, (), grant.user)
                for start_ms, _end_ms, grant in self._booked[number]
                if grant.user and start_ms < self._now_ms + run_ms
            ]
        return tuple(found)

    # -- bookings ----------------------------------------------------------------------------------------------

    def book(self, record: JobRecord, slot: Slot) -> None:
        """Keep the slot for the job."""
        end_ms = slot.at_ms + record.estimate_ms
        for grant in slot.grants:
            steps = self._of(grant.node)
            steps.book(slot.at_ms, end_ms, grant)
            self._booked.setdefault(grant.node, []).append((slot.at_ms, end_ms, grant))
            self._followed.add(grant.node)
        if self.quotas is not None and self.quotas.concerns(record):
            self.quotas.book(record, slot.way.model, slot.at_ms)

    def started(self, record: JobRecord, model: int) -> None:
        """The job starts now: the nodes show its room, its use of quota is noted here."""
        if self.quotas is not None and self.quotas.concerns(record):
            self.quotas.started(record, model)

    # -- times -------------------------------------------------------------------------------------------------

    def _earliest(self, record: JobRecord, way: Way, from_ms: int, guarded: bool) -> tuple[int, Able]:
        """Room and quota postpone the start in turn until both agree."""
        spread = way.nodes_max > way.full_nodes + (way.rest_tasks > 0)
        while True:
            at_ms, able = (self._spread if spread else self._room)(record, way, from_ms)
            if not guarded or at_ms >= NEVER_MS:
                return at_ms, able
            assert self.quotas is not None
            from_ms = self.quotas.earliest(record, way.model, at_ms)
            if from_ms == at_ms:
                return at_ms, able

    def _room(self, record: JobRecord, way: Way, from_ms: int) -> tuple[int, Able]:
        """Each need postpones the start until enough nodes could be ready; done when all are ready at the same time."""
        needs = [(way.tasks_per_node, way.full_nodes)] if way.full_nodes else []
        if way.rest_tasks:
            # A node that holds a full set of tasks can hold the rest too, so the rest needs one node more.
            needs.append((way.rest_tasks, way.full_nodes + 1))
        while True:
            at_ms = from_ms
            able: Able = {}
            for tasks, count in needs:
                at_ms, able[tasks] = self._ready(record, way, tasks, count, at_ms)
                if at_ms >= NEVER_MS:
                    return NEVER_MS, {}
            # One needed node settles it; where several are needed, all must be ready at the same time.
            if at_ms == from_ms or (len(needs) == 1 and needs[0][1] == 1):
                return at_ms, able
            from_ms = at_ms

    def _ready(
        self, record: JobRecord, way: Way, tasks: int, count: int, from_ms: int
    ) -> tuple[int, list[int]]:
        """When the `count`-th node could have room for `tasks` tasks, and the nodes that have it from that time."""
        followed, kept, now_ms = self._followed, self._kept, self._now_ms
        run_ms, shape, known = lasts_ms(record), record.shape, self._steps
        lows = self._lows.setdefault((way.index, tasks), {})
        first: list[int] = []
        found: list[tuple[int, int]] = []
        for number in kept:
            # Ready times do not count what is kept for other jobs.
            at_ms = self._free_from(record, way, tasks, number, from_ms)
            found.append((at_ms, number))
            insort(first, at_ms)
        del first[count:]
        last_ms = first[-1] if len(first) == count else NEVER_MS
        for packed in find_soonest(self._state, shape, way, tasks):
            ready = packed >> NODE_BITS
            # An overdue attempt is expected to end right away.
            at_ms = now_ms if not ready else ready if ready > now_ms else now_ms + 1
            if at_ms < from_ms:
                at_ms = from_ms
            if at_ms > last_ms or at_ms >= NEVER_MS:
                break
            number = packed & NODE_MASK
            if number in followed:
                if number in kept:
                    continue
                # Bookings only add up: where a shorter job had no room, a longer one has none either.
                shorter_ms, low_ms = lows.get(number, _NO_LOW)
                if shorter_ms <= run_ms and low_ms > at_ms:
                    if low_ms > last_ms:
                        continue
                    at_ms = low_ms
                steps = known.get(number) or self._of(number)
                at_ms = steps.earliest(self._need(shape, tasks, number), at_ms, run_ms)
                lows[number] = (run_ms, at_ms)
            found.append((at_ms, number))
            if at_ms < last_ms:
                insort(first, at_ms)
                if len(first) >= count:
                    del first[count:]
                    last_ms = first[-1]
        if last_ms >= NEVER_MS:
            return NEVER_MS, []
        return last_ms, sorted([number for at_ms, number in found if at_ms == last_ms])

    def _free_from(self, record: JobRecord, way: Way, tasks: int, number: int, from_ms: int) -> int:
        """From when on a node that is followed step by step has room for `tasks` tasks."""
        nodes, shape = self._state.nodes, record.shape
        if nodes.closed[number] or not (nodes.kinds[way.kind].members & way.pools) >> number & 1:
            return NEVER_MS
        need = self._need(shape, tasks, number)
        return self._of(number).earliest(need, from_ms, lasts_ms(record))

    def _need(self, shape: Shape, tasks: int, number: int) -> Need:
        """What `tasks` tasks need of a node."""
        return (
            gpus_on_node(self._state.nodes, shape, number) * tasks,
            shape.milli,
            shape.cpu_milli * tasks,
            shape.memory_mib * tasks,
            shape.user,
            find_closed(self._state.nodes, shape, number),
            (shape.gpus, self._state.nodes.kind_of[number].domain_size) if shape.in_domain else None,
        )

    def _spread(self, record: JobRecord, way: Way, from_ms: int) -> tuple[int, Able]:
        """When the best `nodes_max` nodes together hold all tasks.

        For each number of tasks t, count the nodes that hold at least t, at most `nodes_max`; these counts add up to
        the number of tasks that fit.
        """
        wanted = record.shape.tasks
        while True:
            times: dict[int, list[tuple[int, int]]] = {}
            for tasks in range(1, way.tasks_per_node + 1):
                every = [packed & NODE_MASK for packed in find_soonest(self._state, record.shape, way, tasks)]
                rows = [(self._free_from(record, way, tasks, number, from_ms), number) for number in every]
                times[tasks] = sorted([row for row in rows if row[0] < NEVER_MS])
            for at_ms in sorted({row[0] for rows in times.values() for row in rows}):
                held = [bisect_left(rows, (at_ms + 1,)) for rows in times.values()]
                if sum([min(way.nodes_max, count) for count in held]) >= wanted:
                    break
            else:
                return NEVER_MS, {}
            if at_ms == from_ms:
                return at_ms, {t: sorted([n for _at, n in rows if _at == at_ms]) for t, rows in times.items()}
            from_ms = at_ms

    # -- places ------------------------------------------------------------------------------------------------

    def _choose(self, record: JobRecord, way: Way, at_ms: int, able: Able) -> tuple[Grant, ...]:
        """The grants: which nodes with the room, and which of their GPUs."""
        if way.nodes_max > way.full_nodes + (way.rest_tasks > 0):
            filled = _filled(able, record.shape.tasks)
            grants = [self._grant(record, n, tasks, at_ms) for n, tasks in filled]
            return in_order(self._state.nodes, self._state.nodes.kinds[way.kind], grants)
        if way.full_nodes == 1 and not way.rest_tasks:
            return (self._fullest(record, able[way.tasks_per_node], way.tasks_per_node, at_ms),)
        kind = self._state.nodes.kinds[way.kind]
        full, rest = choose_nodes(able.get(way.tasks_per_node, []), able.get(way.rest_tasks, []), way, kind)
        grants = [self._grant(record, number, way.tasks_per_node, at_ms) for number in full]
        if way.rest_tasks:
            grants.append(self._fullest(record, rest, way.rest_tasks, at_ms))
        return in_order(self._state.nodes, kind, grants)

    def _fullest(self, record: JobRecord, able: list[int], tasks: int, at_ms: int) -> Grant:
        """On the node with the least left over: 1. on the chosen GPUs; 2. on the node; 3. the lowest number."""
        if len(able) == 1:
            return self._grant(record, able[0], tasks, at_ms)
        best: tuple[tuple[int, int, int], Grant] | None = None
        for number in able:
            left = self._left_by_those_ahead(record, number, at_ms)
            grant = self._grant(record, number, tasks, at_ms, left)
            key = (sum([left[gpu] for gpu in positions[grant.gpus]]), sum(left), number)
            if best is None or key < best[0]:
                best = (key, grant)
        assert best is not None
        return best[1]

    def _grant(
        self, record: JobRecord, number: int, tasks: int, at_ms: int, left: list[int] | None = None
    ) -> Grant:
        shape, nodes = record.shape, self._state.nodes
        kind, end_ms = nodes.kind_of[number], at_ms + lasts_ms(record)
        free = self._of(number).window(shape.milli, shape.user, at_ms, end_ms)
        free &= ~find_closed(nodes, shape, number)
        if shape.milli == MILLI:
            count = gpus_on_node(nodes, shape, number) * tasks
            if shape.in_domain:
                mask = choose_on(free, shape, tasks, kind)
            else:
                mask = choose_gpus(free, count, kind.group_size, kind.gpus, kind.inner_size)
        else:
            left = left or self._left_by_those_ahead(record, number, at_ms)
            fullest = sorted([(left[gpu], gpu) for gpu in positions[free]])
            mask = sum([1 << gpu for _left, gpu in fullest[: shape.gpus]])
        cpu_milli, memory_mib = shape.cpu_milli * tasks, shape.memory_mib * tasks
        return Grant(number, mask, shape.milli, cpu_milli, memory_mib, tasks, (), shape.user)

    def _left_by_those_ahead(self, record: JobRecord, number: int, at_ms: int) -> list[int]:
        """Milli of each GPU that are free then, as if no job behind this one in the queue had started."""
        steps = self._of(number)
        left = steps.rows[steps.at(at_ms)][: self._state.nodes.kind_of[number].gpus]
        rank = self._rank(record)
        for job_id, (end_ms, grant) in self._state.nodes.attempts_on[number].items():
            if max(end_ms, self._now_ms + 1) > at_ms and self._rank(self._state.jobs[job_id]) > rank:
                for gpu in positions[grant.gpus]:
                    left[gpu] += grant.milli
        return left

    def _rank(self, record: JobRecord) -> tuple[int, ...]:
        """The job's place in the order, as far as it does not depend on what others use."""
        rank = self._ranks.get(record.id)
        if rank is None:
            keys = [criterion.key(record) for criterion in (*self._order.before, *self._order.after)]
            rank = self._ranks[record.id] = (-record.boost, *keys, record.line_ms, record.id)
        return rank

    # -- steps -------------------------------------------------------------------------------------------------

    def _of(self, number: int) -> NodeSteps:
        """A node step by step: free room, expected ends, bookings."""
        steps = self._steps.get(number)
        if steps is None:
            nodes, soon_ms = self._state.nodes, self._now_ms + 1
            row = [*nodes.gpu_free[number], nodes.cpu_free[number], nodes.memory_free[number]]
            ends = [*nodes.attempts_on[number].values(), *self._kept.get(number, ())]
            users = nodes.sharers.get(number, {})
            steps = NodeSteps(
                self._now_ms,
                row,
                [(max(end_ms, soon_ms), grant) for end_ms, grant in ends],
                {(gpu, user): count for gpu, on in users.items() for user, count in on.items()},
                nodes.beside.get(number),
            )
            self._steps[number] = steps
            for booking in self._booked.get(number, ()):
                steps.book(*booking)
        return steps

    def _catch_up(self) -> None:
        """Refresh the nodes that a start or an earmark drafted since the last look has changed."""
        nodes = self._state.nodes
        if self._epoch != nodes.epoch:
            self._steps.clear()
            self._followed.update(range(len(nodes.node)))
            self._epoch = nodes.epoch
        for number in nodes.touched[self._seen :]:
            self._steps.pop(number, None)
            self._followed.add(number)
        self._seen = len(nodes.touched)


def _filled(able: Able, wanted: int) -> list[tuple[int, int]]:
    """Nodes and their tasks: the node that holds most first, then the lowest number."""
    most: dict[int, int] = {}
    for tasks, numbers in sorted(able.items()):
        most.update(dict.fromkeys(numbers, tasks))
    found = []
    for number, tasks in sorted(most.items(), key=lambda row: (-row[1], row[0])):
        if not wanted:
            break
        found.append((number, min(tasks, wanted)))
        wanted -= found[-1][1]
    return found


def freed_ms(state: State, record: JobRecord, now_ms: int) -> int:
    """When the room that is being freed for a job is expected to be free."""
    assert record.earmark is not None
    ends = [now_ms]
    for grant in record.earmark.grants:
        for job_id, (end_ms, held) in state.nodes.attempts_on[grant.node].items():
            stopping = state.jobs[job_id].phase is AttemptState.STOPPING
            if stopping and (held.gpus & grant.gpus or not grant.gpus):
                ends.append(end_ms)
    return max(ends)
