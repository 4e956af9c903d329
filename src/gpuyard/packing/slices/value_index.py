"""The nodes by what a slice would cost there: the live side of `worth`.

A slice costs what its GPU loses in worth. Whole GPUs are compared with GPUs that are already cut: the more large slices
and whole GPUs are expected, the more an empty GPU is worth. For every profile the nodes are in sets by their cheapest
place, and a change of one node moves it from one set to another.
"""

from collections.abc import Mapping

from gpuyard.core.fleet.bits import each
from gpuyard.core.fleet.mig_geometry import Held, PlacedSlice, book_milli, count_idle_harm, find_starts
from gpuyard.core.fleet.mig_placing import (
    KEPT,
    Found,
    count_spare_whole,
    find_forced_gpus,
    find_kept_starts,
    find_sliceable,
    find_slices,
    make_slice_grant,
)
from gpuyard.core.fleet.nodes import Nodes
from gpuyard.core.fleet.shapes import Shape, Way
from gpuyard.model import Grant
from gpuyard.model.mig import MIG_MODELS, MigGeometry, Slice
from gpuyard.model.units import MILLI
from gpuyard.packing.ranking import Ranking
from gpuyard.packing.slices.worth import add_place, list_profiles, strip_media, value_sets
from gpuyard.packing.values import NO_ROOM

_MANY = 1 << 30
"""More GPUs than exist."""


class SliceValueIndex:
    """What each set of slices on a GPU is worth under the expected asks, and where the next slice costs least."""

    def __init__(self, mix: list[tuple[Shape, int]]) -> None:
        self._mix = mix
        self.known = any([shape.profile for shape, _weight in mix])
        """Whether slices are expected at all."""
        self._fleet: list[int] = []
        """The members of each kind for which the rankings were made."""
        self._values: dict[str, Mapping[Held, int]] = {}
        """By GPU model."""
        self._sizes: dict[tuple[str, str], tuple[MigGeometry | None, int]] = {}
        self._cheapest: dict[tuple[str, Held, str, Held], tuple[int, int] | None] = {}
        self._rankings: dict[tuple[str, int, bool], Ranking] = {}

    def place(self, nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
        """Room for all slices of a task on one node."""
        number = self.best(nodes, shape, nodes.kinds[way.kind].members & among)
        if number < 0:
            return None
        found = self._on(nodes, shape, number, count_spare_whole(nodes))
        assert found is not None, "the ranking says that there is room"
        return make_slice_grant(shape, number, found)

    def best(self, nodes: Nodes, shape: Shape, members: int) -> int:
        """The node for a task: 1. least cost, 2. lowest number; -1: none has room."""
        spare = count_spare_whole(nodes)
        if nodes.whole_reserve and (shape.slices > 1 or nodes.by_force):
            # How many more GPUs may be cut makes a difference, and that changes all the time.
            key, best = self._least(nodes, shape, members, spare)
        else:
            ranking = self._ranking(nodes, shape, spare > 0)
            shifted = nodes.overlaid & members
            key, best = ranking.least(nodes, shape.cpu_milli, shape.memory_mib, members ^ shifted)
            if shifted:
                key, best = min((key, best), self._least(nodes, shape, shifted, spare))
        return best if key != NO_ROOM else -1

    def _least(self, nodes: Nodes, shape: Shape, members: int, spare: int) -> tuple[int, int]:
        least = (NO_ROOM, 0)
        for number in each(members):
            if shape.cpu_milli <= nodes.cpu_free[number] and shape.memory_mib <= nodes.memory_free[number]:
                least = min(least, (self._key(nodes, shape, number, spare), number))
        return least

    def _ranking(self, nodes: Nodes, shape: Shape, may_cut: bool) -> Ranking:
        fleet = [kind.members for kind in nodes.kinds]
        if self._fleet != fleet:
            self._fleet = fleet
            self._rankings.clear()
        key = (shape.profile, shape.slices, may_cut)
        ranking = self._rankings.get(key)
        if ranking is None:
            ranking = self._rankings[key] = Ranking(len(nodes.node))
        spare = _MANY if may_cut else 0
        ranking.bring_up(nodes, lambda number: self._key(nodes, shape, number, spare))
        return ranking

    def _key(self, nodes: Nodes, shape: Shape, number: int, spare: int) -> int:
        found = None if nodes.closed[number] else self._on(nodes, shape, number, spare)
        return NO_ROOM if found is None else found[0]

    def _on(self, nodes: Nodes, shape: Shape, number: int, spare: int) -> Found | None:
        if shape.slices == 1:
            return self.one_on(nodes, shape, number, spare)
        return find_slices(nodes, shape, number, find_sliceable(nodes, number, spare), self.cheapest)

    def one_on(self, nodes: Nodes, shape: Shape, number: int, spare: int) -> Found | None:
        """`find_slices` for one slice, by far the most frequent case. Whole GPUs are alike, so only one is tried."""
        geometry, milli = self._size(nodes.node[number].gpu_model, shape.profile)
        if geometry is None:
            return None
        found: tuple[int, int, int] | None = None
        cards, profile = nodes.cards(number), shape.profile
        row, pins, free, idle = cards.cut, cards.pins, cards.free, nodes.slices_idle.get(number, {})
        mask = nodes.free_mask[number]
        for gpu in sorted(pins, reverse=True):
            able = find_kept_starts(pins[gpu].held, row.get(gpu, ()), profile)
            if able and cards.fit_together(gpu):
                return KEPT, (Slice(gpu, profile, able[0]),), milli
            mask &= ~(1 << gpu)
        for gpu in sorted(row, reverse=True):
            if free[gpu] < milli or gpu in pins or not cards.fit_together(gpu):
                continue
            best = self.cheapest(geometry, row[gpu], profile, idle.get(gpu, ()))
            if best is not None and (found is None or best[0] < found[0]):
                found = (best[0], gpu, best[1])
        if spare <= 0 or nodes.by_force:
            left = mask & find_forced_gpus(nodes, number)
            mask = left if left or spare <= 0 else mask
        if mask:
            gpu = mask.bit_length() - 1
            best = self.cheapest(geometry, (), profile, idle.get(gpu, ()))
            if best is not None and (found is None or best[0] < found[0]):
                found = (best[0], gpu, best[1])
        return None if found is None else (found[0], (Slice(found[1], profile, found[2]),), milli)

    def _size(self, model: str, profile: str) -> tuple[MigGeometry | None, int]:
        """How a model is cut, if it has this profile, and what a slice takes of a GPU."""
        known = self._sizes.get((model, profile))
        if known is None:
            geometry = MIG_MODELS.get(model)
            size = geometry.profile(profile) if geometry else None
            known = (geometry, book_milli(geometry, size)) if geometry and size else (None, 0)
            self._sizes[model, profile] = known
        return known

    def cheapest(self, geometry: MigGeometry, held: Held, profile: str, idle: Held) -> tuple[int, int] | None:
        """What one more slice costs a GPU at its best place, and that place: of equals, the highest slot.

        Of equals, a place that spares idle slices is better, and one that reuses an idle slice as it is.
        """
        known = (geometry.model, held, profile, idle)
        if known in self._cheapest:
            return self._cheapest[known]
        worth = self._values.get(geometry.model)
        if worth is None:
            worth = self._values[geometry.model] = value_sets(geometry, self._weights(geometry))
        now = tuple([PlacedSlice(strip_media(place.profile), place.start) for place in held])
        costs = [
            (
                worth[now] - worth[add_place(now, PlacedSlice(strip_media(profile), start))],
                *count_idle_harm(geometry, idle, PlacedSlice(profile, start)),
                -start,
            )
            for start in find_starts(geometry, held, profile)
        ]
        found = None
        if costs:
            cost, _lost, _new, start = min(costs)
            found = (cost, -start)
        self._cheapest[known] = found
        return found

    def _weights(self, geometry: MigGeometry) -> dict[str, int]:
        """How many slices of each profile are expected on GPUs of a model; a job for a whole GPU wants the largest."""
        found: dict[str, int] = {}
        sizes = list_profiles(geometry)
        for shape, weight in self._mix:
            if shape.ask.models and geometry.model not in shape.ask.models:
                continue
            if shape.profile:
                name = strip_media(shape.profile)
                found[name] = found.get(name, 0) + weight * shape.slices * MILLI
            elif shape.gpus:
                name = sizes[-1].name
                found[name] = found.get(name, 0) + weight * shape.tasks * shape.gpus * shape.milli
        return found
