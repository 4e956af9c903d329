"""`fgd`: where the task leaves the least idle GPU that the expected tasks cannot use.

Fragmentation Gradient Descent (Weng et al., ATC'23): 1. highest score, an integer from 0 to 99 that grows with the
fragmentation that the placement removes; 2. lowest node. The GPU for a share is chosen the same way. It compares all
kinds of node together, so it also says which kind is tried first. Gangs, and everything as long as no demand has been
learned, are placed like `best-fit`.
"""

from collections.abc import Iterable

from gpuyard.core.caches import CacheSlot
from gpuyard.core.fleet.nodes import Nodes
from gpuyard.core.fleet.placing import (
    grant_tasks,
    place_best_fit,
    placer,
    share_best_fit,
    share_gpus,
    share_grant,
)
from gpuyard.core.fleet.shapes import Shape, Way
from gpuyard.model import Grant
from gpuyard.packing.fgd.index import FgdIndex
from gpuyard.policies.placement.across_kinds import rank_ways

NAME = "fgd"

_INDEX: CacheSlot[FgdIndex] = CacheSlot("nodes by their scores")


def index_of(nodes: Nodes) -> FgdIndex | None:
    """The nodes by their scores under the expected demand; None: there is none."""
    expected = nodes.demand
    if expected is None:
        return None
    return expected.caches.get(_INDEX) or expected.caches.put(_INDEX, FgdIndex(expected.mix))


def _whole(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    demand = index_of(nodes)
    if demand is None:
        return place_best_fit(nodes, shape, way, among)
    number = demand.best(nodes, shape, nodes.kinds[way.kind].members & among)
    return None if number < 0 else (grant_tasks(nodes, shape, number, 1),)


def _share(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    demand = index_of(nodes)
    if demand is None:
        return share_best_fit(nodes, shape, way, among)
    number = demand.best(nodes, shape, nodes.kinds[way.kind].members & among)
    if number < 0:
        return None
    gpus = 1 << demand.gpu(nodes, shape, number) if shape.gpus == 1 else share_gpus(nodes, shape, number)
    grants = share_grant(shape, number, gpus)
    # The scores only know how much is free on a GPU, not that it cannot be shared because it is cut or another user's.
    plain = not nodes.slices_used and not nodes.sharers
    return grants if plain or nodes.fits(grants) else share_best_fit(nodes, shape, way, among)


place = placer(_whole, _share)


def rank(nodes: Nodes, shape: Shape) -> Iterable[Way]:
    """The ways of a shape, the one with the best node first; those without room come last."""
    demand = index_of(nodes)
    alone = shape.tasks == 1 and not shape.ask.clusters and len(shape.way_on) == len(shape.ways)
    if demand is None or not alone or len(shape.ways) < 2:
        return shape.ways
    return rank_ways(nodes, shape, demand.of(nodes, shape)[1], demand.best)
