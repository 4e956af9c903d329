"""What would have to go for a job to have room: on which nodes, and which jobs, earmarks and other obstacles there.

Of all nodes that could serve the job, those are chosen that can have the room soonest if running jobs end as expected.
The obstacles there are kept apart: running jobs, room kept for other jobs, processes from outside the yard, and nodes
that take no new jobs.
"""

from dataclasses import replace
from typing import NamedTuple

from gpuyard.core.fleet.bits import each, positions, tasks_in_domains
from gpuyard.core.fleet.claims import pinned_mask
from gpuyard.core.fleet.nodes import is_without_gpus
from gpuyard.core.fleet.shapes import Shape, Way
from gpuyard.core.fleet.ways import gpus_on_node
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state.state import State
from gpuyard.model import AddNodes, Ask, Grant, Milli, Node, Whole
from gpuyard.model.units import DAY_MS, MILLI

_UNFORESEEN_MS = DAY_MS
"""How long a node stays closed or a foreign process stays is unknown: at least this long is assumed."""


class RoomHolder(NamedTuple):
    """Something that holds a part of a node."""

    when_ms: int
    """When it may be gone."""
    job_id: int
    """0: a process outside the yard; -1: GPUs that are pinned to slices."""
    kept: bool
    """Whether the room is only kept for the job, which waits."""
    grant: Grant


class Obstacles(NamedTuple):
    """What keeps a job from having room on the nodes that would have it soonest."""

    when_ms: int
    """When the room could be there; 0: it is there."""
    running: tuple[int, ...] = ()
    """Jobs that would have to end."""
    kept: tuple[int, ...] = ()
    """Jobs for which room is kept there."""
    foreign: tuple[int, ...] = ()
    """Nodes on which processes outside the yard are in the way."""
    closed: tuple[int, ...] = ()
    """Nodes that take no new jobs."""
    pinned: tuple[int, ...] = ()
    """Nodes with GPUs that are pinned to slices."""


NOTHING = Obstacles(0)


def find_obstacles(state: State, record: JobRecord, way: Way, now_ms: int) -> Obstacles:
    """The obstacles of a job that is served one way."""
    shape, members = record.shape, state.nodes.kinds[way.kind].members & way.pools
    if way.full_nodes == 1 and not way.rest_tasks:
        layout = [(way.tasks_per_node, 1)]
    else:
        layout = [(way.tasks_per_node, way.full_nodes), (way.rest_tasks, 1)]
    chosen: dict[int, tuple[tuple[int, int, int], list[RoomHolder]]] = {}
    for tasks, count in layout:
        if not tasks:
            continue
        found = []
        for number in each(members):
            if number not in chosen:
                gone = _to_go(state, shape, number, tasks, record.id, now_ms)
                when_ms = max([holder.when_ms for holder in gone], default=0)
                if state.nodes.shut(number):
                    when_ms = max(when_ms, now_ms + _UNFORESEEN_MS)
                found.append(((when_ms, len(gone), number), gone))
        for cost, gone in sorted(found, key=lambda pair: pair[0])[:count]:
            chosen[cost[2]] = (cost, gone)
    holders = [holder for _cost, gone in chosen.values() for holder in gone]
    return Obstacles(
        max([cost[0] for cost, _gone in chosen.values()], default=0),
        tuple(sorted({h.job_id for h in holders if h.job_id > 0 and not h.kept})),
        tuple(sorted({h.job_id for h in holders if h.kept})),
        tuple(sorted({h.grant.node for h in holders if not h.job_id})),
        tuple(sorted([number for number in chosen if state.nodes.shut(number)])),
        tuple(sorted({h.grant.node for h in holders if h.job_id < 0})),
    )


def find_obstacles_on(state: State, record: JobRecord, grants: tuple[Grant, ...], now_ms: int) -> Obstacles:
    """The obstacles of a job that has exactly this room earmarked."""
    there = [
        (grant, holder)
        for grant in grants
        for holder in _holders(state, grant.node, record.id, now_ms)
        if holder.job_id > 0 and not holder.kept
    ]
    running = {holder.job_id for grant, holder in there if holder.grant.gpus & grant.gpus}
    # If no GPU overlaps, the job waits for cores or memory.
    running = running or {holder.job_id for _grant, holder in there}
    taken = {number: mask for number, (mask, _who) in state.nodes.foreign.items()}
    foreign = [grant.node for grant in grants if taken.get(grant.node, 0) & grant.gpus]
    closed = [grant.node for grant in grants if state.nodes.shut(grant.node)]
    return Obstacles(0, tuple(sorted(running)), (), tuple(sorted(foreign)), tuple(sorted(closed)))


def _holders(state: State, number: int, but: int, now_ms: int) -> list[RoomHolder]:
    """Everything that holds a part of a node, except one job; the first to go comes first."""
    nodes = state.nodes
    found = [
        RoomHolder(end_ms, job_id, False, grant)
        for job_id, (end_ms, grant) in nodes.attempts_on[number].items()
        if job_id != but
    ]
    later_ms = now_ms + _UNFORESEEN_MS
    for job_id, other in state.earmarks.items():
        if other.earmark is not None and job_id != but:
            found += [RoomHolder(later_ms, job_id, True, g) for g in other.earmark.grants if g.node == number]
    mask, _who = nodes.foreign.get(number, (0, ""))
    if mask:
        found.append(RoomHolder(later_ms, 0, False, Grant(number, mask, MILLI, 0, 0, 0)))
    if pinned := pinned_mask(nodes, number):
        found.append(RoomHolder(later_ms, -1, False, Grant(number, pinned, MILLI, 0, 0, 0)))
    return sorted(found, key=lambda holder: (holder.when_ms, holder.job_id))


def _to_go(state: State, shape: Shape, number: int, tasks: int, but: int, now_ms: int) -> list[RoomHolder]:
    """What would have to go from a node to make room for `tasks` tasks, and nothing that could stay."""
    holders = _holders(state, number, but, now_ms)
    staying, going = list(holders), []
    while staying and not _fits(state, shape, number, tasks, staying):
        going.append(staying.pop(0))
    for holder in reversed(going[:-1]):
        if _fits(state, shape, number, tasks, [*staying, holder]):
            going.remove(holder)
            staying.append(holder)
    return going


def _fits(state: State, shape: Shape, number: int, tasks: int, staying: list[RoomHolder]) -> bool:
    """Whether an open node with only these holders would have room for `tasks` tasks."""
    most = state.nodes.attempts_max
    if most and sum([holder.job_id > 0 and not holder.kept for holder in staying]) >= most:
        return False
    node = state.nodes.node[number]
    left = [MILLI] * node.gpus
    others = 0
    cpu_milli, memory_mib = node.cpu_milli, node.memory_mib
    cores, memory = (0, 0) if shape.gpus else state.nodes.beside_most.get(number, (cpu_milli, memory_mib))
    for holder in staying:
        for gpu in positions[holder.grant.gpus]:
            left[gpu] -= holder.grant.milli
        if holder.grant.slices or (shape.user and holder.grant.user not in ("", shape.user)):
            others |= holder.grant.gpus
        cpu_milli -= holder.grant.cpu_milli
        memory_mib -= holder.grant.memory_mib
        if not shape.gpus and is_without_gpus(holder.grant):
            cores -= holder.grant.cpu_milli
            memory -= holder.grant.memory_mib
    if not shape.gpus:
        cpu_milli, memory_mib = min(cpu_milli, cores), min(memory_mib, memory)
    whole = shape.milli == MILLI
    fitting = sum(
        [
            milli == MILLI if whole else milli >= shape.milli and not others >> gpu & 1
            for gpu, milli in enumerate(left)
        ]
    )
    if shape.in_domain:
        size = state.nodes.kind_of[number].domain_size
        free = sum([1 << gpu for gpu, milli in enumerate(left) if milli == MILLI])
        fitting = tasks_in_domains(free, shape.gpus, size) * shape.gpus
    return (
        fitting >= gpus_on_node(state.nodes, shape, number) * tasks
        and cpu_milli >= shape.cpu_milli * tasks
        and memory_mib >= shape.memory_mib * tasks
    )


# -- jobs that no node of the fleet could hold ---------------------------------------------------------------------


def make_servable(ask: Ask) -> Ask:
    """The nearest ask that some fleet could serve: whole GPUs, nodes of any name, spread no further than possible."""
    shared = not isinstance(ask.gpus, Whole) and not (isinstance(ask.gpus, Milli) and ask.tasks == 1)
    most = _even(ask.tasks, ask.nodes_min, ask.tasks)
    spreads = ask.tasks >= ask.nodes_min and (not ask.nodes_max or -(-ask.tasks // most) <= ask.nodes_max)
    return replace(
        ask,
        gpus=Whole(ask.gpus.count) if shared else ask.gpus,
        on_nodes=(),
        nodes_min=ask.nodes_min if spreads else 0,
        level=None,
        level_required=False,
        level_ms=0,
        one_domain=False,
    )


def _even(tasks: int, nodes_min: int, most: int) -> int:
    """How many tasks go on a node, as in `core.fleet.ways`: as even as possible, never on too few nodes."""
    if nodes_min <= 1:
        return most
    return max(1, min(most, -(-tasks // nodes_min), -(-tasks // (nodes_min - 1)) - 1))


def find_nodes_to_add(state: State, shape: Shape) -> AddNodes:
    """The nodes that the fleet lacks for a job: the fewest of an existing kind, or larger ones.

    If the engine of a cluster cannot do what the job needs, they belong to a cluster with an engine that can.
    """
    ask, lacks = shape.ask, state.nodes.lacks
    open_to = state.nodes.marks.open_to(ask.features, ask.selects, ask.tolerates)
    fitting = [
        node
        for number, node in enumerate(state.nodes.node)
        if open_to >> number & 1
        and (shape.gpus or number not in state.nodes.beside)
        and (not ask.models or (node.gpus and node.gpu_model in ask.models))
        and (not ask.pools or node.pool in ask.pools)
        and (not ask.clusters or node.cluster in ask.clusters)
        and {node.name, f"{node.cluster}:{node.name}"}.isdisjoint(ask.not_nodes)
        and not shape.needs & lacks.get(node.cluster, frozenset())
        and f"{node.cluster}/{node.pool}" not in shape.closed
    ]
    found: list[tuple[int, str, Node]] = []
    for node in fitting:
        per_node = _tasks_on_empty(node, shape)
        fewest = -(-shape.tasks // per_node) if per_node else 0
        if fewest and (not ask.nodes_max or fewest <= ask.nodes_max):
            alike = [other for other in fitting if _alike(other, node)]
            found.append((fewest - len(alike), node.name, node))
    if found:
        count, _name, like = min(found, key=lambda each: each[:2])
        return AddNodes(like, max(1, count))
    most = max(fitting or state.nodes.node, key=lambda node: (node.gpus, node.name), default=_NODE)
    tasks = -(-shape.tasks // ask.nodes_max) if ask.nodes_max else 1
    # Where pools reserve cores for GPUs, jobs without GPUs lack nodes without.
    gpus = 0 if state.nodes.beside and not shape.gpus else most.gpus
    features = dict.fromkeys([*most.features, *[group[0] for group in ask.features]])
    count = -(-shape.tasks // tasks)
    like = replace(
        most,
        cluster=_home(state, shape, most.cluster),
        pool=ask.pools[0] if ask.pools else most.pool,
        gpu_model=ask.models[0] if ask.models else most.gpu_model or (_NODE.gpu_model if shape.gpus else ""),
        gpus=max(gpus, shape.gpus * tasks, 1 if ask.models else 0),
        cpu_milli=max(most.cpu_milli, shape.cpu_milli * tasks),
        memory_mib=max(most.memory_mib, shape.memory_mib * tasks),
        features=tuple(features),
    )
    per_node = _tasks_on_empty(like, shape)
    return AddNodes(like, -(-shape.tasks // per_node) if per_node else count)


def _home(state: State, shape: Shape, known: str) -> str:
    """The cluster of nodes that are to be added: one that the job names, else this one, or one with another engine."""
    able = [
        name
        for name in shape.ask.clusters or (known,)
        if not shape.needs & state.nodes.lacks.get(name, frozenset())
    ]
    return able[0] if able else f"{known}+"


_NODE = Node("node", "main", "default", "H100", 8, 64 * MILLI, 1 << 20)
"""The node that is added to a fleet without any to copy."""


def _tasks_on_empty(node: Node, shape: Shape) -> int:
    most = shape.tasks
    for want, have in (
        (shape.gpus, node.gpus),
        (shape.cpu_milli, node.cpu_milli),
        (shape.memory_mib, node.memory_mib),
    ):
        if want:
            most = min(most, have // want)
    return _even(shape.tasks, shape.ask.nodes_min, most) if most else 0


def _alike(one: Node, other: Node) -> bool:
    """Whether two nodes may serve one gang together."""
    return (
        one.cluster == other.cluster
        and one.fabric == other.fabric
        and (one.gpu_model if one.gpus else "") == (other.gpu_model if other.gpus else "")
        and (one.gpus, one.cpu_milli, one.memory_mib, one.close_gpus)
        == (other.gpus, other.cpu_milli, other.memory_mib, other.close_gpus)
    )
