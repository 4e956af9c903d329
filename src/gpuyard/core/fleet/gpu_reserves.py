"""Cores and memory that a pool reserves for its GPUs: jobs without GPUs leave them free.

Jobs without GPUs may hold together what a node has beyond the reserve of all its GPUs, used or not: that part shrinks
by what they hold and by nothing else, so it only grows as they end.
"""

from gpuyard.core.fleet.bits import each
from gpuyard.core.fleet.nodes import NEVER_MS, Nodes, is_without_gpus
from gpuyard.core.fleet.shapes import Shape
from gpuyard.model import Grant
from gpuyard.model.units import MILLI


def split_by_reserve(nodes: Nodes, members: int) -> list[tuple[int, int, int]]:
    """Nodes of one kind by what an empty one has for a job without GPUs: cores, memory, nodes."""
    parts: dict[tuple[int, int], int] = {}
    for number in each(members):
        node = nodes.node[number]
        room = nodes.beside_most.get(number, (node.cpu_milli, node.memory_mib))
        parts[room] = parts.get(room, 0) | 1 << number
    return [(cpu_milli, memory_mib, there) for (cpu_milli, memory_mib), there in parts.items()]


def room_of(nodes: Nodes, shape: Shape, number: int) -> tuple[int, int]:
    """Free cores and memory of a node that a job may have."""
    cpu_milli, memory_mib = nodes.cpu_free[number], nodes.memory_free[number]
    if not shape.gpus and number in nodes.beside:
        beside = nodes.beside[number]
        return min(cpu_milli, beside[0]), min(memory_mib, beside[1])
    return cpu_milli, memory_mib


def leave_out_reserved(nodes: Nodes, shape: Shape, members: int) -> int:
    """A set of nodes without those on which a task without GPUs would take what is reserved for GPUs."""
    if shape.gpus or not nodes.beside:
        return members
    for number, (cpu_milli, memory_mib) in nodes.beside.items():
        if shape.cpu_milli > cpu_milli or shape.memory_mib > memory_mib:
            members &= ~(1 << number)
    return members


def beside_ms(nodes: Nodes, shape: Shape, number: int, tasks: int) -> int:
    """When a node whose GPUs have a reserve has room for tasks without GPUs: as `ready_ms` has it."""
    cpu, memory = shape.cpu_milli * tasks, shape.memory_mib * tasks
    left = [nodes.cpu_free[number] - cpu, nodes.memory_free[number] - memory]
    left += [nodes.beside[number][0] - cpu, nodes.beside[number][1] - memory]
    if min(left) >= 0:
        return 0
    for end_ms, _job_id, grant in nodes.ends(number):
        _give(left, grant)
        if min(left) >= 0:
            return end_ms or 1
    return NEVER_MS


def kept_beside(nodes: Nodes, shape: Shape, number: int, tasks: int, at_ms: int) -> tuple[int, int]:
    """What jobs without GPUs must leave of their part of a node so that tasks without GPUs have the room then."""
    if shape.gpus or number not in nodes.beside:
        return 0, 0
    now = nodes.beside[number]
    then = [0, 0, *now]
    for end_ms, _job_id, grant in nodes.ends(number):
        if end_ms <= at_ms:
            _give(then, grant)
    return (
        max(0, now[0] - (then[2] - shape.cpu_milli * tasks)),
        max(0, now[1] - (then[3] - shape.memory_mib * tasks)),
    )


def keep_cores(number: int, kept: tuple[int, int], beside: tuple[int, int]) -> list[Grant]:
    """Cores and memory of a node that are kept from all jobs, and those that are kept from jobs without GPUs."""
    found = []
    if beside != (0, 0):
        # Taken as a job without GPUs would take them, and given back to all others.
        found.append(Grant(number, 0, MILLI, *beside, 1))
    rest = (kept[0] - beside[0], kept[1] - beside[1])
    if rest != (0, 0):
        found.append(Grant(number, 0, MILLI, *rest, 0))
    return found


def _give(left: list[int], grant: Grant) -> None:
    """Add what ends to free cores and memory, and to those that jobs without GPUs may have."""
    left[0] += grant.cpu_milli
    left[1] += grant.memory_mib
    if is_without_gpus(grant):
        left[2] += grant.cpu_milli
        left[3] += grant.memory_mib
