"""`pack`: where the task takes the least from what the expected tasks could use.

1. Least cost: what the node's idle GPUs and cores are worth to the expected tasks, before less after (see
`gpuyard.packing.values`); 2. least idle on the node afterwards, so that full nodes get fuller and empty ones stay
empty; 3. lowest node. Of a node, the GPU for a share is chosen likewise. Like `fgd` it looks at all kinds of node
together. Gangs, and everything as long as no demand has been learned, are placed like `best-fit`.
"""

from collections.abc import Iterable

from gpuyard.core.nodes import Nodes
from gpuyard.core.placing import (
    grant_tasks,
    placer,
    share_best_fit,
    share_gpus,
    share_grant,
    whole_best_fit,
)
from gpuyard.core.shapes import Shape, Way
from gpuyard.core.slicing import place_slices
from gpuyard.model import Grant
from gpuyard.packing.standing import Standing
from gpuyard.policies.placement.across_kinds import ranked

NAME = "pack"


def _standing(nodes: Nodes) -> Standing | None:
    demand = nodes.demand
    if demand is None:
        return None
    if not isinstance(demand.derived, Standing):
        demand.derived = Standing(demand.mix)
    assert isinstance(demand.derived, Standing)
    return demand.derived


def _whole(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    standing = _standing(nodes)
    if standing is None:
        return whole_best_fit(nodes, shape, way, among)
    number = standing.best(nodes, shape, nodes.kinds[way.kind].members & among)
    return None if number < 0 else (grant_tasks(nodes, shape, number, 1),)


def _share(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    standing = _standing(nodes)
    if standing is None:
        return share_best_fit(nodes, shape, way, among)
    number = standing.best(nodes, shape, nodes.kinds[way.kind].members & among)
    if number < 0:
        return None
    gpus = 1 << standing.gpu(nodes, shape, number) if shape.gpus == 1 else share_gpus(nodes, shape, number)
    return share_grant(shape, number, gpus)


def _slices(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    standing = _standing(nodes)
    if standing is None or not standing.slices.known:
        return place_slices(nodes, shape, way, among)
    return standing.slices.place(nodes, shape, way, among)


place = placer(_whole, _share, _slices)


def rank(nodes: Nodes, shape: Shape) -> Iterable[Way]:
    """The ways of a shape, the one with the best node first; those without room come last."""
    standing = _standing(nodes)
    if standing is None or shape.tasks > 1 or len(shape.ways) < 2:
        return shape.ways
    members = 0
    for way in shape.ways:
        members |= nodes.kinds[way.kind].members & way.pools
    if not shape.profile:
        return ranked(nodes, shape, members, standing.best)
    return ranked(nodes, shape, members, standing.slices.best) if standing.slices.known else shape.ways
