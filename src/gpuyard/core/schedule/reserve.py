"""When a job that does not fit now will fit, and what must be kept free for it.

Each node has a time at which it will have the room, if its attempts end no later than expected. One event changes a
few nodes, so only a few times are computed again; the earliest time for a gang on k nodes is the k-th smallest.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import islice

from gpuyard.core.caches import CacheSlot
from gpuyard.core.fleet.bits import choose_in_domains, each, positions, tasks_in_domains
from gpuyard.core.fleet.gpu_reserves import beside_ms, keep_cores, kept_beside
from gpuyard.core.fleet.nodes import NEVER_MS, DirtyNodes, Nodes, cut_mask
from gpuyard.core.fleet.shapes import Shape, Way
from gpuyard.core.fleet.ways import gpus_on_node
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.held_profile import unheld_from_ms
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.state.state import State
from gpuyard.model import Ask, Grant, Milli, Whole
from gpuyard.model.units import MILLI

NODE_BITS = 24
"""A time and a node's number are packed into one integer, time first, so that sorting is total and cheap."""
NODE_MASK = (1 << NODE_BITS) - 1

_KEPT_MAX = 256
"""Ready times are kept for so many asks; then they start over."""


class Promise:
    """A start that no job which starts now may delay."""

    __slots__ = ("_holds", "_nodes", "_shape", "_takes_all", "at_ms", "where")

    def __init__(self, shape: Shape, at_ms: int, where: dict[int, int]) -> None:
        self._shape = shape
        self.at_ms = at_ms
        self.where = where
        """Tasks by node."""
        self._nodes = 0
        self._takes_all: bool | None = None
        self._holds: tuple[Grant, ...] | None = None

    @property
    def nodes(self) -> int:
        """Its nodes as a set."""
        if not self._nodes:
            for number in self.where:
                self._nodes |= 1 << number
        return self._nodes

    def takes_all(self, nodes: Nodes) -> bool:
        """Whether the job leaves no GPU of its nodes to other jobs."""
        if self._takes_all is None:
            home, gpus = nodes.kind_of, self._shape.gpus
            self._takes_all = self._shape.milli == MILLI and all(
                [gpus * tasks == home[number].gpus for number, tasks in self.where.items()]
            )
        return self._takes_all

    def forget_holds(self) -> None:
        """Drop the holds of the last pass: they were computed under its drafts."""
        self._holds = None

    def holds(self, nodes: Nodes) -> tuple[Grant, ...]:
        """What is free now and must still be free then. Worked out on first use, because it is often not needed."""
        if self._holds is None:
            found: list[Grant] = []
            for number, tasks in self.where.items():
                found += _holds(nodes, self._shape, number, tasks, self.at_ms)
            self._holds = tuple(found)
        return self._holds


class ReadyTimes:
    """For one ask, kind of node and number of tasks: when each node will have the room, soonest first."""

    __slots__ = ("_all", "_epoch", "_members", "_packed", "_read", "_shape", "_tasks", "soonest")

    def __init__(self, nodes: Nodes, shape: Shape, number: int, pools: int, tasks: int) -> None:
        self._shape = shape
        self._tasks = tasks
        kind = nodes.kinds[number]
        self._members = kind.members & pools
        takes_all = shape.whole_only and shape.gpus * tasks == kind.gpus
        self._all = (1 << kind.gpus) - 1 if takes_all else 0
        """All GPUs of a node as a mask, if the job wants them all and no cores or memory; otherwise 0."""
        self._packed: dict[int, int] = {}
        """Packed time and node, by node."""
        self._epoch = -1
        self._read = 0
        self.soonest: list[int] = []
        """The same times, sorted."""

    def refresh(self, nodes: Nodes) -> list[int]:
        """Update the nodes that changed; return all times, sorted, each with its node in the low bits."""
        packed, soonest = self._packed, self.soonest
        if self._epoch != nodes.epoch:
            packed = self._packed = {number: self._time(nodes, number) for number in each(self._members)}
            self.soonest = sorted(packed.values())
            self._epoch = nodes.epoch
        elif len(nodes.touched) > self._read:
            for number in set(nodes.touched[self._read :]):
                before = packed.get(number)
                if before is not None:
                    after = self._time(nodes, number)
                    if after != before:
                        packed[number] = after
                        del soonest[bisect_left(soonest, before)]
                        insort(soonest, after)
        self._read = len(nodes.touched)
        return self.soonest

    def _time(self, nodes: Nodes, number: int) -> int:
        if self._all and not nodes.reserved_grants and number not in nodes.needs_full_check:
            # By far the most frequent case: a job for a whole node waits for the last attempt there.
            if nodes.free_mask[number] == self._all:
                return number
            here = nodes.attempts_on[number]
            if here:
                end_ms, grant = max(here.values())
                if grant.gpus:
                    return (end_ms or 1) << NODE_BITS | number
        return ready_ms(nodes, self._shape, number, self._tasks) << NODE_BITS | number


class Looked:
    """For one way and number of tasks: when a node will have the room, of the nodes that were looked at."""

    __slots__ = ("_dirty", "_known")

    def __init__(self) -> None:
        self._dirty = DirtyNodes()
        self._known: dict[int, int] = {}

    def refresh(self, nodes: Nodes) -> dict[int, int]:
        """Forget the nodes that changed; return packed time and node, by node."""
        for number in self._dirty.changed(nodes):
            self._known.pop(number, None)
        return self._known


READY: CacheSlot[dict[tuple[int, int, int], ReadyTimes | Looked]] = CacheSlot("ready times")
"""By way (or kind of node: below 0), number of tasks or GPUs, and thousandths of a GPU."""


def ready_ms(nodes: Nodes, shape: Shape, number: int, tasks: int) -> int:
    """When a node will have room for `tasks` tasks: 0 means now, `NEVER_MS` that no expected end makes the room."""
    if nodes.closed[number]:
        if nodes.shut(number):
            return NEVER_MS
        return max(_unfull_ms(nodes, number), _room_ms(nodes, shape, number, tasks))
    return _room_ms(nodes, shape, number, tasks)


def _unfull_ms(nodes: Nodes, number: int) -> int:
    """When a node that has as many attempts as it may will have one fewer."""
    too_many = len(nodes.attempts_on[number]) - nodes.attempts_max
    return sorted([end_ms for end_ms, _grant in nodes.attempts_on[number].values()])[too_many] or 1


def _room_ms(nodes: Nodes, shape: Shape, number: int, tasks: int) -> int:
    """The same for a node that takes new attempts."""
    if not shape.gpus and number in nodes.beside:
        return beside_ms(nodes, shape, number, tasks)
    if shape.in_domain:
        return _domain_ms(nodes, shape, number, tasks)
    gpus = (gpus_on_node(nodes, shape, number) if shape.profile else shape.gpus) * tasks
    cpu = nodes.cpu_free[number] - shape.cpu_milli * tasks
    memory = nodes.memory_free[number] - shape.memory_mib * tasks
    if shape.milli != MILLI or number in nodes.partly_free or (shape.profile and number in nodes.pins):
        return _ready_by_gpu(nodes, shape, number, gpus, cpu, memory)
    have = nodes.free_mask[number].bit_count()
    if have >= gpus and cpu >= 0 and memory >= 0:
        return 0
    if gpus == nodes.kind_of[number].gpus and not shape.cpu_milli and not shape.memory_mib:
        return _empty_ms(nodes, number)
    if cpu >= 0 and memory >= 0:
        # Only GPUs are lacking, as in most cases: attempts that end at the same time need no order among themselves.
        for end_ms, grant in sorted(nodes.attempts_on[number].values()):
            gpus_held = grant.gpus
            if grant.milli != MILLI and gpus_held:
                return _ready_by_gpu(nodes, shape, number, gpus, cpu, memory)
            have += gpus_held.bit_count()
            if have >= gpus:
                return end_ms or 1
        return NEVER_MS
    for end_ms, _job_id, grant in nodes.ends(number):
        if grant.milli != MILLI and grant.gpus:
            # A GPU with all its thousandths shared looks taken, and is not free when only one of its sharers ends.
            cpu = nodes.cpu_free[number] - shape.cpu_milli * tasks
            memory = nodes.memory_free[number] - shape.memory_mib * tasks
            return _ready_by_gpu(nodes, shape, number, gpus, cpu, memory)
        have += grant.gpus.bit_count()
        cpu += grant.cpu_milli
        memory += grant.memory_mib
        if have >= gpus and cpu >= 0 and memory >= 0:
            return end_ms or 1
    return NEVER_MS


def _domain_ms(nodes: Nodes, shape: Shape, number: int, tasks: int) -> int:
    """The same for tasks whose GPUs are to be in one NUMA domain."""
    free, size = list(nodes.gpu_free[number]), nodes.kind_of[number].domain_size
    cpu = nodes.cpu_free[number] - shape.cpu_milli * tasks
    memory = nodes.memory_free[number] - shape.memory_mib * tasks
    if cpu >= 0 and memory >= 0 and tasks_in_domains(_whole(free), shape.gpus, size) >= tasks:
        return 0
    for end_ms, _job_id, grant in nodes.ends(number):
        _give(free, grant)
        cpu += grant.cpu_milli
        memory += grant.memory_mib
        if cpu >= 0 and memory >= 0 and tasks_in_domains(_whole(free), shape.gpus, size) >= tasks:
            return end_ms or 1
    return NEVER_MS


def _whole(free: list[int]) -> int:
    """The wholly free GPUs as a mask."""
    return sum([1 << gpu for gpu, left in enumerate(free) if left >= MILLI])


def _empty_ms(nodes: Nodes, number: int) -> int:
    """When the last attempt that holds a GPU ends; never, where a GPU is kept for a job."""
    ends_ms, accounted = 0, nodes.free_mask[number]
    for end_ms, grant in nodes.attempts_on[number].values():
        gpus = grant.gpus
        if gpus:
            accounted |= gpus
            if end_ms > ends_ms:
                ends_ms = end_ms
    return ends_ms or 1 if accounted == (1 << nodes.kind_of[number].gpus) - 1 else NEVER_MS


def _ready_by_gpu(nodes: Nodes, shape: Shape, number: int, gpus: int, cpu: int, memory: int) -> int:
    """The same for nodes with shared or overdrawn GPUs, which are followed one by one."""
    free, closed = list(nodes.gpu_free[number]), find_closed(nodes, shape, number)
    if not closed and not shape.user and cpu >= 0 and memory >= 0:
        milli = shape.milli
        if len([left for left in free if left >= milli]) >= gpus:
            return 0
        for end_ms, grant in sorted(nodes.attempts_on[number].values()):
            for gpu in positions[grant.gpus]:
                free[gpu] += grant.milli
            if len([left for left in free if left >= milli]) >= gpus:
                return end_ms or 1
        return NEVER_MS
    for gpu in each(closed):
        free[gpu] = -NEVER_MS
    end_ms = 0
    rows = iter(nodes.ends(number))
    others = _others(nodes, shape, number)
    while (
        sum(left >= shape.milli and not others.get(gpu) for gpu, left in enumerate(free)) < gpus
        or min(cpu, memory) < 0
    ):
        row = next(rows, None)
        if row is None:
            return NEVER_MS
        end_ms, _job_id, grant = row
        # An end at time 0 is still to come, but 0 means that there is room already.
        end_ms = end_ms or 1
        _give(free, grant)
        _leave(others, shape, grant)
        cpu += grant.cpu_milli
        memory += grant.memory_mib
    return end_ms


def find_closed(nodes: Nodes, shape: Shape, number: int) -> int:
    """GPUs of a node, as a mask, that are never promised to this ask, however free they become.

    A pinned GPU is not cut on demand. A cut GPU takes slices as long as they fit, so no expected end says when it could
    take a share.
    """
    if shape.profile:
        return sum([1 << gpu for gpu in nodes.pins.get(number, ())])
    return cut_mask(nodes, number) if shape.milli != MILLI and number in nodes.slices_used else 0


def is_end_unknown(nodes: Nodes, shape: Shape) -> bool:
    """Whether no expected end says when there is room: slices wait until more GPUs are whole than must stay whole, and
    jobs for whole GPUs may take those."""
    return bool(shape.profile and nodes.whole_reserve)


def _others(nodes: Nodes, shape: Shape, number: int) -> dict[int, int]:
    """By GPU, how many shares of other users are in the way of a share that may only sit beside its own user's."""
    if not shape.user:
        return {}
    rows = nodes.sharers.get(number, {})
    return {gpu: sum([n for user, n in users.items() if user != shape.user]) for gpu, users in rows.items()}


def _leave(others: dict[int, int], shape: Shape, grant: Grant) -> None:
    """A share of another user ends. Only shares care about users: jobs for whole GPUs wait until the GPU is free."""
    if shape.user and grant.user and grant.user != shape.user:
        for gpu in each(grant.gpus):
            others[gpu] = others.get(gpu, 0) - 1


def _give(free: list[int], grant: Grant) -> None:
    for gpu in each(grant.gpus):
        free[gpu] += grant.milli


def promise(current: Pass, record: JobRecord) -> Promise | None:
    """The earliest start over all ways to serve the job; the cheapest way among equals."""
    state, nodes = current.state, current.state.nodes
    if is_end_unknown(nodes, record.shape):
        return None
    known = state.caches.get(_PROMISE)
    if current.rules and state.tenants.holding:
        # The job has room, but would eat into what other tenants hold back until enough running jobs have ended.
        found = _best(
            state,
            record.shape,
            lambda way, at_ms: unheld_from_ms(
                state, current.now_ms, current.started, record, way.model, max(at_ms, current.now_ms)
            ),
        )
        known = _Known(record.id, nodes, found)
    elif current.drafted or known is None or not known.holds_for(record.id, nodes):
        known = _Known(record.id, nodes, _best(state, record.shape))
        if not current.drafted:
            state.caches.put(_PROMISE, known)
    best = known.promise
    if best is not None and not best.at_ms and record.shape.profile:
        # A GPU is free and may not be cut, because it is pinned to stay whole: no expected end changes that.
        return None
    if best is not None and best.at_ms <= current.now_ms:
        # An overdue attempt is expected to end right away.
        return Promise(record.shape, current.now_ms + 1, best.where)
    if best is not None:
        best.forget_holds()
    return best


class _Known:
    """The last promise that was worked out.

    It stands while no room is gained and nothing starts on its own nodes: then no other node is ready sooner than
    before. Most passes follow an arrival, or a start elsewhere.
    """

    __slots__ = ("_epoch", "_generation", "_job_id", "_read", "promise")

    def __init__(self, job_id: int, nodes: Nodes, promise: Promise | None) -> None:
        self._job_id = job_id
        self._generation = nodes.room_generation
        self._epoch = nodes.epoch
        self._read = len(nodes.touched)
        self.promise = promise

    def holds_for(self, job_id: int, nodes: Nodes) -> bool:
        if self._job_id != job_id or self._generation != nodes.room_generation or self._epoch != nodes.epoch:
            return False
        touched = nodes.touched
        if self._read < len(touched):
            if self.promise is not None and not self.promise.where.keys().isdisjoint(touched[self._read :]):
                return False
            self._read = len(touched)
        return True


_PROMISE: CacheSlot[_Known] = CacheSlot("last promise")


def _best(state: State, shape: Shape, unheld_ms: Callable[[Way, int], int] | None = None) -> Promise | None:
    best: tuple[int, list[tuple[int, int]]] | None = None
    for way in shape.ways:
        found = _earliest(state, shape, way)
        if found is not None and unheld_ms is not None:
            at_ms = unheld_ms(way, found[0])
            found = (at_ms, found[1]) if at_ms < NEVER_MS else None
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    return None if best is None else Promise(shape, best[0], dict(best[1]))


def find_soonest(state: State, shape: Shape, way: Way, tasks: int) -> list[int]:
    """When each node will have room for `tasks` tasks, soonest first, with the node in the low bits."""
    if shape.gpus_alone and way.pools == -1:
        return _by_gpus(state, way.kind, shape.gpus * tasks, shape.milli)
    times = _kept(state, way.index, tasks, 0)
    if not isinstance(times, ReadyTimes):
        times = ReadyTimes(state.nodes, shape, way.kind, way.pools, tasks)
        _keep(state, way.index, tasks, 0, times)
    return times.refresh(state.nodes)


def _by_gpus(state: State, kind: int, gpus: int, milli: int) -> list[int]:
    """The same for an ask for so many GPUs, or parts of GPUs, and nothing else: many asks share it."""
    times = _kept(state, -1 - kind, gpus, milli)
    if not isinstance(times, ReadyTimes):
        request: Whole | Milli = Whole(gpus) if milli == MILLI else Milli(gpus, milli)
        times = ReadyTimes(state.nodes, Shape(-1, Ask(request)), kind, -1, 1)
        _keep(state, -1 - kind, gpus, milli, times)
    return times.refresh(state.nodes)


def _kept(state: State, which: int, many: int, milli: int) -> ReadyTimes | Looked | None:
    kept = state.caches.get(READY)
    return None if kept is None else kept.get((which, many, milli))


def _keep(state: State, which: int, many: int, milli: int, times: ReadyTimes | Looked) -> None:
    kept = state.caches.get(READY)
    if kept is None or len(kept) >= _KEPT_MAX:
        kept = state.caches.put(READY, {})
    kept[which, many, milli] = times


def in_time(state: State, shape: Shape, way: Way, tasks: int) -> Iterator[int]:
    """Like `find_soonest`, one after the other: mostly the first few are all that is asked for.

    No node has the room sooner than it has the GPUs. So nodes are looked at in the order in which they have these.
    """
    nodes, gpus = state.nodes, shape.gpus * tasks
    members = nodes.kinds[way.kind].members & way.pools
    if not gpus or shape.profile or shape.user or (shape.gpus_alone and way.pools == -1):
        yield from find_soonest(state, shape, way, tasks)
        return
    times = _kept(state, way.index, tasks, 0)
    if not isinstance(times, Looked):
        times = Looked()
        _keep(state, way.index, tasks, 0, times)
    known = times.refresh(nodes)
    found: list[int] = []
    for low in _by_gpus(state, way.kind, gpus, shape.milli):
        while found and found[0] < low:
            yield heappop(found)
        number = low & NODE_MASK
        if way.pools == -1 or members >> number & 1:
            packed = known.get(number)
            if packed is None:
                packed = known[number] = ready_ms(nodes, shape, number, tasks) << NODE_BITS | number
            heappush(found, packed)
    while found:
        yield heappop(found)


def _earliest(state: State, shape: Shape, way: Way) -> tuple[int, list[tuple[int, int]]] | None:
    """The time, and how many tasks go on each node."""
    chosen: list[tuple[int, int]] = []
    at_ms, full_nodes = 0, way.full_nodes
    if full_nodes:
        if shape.gpus_alone and way.pools == -1:
            # Mostly: all times are kept in order, so nothing needs to be looked at one by one.
            first = find_soonest(state, shape, way, way.tasks_per_node)[:full_nodes]
        else:
            first = list(islice(in_time(state, shape, way, way.tasks_per_node), full_nodes))
        at_ms = first[-1] >> NODE_BITS
        chosen = [(packed & NODE_MASK, way.tasks_per_node) for packed in first]
    if way.rest_tasks:
        taken = {number for number, _tasks in chosen}
        ready = in_time(state, shape, way, way.rest_tasks)
        rest = next(packed for packed in ready if packed & NODE_MASK not in taken)
        at_ms = max(at_ms, rest >> NODE_BITS)
        chosen.append((rest & NODE_MASK, way.rest_tasks))
    return None if at_ms >= NEVER_MS else (at_ms, chosen)


def _holds(nodes: Nodes, shape: Shape, number: int, tasks: int, at_ms: int) -> list[Grant]:
    """What a node must keep free now so that it has the room then. GPUs that are still in use are chosen first."""
    cpu_now, memory_now = nodes.cpu_free[number], nodes.memory_free[number]
    cpu, memory = cpu_now, memory_now
    ending = []
    for end_ms, _job_id, grant in nodes.ends(number):
        if end_ms > at_ms:
            break
        ending.append(grant)
        cpu += grant.cpu_milli
        memory += grant.memory_mib
    now = nodes.gpu_free[number]
    then, others = list(now), _others(nodes, shape, number)
    for grant in ending:
        _give(then, grant)
        _leave(others, shape, grant)
    for gpu in each(find_closed(nodes, shape, number)):
        then[gpu] = -NEVER_MS
    will_do = sorted(
        [
            (left if left > 0 else 0, gpu)
            for gpu, left in enumerate(now)
            if then[gpu] >= shape.milli and not others.get(gpu)
        ]
    )
    if shape.in_domain:
        kind = nodes.kind_of[number]
        mask = choose_in_domains(
            _whole(then), tasks, shape.gpus, kind.domain_size, kind.close_gpus, kind.gpus
        )
        will_do = [(free, gpu) for free, gpu in will_do if mask >> gpu & 1]
    by_milli: dict[int, int] = {}
    for free, gpu in will_do[: gpus_on_node(nodes, shape, number) * tasks]:
        keep = max(0, free - (then[gpu] - shape.milli))
        if keep or shape.user:
            # With one user per shared GPU, the GPU belongs to that user by then, even if nothing of it is kept now.
            by_milli[keep] = by_milli.get(keep, 0) | 1 << gpu
    holds = [Grant(number, mask, keep, 0, 0, 0, (), shape.user) for keep, mask in sorted(by_milli.items())]
    keep_cpu = cpu_now - (cpu - shape.cpu_milli * tasks)
    keep_memory = memory_now - (memory - shape.memory_mib * tasks)
    kept = (max(0, keep_cpu), max(0, keep_memory))
    return [*holds, *keep_cores(number, kept, kept_beside(nodes, shape, number, tasks, at_ms))]
