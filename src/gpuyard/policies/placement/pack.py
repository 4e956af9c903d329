"""`pack`: where the task takes the least from what the expected tasks could use.

1. Least cost: what the node's idle GPUs and cores are worth to the expected tasks, before less after (see
`gpuyard.packing.values`); 2. least idle on the node afterwards, so that full nodes get fuller and empty ones stay
empty; 3. lowest node. The GPU for a share is chosen the same way. Like `fgd` it compares all kinds of node together. A
MIG slice goes where its GPU loses the least of what the expected slices need (see `packing/slices`). Gangs, and
everything as long as no ask for parts of GPUs is expected, are placed like `best-fit`, and as fast.
"""

from collections.abc import Iterable

from gpuyard.core.caches import CacheSlot
from gpuyard.core.fleet.mig_placing import place_slices
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
from gpuyard.packing.value_index import ValueIndex
from gpuyard.policies.placement.across_kinds import rank_ways

NAME = "pack"

_INDEX: CacheSlot[ValueIndex] = CacheSlot("nodes by the value of what is left")

_plain = placer(place_best_fit, share_best_fit)


def _value_index(nodes: Nodes) -> ValueIndex:
    demand = nodes.demand
    assert demand is not None, "without one nothing is valued"
    return demand.caches.get(_INDEX) or demand.caches.put(_INDEX, ValueIndex(demand.mix))


def _whole(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    number = _value_index(nodes).best(nodes, shape, nodes.kinds[way.kind].members & among)
    return None if number < 0 else (grant_tasks(nodes, shape, number, 1),)


def _share(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    index = _value_index(nodes)
    number = index.best(nodes, shape, nodes.kinds[way.kind].members & among)
    if number < 0:
        return None
    gpus = 1 << index.gpu(nodes, shape, number) if shape.gpus == 1 else share_gpus(nodes, shape, number)
    grants = share_grant(shape, number, gpus)
    # The values only know how much is free on a GPU, not that it cannot be shared because it is cut or another user's.
    plain = not nodes.slices_used and not nodes.sharers
    return grants if plain or nodes.fits(grants) else share_best_fit(nodes, shape, way, among)


def _slices(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    slices = _value_index(nodes).slices
    return (slices.place if slices.known else place_slices)(nodes, shape, way, among)


_valued = placer(_whole, _share, _slices)


def place(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    """Room by value, if asks for parts of GPUs are expected."""
    demand = nodes.demand
    return (_plain if demand is None or not demand.parts else _valued)(nodes, shape, way, among)


def rank(nodes: Nodes, shape: Shape) -> Iterable[Way]:
    """The ways of a shape, the one with the best node first; those without room come last."""
    demand = nodes.demand
    if demand is None or not demand.parts or shape.tasks > 1 or len(shape.ways) < 2 or shape.ask.clusters:
        # A job that prefers clusters gets the best node of the first one that has room.
        return shape.ways
    if len(shape.way_on) < len(shape.ways):
        # Nodes of one kind that differ for the job are tried in the order of its ways.
        return shape.ways
    index = _value_index(nodes)
    members = 0
    for way in shape.ways:
        members |= nodes.kinds[way.kind].members & way.pools
    if not shape.profile:
        return rank_ways(nodes, shape, members, index.best)
    return rank_ways(nodes, shape, members, index.slices.best) if index.slices.known else shape.ways
