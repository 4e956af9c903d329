"""What would have to go for a job to have room: on which nodes, and which jobs, holds and faults there.

Of all nodes that could serve the job, those are chosen that can have the room soonest if what runs ends as promised.
What stands in the way there is told apart: jobs that run, room kept for others, processes from outside the yard, and
nodes that take nothing new.
"""

from dataclasses import replace
from typing import NamedTuple

from gpuyard.core.fleet.bits import each, positions
from gpuyard.core.fleet.claims import pinned_mask
from gpuyard.core.fleet.shapes import Shape, Way
from gpuyard.core.fleet.ways import gpus_on_node
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state.state import State
from gpuyard.model import AddNodes, Ask, Grant, Milli, Node, Whole
from gpuyard.model.units import DAY_MS, MILLI

_UNFORESEEN_MS = DAY_MS
"""Nobody knows when a node is mended or someone outside the yard leaves: it is taken to be no sooner than this."""


class Holder(NamedTuple):
    """Something that holds a part of a node."""

    when_ms: int
    """When it may be gone."""
    job_id: int
    """0: someone outside the yard; -1: nobody, GPUs that are pinned to slices."""
    kept: bool
    """Whether the job waits, and this is only kept for it."""
    grant: Grant


class Obstacles(NamedTuple):
    """What keeps room from a job on the nodes that would have it soonest."""

    when_ms: int
    """When it could be there; 0: it is there."""
    running: tuple[int, ...] = ()
    """Jobs that would have to end."""
    kept: tuple[int, ...] = ()
    """Jobs for which room is kept there."""
    foreign: tuple[int, ...] = ()
    """Nodes on which someone outside the yard is in the way."""
    closed: tuple[int, ...] = ()
    """Nodes that take nothing new."""
    pinned: tuple[int, ...] = ()
    """Nodes with GPUs that are pinned to slices."""


NOTHING = Obstacles(0)


def obstacles(state: State, record: JobRecord, way: Way, now_ms: int) -> Obstacles:
    """What is in the way of a job that is served one way."""
    shape, members = record.shape, state.nodes.kinds[way.kind].members & way.pools
    if way.full_nodes == 1 and not way.rest_tasks:
        layout = [(way.tasks_per_node, 1)]
    else:
        layout = [(way.tasks_per_node, way.full_nodes), (way.rest_tasks, 1)]
    chosen: dict[int, tuple[tuple[int, int, int], list[Holder]]] = {}
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


def on_grants(state: State, record: JobRecord, grants: tuple[Grant, ...], now_ms: int) -> Obstacles:
    """What is in the way of a job for which just this room is kept."""
    there = [
        (grant, holder)
        for grant in grants
        for holder in _holders(state, grant.node, record.id, now_ms)
        if holder.job_id > 0 and not holder.kept
    ]
    running = {holder.job_id for grant, holder in there if holder.grant.gpus & grant.gpus}
    # Where no GPU is shared it is cores or memory that they wait for.
    running = running or {holder.job_id for _grant, holder in there}
    taken = {number: mask for number, (mask, _who) in state.nodes.foreign.items()}
    foreign = [grant.node for grant in grants if taken.get(grant.node, 0) & grant.gpus]
    closed = [grant.node for grant in grants if state.nodes.shut(grant.node)]
    return Obstacles(0, tuple(sorted(running)), (), tuple(sorted(foreign)), tuple(sorted(closed)))


def _holders(state: State, number: int, but: int, now_ms: int) -> list[Holder]:
    """All who hold a part of a node, but one job: who goes first comes first."""
    nodes = state.nodes
    found = [
        Holder(end_ms, job_id, False, grant)
        for job_id, (end_ms, grant) in nodes.on[number].items()
        if job_id != but
    ]
    later_ms = now_ms + _UNFORESEEN_MS
    for job_id, other in state.earmarks.items():
        if other.earmark is not None and job_id != but:
            found += [Holder(later_ms, job_id, True, g) for g in other.earmark.grants if g.node == number]
    mask, _who = nodes.foreign.get(number, (0, ""))
    if mask:
        found.append(Holder(later_ms, 0, False, Grant(number, mask, MILLI, 0, 0, 0)))
    if pinned := pinned_mask(nodes, number):
        found.append(Holder(later_ms, -1, False, Grant(number, pinned, MILLI, 0, 0, 0)))
    return sorted(found, key=lambda holder: (holder.when_ms, holder.job_id))


def _to_go(state: State, shape: Shape, number: int, tasks: int, but: int, now_ms: int) -> list[Holder]:
    """Who would have to go from a node for it to have room for so many tasks; nobody who could stay."""
    holders = _holders(state, number, but, now_ms)
    staying, going = list(holders), []
    while staying and not _fits(state, shape, number, tasks, staying):
        going.append(staying.pop(0))
    for holder in reversed(going[:-1]):
        if _fits(state, shape, number, tasks, [*staying, holder]):
            going.remove(holder)
            staying.append(holder)
    return going


def _fits(state: State, shape: Shape, number: int, tasks: int, staying: list[Holder]) -> bool:
    """Whether an open node with only these on it would hold so many tasks."""
    most = state.nodes.attempts_max
    if most and sum([holder.job_id > 0 and not holder.kept for holder in staying]) >= most:
        return False
    node = state.nodes.node[number]
    left = [MILLI] * node.gpus
    others = 0
    cpu_milli, memory_mib = node.cpu_milli, node.memory_mib
    for holder in staying:
        for gpu in positions[holder.grant.gpus]:
            left[gpu] -= holder.grant.milli
        if holder.grant.slices or (shape.user and holder.grant.user not in ("", shape.user)):
            others |= holder.grant.gpus
        cpu_milli -= holder.grant.cpu_milli
        memory_mib -= holder.grant.memory_mib
    whole = shape.milli == MILLI
    fitting = sum(
        [
            milli == MILLI if whole else milli >= shape.milli and not others >> gpu & 1
            for gpu, milli in enumerate(left)
        ]
    )
    return (
        fitting >= gpus_on_node(state.nodes, shape, number) * tasks
        and cpu_milli >= shape.cpu_milli * tasks
        and memory_mib >= shape.memory_mib * tasks
    )


# -- what no node of the fleet could hold --------------------------------------------------------------------------


def servable(ask: Ask) -> Ask:
    """The nearest ask that some fleet could serve: whole GPUs, nodes of any name, spread only as far as that goes."""
    shared = not isinstance(ask.gpus, Whole) and not (isinstance(ask.gpus, Milli) and ask.tasks == 1)
    most = _even(ask.tasks, ask.nodes_min, ask.tasks)
    spreads = ask.tasks >= ask.nodes_min and (not ask.nodes_max or -(-ask.tasks // most) <= ask.nodes_max)
    return replace(
        ask,
        gpus=Whole(ask.gpus.count) if shared else ask.gpus,
        on_nodes=(),
        nodes_min=ask.nodes_min if spreads else 0,
    )


def _even(tasks: int, nodes_min: int, most: int) -> int:
    """How many tasks go on a node, as `core.fleet.shapes` has it: as even as they go, never on too few nodes."""
    if nodes_min <= 1:
        return most
    return max(1, min(most, -(-tasks // nodes_min), -(-tasks // (nodes_min - 1)) - 1))


def nodes_to_add(state: State, shape: Shape) -> AddNodes:
    """The nodes that a fleet lacks for which a job is too large: the fewest of a kind there is, or larger ones.

    Where the engine of a cluster cannot do what the job needs, they are of a cluster whose engine can.
    """
    ask, lacks = shape.ask, state.nodes.lacks
    fitting = [
        node
        for node in state.nodes.node
        if (not ask.models or (node.gpus and node.gpu_model in ask.models))
        and (not ask.pools or node.pool in ask.pools)
        and node.name not in ask.not_nodes
        and all([not set(group).isdisjoint(node.features) for group in ask.features])
        and not shape.needs & lacks.get(node.cluster, frozenset())
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
    features = dict.fromkeys([*most.features, *[group[0] for group in ask.features]])
    count = -(-shape.tasks // tasks)
    like = replace(
        most,
        cluster=most.cluster
        if not shape.needs & lacks.get(most.cluster, frozenset())
        else f"{most.cluster}+",
        pool=ask.pools[0] if ask.pools else most.pool,
        gpu_model=ask.models[0] if ask.models else most.gpu_model or (_NODE.gpu_model if shape.gpus else ""),
        gpus=max(most.gpus, shape.gpus * tasks, 1 if ask.models else 0),
        cpu_milli=max(most.cpu_milli, shape.cpu_milli * tasks),
        memory_mib=max(most.memory_mib, shape.memory_mib * tasks),
        features=tuple(features),
    )
    per_node = _tasks_on_empty(like, shape)
    return AddNodes(like, -(-shape.tasks // per_node) if per_node else count)


_NODE = Node("node", "main", "default", "H100", 8, 64 * MILLI, 1 << 20)
"""What is added to a fleet that has nothing to go by."""


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
        and (one.gpu_model if one.gpus else "") == (other.gpu_model if other.gpus else "")
        and (one.gpus, one.cpu_milli, one.memory_mib, one.nvlink_group_size)
        == (other.gpus, other.cpu_milli, other.memory_mib, other.nvlink_group_size)
    )
