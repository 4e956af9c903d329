"""Placements that compare nodes of all kinds say which way is tried first: the one with the best node of all."""

from collections.abc import Callable, Iterator

from gpuyard.core.nodes import Nodes
from gpuyard.core.shapes import Shape, Way

Best = Callable[[Nodes, Shape, int], int]
"""The best node of a set for one task; -1: none has room."""


def ranked(nodes: Nodes, shape: Shape, members: int, best: Best) -> Iterator[Way]:
    """The ways of a shape that lead to these nodes, the one with the best node first; those without room last."""
    # Worked out as far as it is asked for: mostly the first way is taken.
    kinds = nodes.kinds
    left = dict(shape.way_on)
    if not shape.gpus:
        # Nodes without GPUs come first, as everywhere, for tasks that want none.
        for way in shape.ways:
            if not kinds[way.kind].gpus:
                members &= ~kinds[way.kind].members
                yield left.pop(way.kind)
    while left:
        number = best(nodes, shape, members)
        if number < 0:
            break
        kind = nodes.kind[number]
        members &= ~kinds[kind].members
        yield left.pop(kind)
    yield from left.values()
