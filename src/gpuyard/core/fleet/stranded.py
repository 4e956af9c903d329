"""Free GPUs that none of the waiting jobs could use where they are."""

from collections.abc import Iterable

from gpuyard.core.fleet.nodes import Nodes
from gpuyard.core.fleet.shapes import SHARE, SLICES, Shape
from gpuyard.model.units import MILLI

ASKS_MAX = 50
"""Asks that are tried on a node, the smallest first: what the fiftieth cannot use, a larger one hardly can."""

_Need = tuple[int, int, int, int, int]
"""What a job takes on one node at least: whole GPUs, milli of one GPU, cores, memory; and the nodes that will do."""


def stranded_milli(nodes: Nodes, waiting: Iterable[Shape]) -> dict[int, int]:
    """By number of node: milli-GPUs that are free there and that no job of these asks could take."""
    needs: dict[int, set[_Need]] = {}
    for shape in waiting:
        if not shape.gpus:
            continue
        parts = shape.form in (SHARE, SLICES)
        for way in shape.ways:
            tasks = way.rest_tasks or way.tasks_per_node
            need = (
                0 if parts else shape.gpus * tasks,
                shape.milli if shape.form == SHARE else 1 if parts else MILLI,
                shape.cpu_milli * tasks,
                shape.memory_mib * tasks,
                way.pools,
            )
            needs.setdefault(way.kind, set()).add(need)
    tried = {kind: sorted(found)[:ASKS_MAX] for kind, found in needs.items()}
    found: dict[int, int] = {}
    if not tried:
        return found
    for number, free in enumerate(nodes.gpu_free):
        left = sum([milli for milli in free if milli > 0])
        if (
            left
            and not nodes.closed[number]
            and not _usable(nodes, number, tried.get(nodes.kind[number], []))
        ):
            found[number] = left
    return found


def _usable(nodes: Nodes, number: int, needs: list[_Need]) -> bool:
    whole, most = nodes.free_mask[number].bit_count(), max(nodes.gpu_free[number])
    cores, memory, own = nodes.cpu_free[number], nodes.memory_free[number], nodes.bit[number]
    return any(
        [
            gpus <= whole and milli <= most and cpu <= cores and mib <= memory and pools & own
            for gpus, milli, cpu, mib, pools in needs
        ]
    )
