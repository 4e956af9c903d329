"""Finding room: what every placement policy shares.

A placement policy says which node it prefers; what "fits" means is defined here once, for single tasks, for shares of
a GPU and for gangs.
"""

from collections.abc import Callable, Iterable, Iterator

from gpuyard.core.fleet.bits import choose_gpus, choose_in_domains, each, positions, tasks_in_domains
from gpuyard.core.fleet.kinds import Kind
from gpuyard.core.fleet.levels import SWITCH, in_order, near, nearest_first
from gpuyard.core.fleet.mig_placing import place_slices
from gpuyard.core.fleet.nodes import Nodes, find_barred
from gpuyard.core.fleet.shapes import ONE, Shape, Way
from gpuyard.model import Grant
from gpuyard.model.units import MILLI

_new = tuple.__new__
"""What a named tuple's constructor calls, without the Python function around it: half the time."""

_GRANTS_MAX = 10_000
"""How many grants of one ask are kept for reuse."""

Placer = Callable[[Nodes, Shape, Way, int], "tuple[Grant, ...] | None"]
"""Finds room for a shape served one way, among a set of nodes; None: there is none."""

Ranker = Callable[[Nodes, Shape], Iterable[Way]]
"""The order in which the ways to serve a shape are tried."""


def find_ways(nodes: Nodes, shape: Shape, rank: Ranker | None) -> Iterable[Way]:
    """The ways of an ask in the order in which they are tried: preferred nodes first, then as the placement ranks."""
    ways = shape.ways if rank is None else rank(nodes, shape)
    if not shape.tiers:
        return ways
    order = list(ways)
    narrow = [tier[way.index] for tier in shape.tiers for way in order if way.index in tier]
    return [*narrow, *order]


def grant_tasks(nodes: Nodes, shape: Shape, number: int, tasks: int) -> Grant:
    """`tasks` tasks of a whole-GPU shape on a node that has the room."""
    gpus = 0
    if shape.gpus:
        kind = nodes.kinds[nodes.kind[number]]
        gpus = choose_on(nodes.free_mask[number], shape, tasks, kind)
    return _new(
        Grant, (number, gpus, MILLI, shape.cpu_milli * tasks, shape.memory_mib * tasks, tasks, (), "")
    )


def choose_on(free: int, shape: Shape, tasks: int, kind: Kind) -> int:
    """Which of the free GPUs of a node so many tasks of a whole-GPU shape get."""
    if shape.in_domain:
        return choose_in_domains(free, tasks, shape.gpus, kind.domain_size, kind.close_gpus, kind.gpus)
    return choose_gpus(free, shape.gpus * tasks, kind.group_size, kind.gpus, kind.inner_size)


def has_room(nodes: Nodes, shape: Shape, number: int, tasks: int) -> bool:
    """Whether cores and memory suffice for `tasks` tasks; for GPUs, the node's bucket guarantees it."""
    if shape.in_domain and not has_domains(nodes, shape, number, tasks):
        return False
    return (
        shape.cpu_milli * tasks <= nodes.cpu_free[number]
        and shape.memory_mib * tasks <= nodes.memory_free[number]
        and (
            shape.gpus > 0
            or number not in nodes.beside
            or (
                shape.cpu_milli * tasks <= nodes.beside[number][0]
                and shape.memory_mib * tasks <= nodes.beside[number][1]
            )
        )
    )


def has_domains(nodes: Nodes, shape: Shape, number: int, tasks: int) -> bool:
    """Whether each of these tasks could have its GPUs in one NUMA domain."""
    size = nodes.kind_of[number].domain_size
    return tasks_in_domains(nodes.free_mask[number], shape.gpus, size) >= tasks


def place_best_fit(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    """One task on the node with the fewest free GPUs that holds it; of equals, the lowest number."""
    kind = nodes.kinds[way.kind]
    gpus, room_for_sure = shape.gpus, shape.whole_only and not nodes.needs_full_check
    for bucket in kind.buckets[gpus:]:
        if not bucket:
            continue
        members = bucket & among
        while members:
            low = members & -members
            number = low.bit_length() - 1
            if room_for_sure or has_room(nodes, shape, number, 1):
                free = nodes.free_mask[number]
                if gpus == 1 and kind.one_group and not shape.in_domain:
                    mask = free & -free
                else:
                    mask = choose_on(free, shape, 1, kind) if gpus else 0
                grants = shape.grants.get((number, mask))
                if grants is None:
                    grants = _grants_of_one(shape, number, mask)
                return grants
            members ^= low
    return None


def _grants_of_one(shape: Shape, number: int, mask: int) -> tuple[Grant, ...]:
    """Equal grants share one value: a node has few GPUs, and the same ones are granted again and again."""
    if len(shape.grants) >= _GRANTS_MAX:
        shape.grants.clear()
    grant = Grant(number, mask, MILLI, shape.cpu_milli, shape.memory_mib, 1)
    grants = shape.grants[number, mask] = (grant,)
    return grants


def place_first_fit(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    """One task on the lowest-numbered node that holds it."""
    members = 0
    for bucket in nodes.kinds[way.kind].buckets[shape.gpus :]:
        members |= bucket
    for number in each(members & among):
        if has_room(nodes, shape, number, 1):
            return (grant_tasks(nodes, shape, number, 1),)
    return None


def share_gpus(nodes: Nodes, shape: Shape, number: int) -> int:
    """GPUs of a node for one task that wants parts of GPUs: those with the least left that suffice; 0: none."""
    free = nodes.gpu_free[number]
    out = find_barred(nodes, number, shape.user)
    fitting = sorted(
        (left, gpu) for gpu, left in enumerate(free) if left >= shape.milli and not out >> gpu & 1
    )
    if len(fitting) < shape.gpus:
        return 0
    mask = 0
    for _left, gpu in fitting[: shape.gpus]:
        mask |= 1 << gpu
    return mask


def share_candidates(nodes: Nodes, way: Way, among: int) -> Iterator[int]:
    """Nodes that might hold parts of GPUs: those with a shared GPU first, then by fewest free GPUs."""
    kind = nodes.kinds[way.kind]
    yield from each(kind.partial & among)
    for free in range(1, len(kind.buckets)):
        yield from each(kind.buckets[free] & among & ~kind.partial)


def share_grant(shape: Shape, number: int, gpus: int) -> tuple[Grant, ...]:
    """The grant of one task on parts of GPUs."""
    return (Grant(number, gpus, shape.milli, shape.cpu_milli, shape.memory_mib, 1, (), shape.user),)


def share_best_fit(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    """Parts of GPUs where the least is left over; a whole GPU is shared only if no shared one suffices."""
    best: tuple[int, int, int] | None = None
    kind = nodes.kinds[way.kind]
    for number in each(kind.partial & among):
        if not has_room(nodes, shape, number, 1):
            continue
        gpus = share_gpus(nodes, shape, number)
        if gpus:
            free = nodes.gpu_free[number]
            left = sum(free[gpu] - shape.milli for gpu in positions[gpus])
            if best is None or (left, number) < best[:2]:
                best = (left, number, gpus)
    if best is not None:
        return share_grant(shape, best[1], best[2])
    return share_first_fit(nodes, shape, way, among)


def share_first_fit(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    """Parts of GPUs on the first node that has them."""
    for number in share_candidates(nodes, way, among):
        if has_room(nodes, shape, number, 1):
            gpus = share_gpus(nodes, shape, number)
            if gpus:
                return share_grant(shape, number, gpus)
    return None


# -- gangs -----------------------------------------------------------------------------------------------------


def gang(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    """All tasks or none, on the fewest nodes, then the fewest switches; the rest on the fullest node that holds it."""
    found = _gang(nodes, shape, way, among)
    if found is not None and not shape.cpu_milli and not shape.memory_mib:
        # An ask without cores and memory was not checked for them, but a node that an earmark overdraws takes no task.
        for grant in found:
            if nodes.cpu_free[grant.node] < 0 or nodes.memory_free[grant.node] < 0:
                return gang(nodes, shape, way, among & ~(1 << grant.node))
    return found


def _gang(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    kind = nodes.kinds[way.kind]
    full = find_with_room(nodes, shape, kind, among, way.tasks_per_node)
    if full.bit_count() >= way.full_nodes:
        if len(kind.domains[SWITCH]) > 1:
            full = near(full, way.full_nodes + (way.rest_tasks > 0), kind)
        chosen = _take_lowest(full, way.full_nodes)
        if not way.rest_tasks:
            return tuple(grant_tasks(nodes, shape, n, way.tasks_per_node) for n in each(chosen))
        rest = _rest_node(nodes, shape, way, among & ~chosen, chosen)
        if rest >= 0:
            grants = [grant_tasks(nodes, shape, n, way.tasks_per_node) for n in each(chosen)]
            grants.append(grant_tasks(nodes, shape, rest, way.rest_tasks))
            return in_order(nodes, kind, grants)
    if way.nodes_max > way.full_nodes + (way.rest_tasks > 0):
        return _spread(nodes, shape, way, among)
    return None


def find_with_room(nodes: Nodes, shape: Shape, kind: Kind, among: int, tasks: int) -> int:
    """Nodes that hold `tasks` tasks."""
    members = 0
    for bucket in kind.buckets[shape.gpus * tasks :]:
        members |= bucket
    members &= among
    if shape.cpu_milli or shape.memory_mib or shape.in_domain:
        fitting = 0
        for number in each(members):
            if has_room(nodes, shape, number, tasks):
                fitting |= 1 << number
        members = fitting
    return members


def _take_lowest(members: int, count: int) -> int:
    chosen = 0
    for _ in range(count):
        low = members & -members
        chosen |= low
        members ^= low
    return chosen


def _rest_node(nodes: Nodes, shape: Shape, way: Way, among: int, chosen: int) -> int:
    """The node with the fewest free GPUs that holds the rest, on a switch or in a rack already in use if possible."""
    kind = nodes.kinds[way.kind]
    for where in nearest_first(chosen, kind):
        for bucket in kind.buckets[shape.gpus * way.rest_tasks :]:
            for number in each(bucket & among & where):
                if has_room(nodes, shape, number, way.rest_tasks):
                    return number
    return -1


def _spread(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    """More nodes than needed, where the job allows it: the nodes that hold most tasks first."""
    kind = nodes.kinds[way.kind]
    left, used = shape.tasks, 0
    grants: list[Grant] = []
    for tasks in range(min(way.tasks_per_node, shape.tasks), 0, -1):
        for number in each(find_with_room(nodes, shape, kind, among, tasks) & ~used):
            if left == 0 or len(grants) == way.nodes_max:
                break
            here = min(tasks, left)
            grants.append(grant_tasks(nodes, shape, number, here))
            used |= 1 << number
            left -= here
    if left:
        return None
    return in_order(nodes, kind, grants)


def placer(single: Placer, share: Placer, slices: Placer = place_slices) -> Placer:
    """Combine a policy's choices for single tasks, shares and slices with the common rule for gangs."""

    by_form = (single, gang, share, slices)

    def place(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
        if shape.in_domain and shape.form == ONE:
            # What compares nodes by their free GPUs does not know of domains.
            return place_best_fit(nodes, shape, way, among)
        return by_form[shape.form](nodes, shape, way, among)

    return place


place_anyhow = placer(place_best_fit, share_best_fit)
"""For questions: whether there is room does not depend on a placement, and this one remembers nothing."""
