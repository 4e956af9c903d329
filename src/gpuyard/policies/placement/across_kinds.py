"""Placements that compare nodes of all kinds say which way is tried first: the one with the best node of all."""

from collections.abc import Callable, Iterator

from gpuyard.core.fleet.nodes import Nodes
from gpuyard.core.fleet.shapes import Shape, Way

Best = Callable[[Nodes, Shape, int], int]
"""The best node of a set for one task; -1: none has room."""


def ranked(nodes: Nodes, shape: Shape, members: int, best: Best) -> Iterator[Way]:
    """The ways of a shape that lead to these nodes, the one with the best node first; those without room last."""
    # Worked out as far as it is asked for: mostly the first way is taken.
    kinds = nodes.kinds
    left = dict(shape.way_on)
    parts = [members]
    if not shape.gpus:
        # Nodes without GPUs come first, as everywhere, for tasks that want none.
        bare = 0
        for way in shape.ways:
            if not kinds[way.kind].gpus:
                bare |= kinds[way.kind].members
        parts = [members & bare, members & ~bare]
    for part in parts:
        among = part
        while among and (number := best(nodes, shape, among)) >= 0:
            kind = nodes.kind[number]
            among &= ~kinds[kind].members
            yield left.pop(kind)
    yield from left.values()
