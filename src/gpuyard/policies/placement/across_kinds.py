"""The order of ways for placements that compare nodes of all kinds: the way with the best node of all comes first."""

from collections.abc import Callable, Iterator

from gpuyard.core.fleet.nodes import Nodes
from gpuyard.core.fleet.shapes import Shape, Way

Best = Callable[[Nodes, Shape, int], int]
"""The best node of a set for one task; -1: none has room."""


def rank_ways(nodes: Nodes, shape: Shape, members: int, best: Best) -> Iterator[Way]:
    """The ways of a shape to these nodes, the one with the best node first; those without room last."""
    # A generator, because mostly the first way is taken.
    kinds = nodes.kinds
    left = dict(shape.way_on)
    parts = [members]
    if not shape.gpus:
        # Tasks without GPUs go on nodes without GPUs first, as everywhere.
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
