"""MIG slices in use: which GPUs are cut and how, which keep a layout, and whether more slices fit.

For jobs without slices, a cut GPU counts as partly taken, by the compute of its slices, so that a job that waits for a
whole GPU sees when it will be whole again. What else may be cut from it is a matter of geometry alone.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from gpuyard.core.fleet.bits import positions
from gpuyard.core.fleet.mig_geometry import Held, PlacedSlice, book_milli, find_flaw
from gpuyard.model import Node
from gpuyard.model.mig import MIG_MODELS, MigGeometry, Slice
from gpuyard.model.plans import Grant
from gpuyard.model.units import MILLI

Cut = dict[int, dict[int, Held]]
"""GPUs that are cut, by node and number, with the slices on them."""


class Pin(NamedTuple):
    """A layout that a GPU keeps until it is released."""

    held: Held
    """The places of its slices; none: the GPU stays whole."""
    made: bool = False
    """Whether the engine has confirmed it."""
    why: str = ""
    """What went wrong at the last try."""
    took_ms: int = 0
    """How long the engine took."""
    found: bool = False
    """Whether the GPU was found like this: the yard leaves it alone (`card_settings: leave`)."""


Pins = dict[int, dict[int, Pin]]
"""Pinned GPUs, by node and number."""


class ByForce(NamedTuple):
    """While victims are drafted away: how many GPUs could be cut before that, and which were free then.

    A GPU that a victim leaves may be cut, because it was not free for jobs for whole GPUs. No job is stopped so that
    GPUs stay whole.
    """

    spare: int
    free_mask: tuple[int, ...]


class Cards(NamedTuple):
    """The GPUs of one node that can be cut: what is on them, and what is free."""

    geometry: MigGeometry
    cut: Mapping[int, Held]
    pins: Mapping[int, Pin]
    free: Sequence[int]
    """Milli free on each GPU."""

    def fits(self, grant: Grant) -> bool:
        """Whether the slices of a grant could be made now."""
        for gpu in {piece.gpu for piece in grant.slices}:
            new = [PlacedSlice(piece.profile, piece.start) for piece in grant.slices if piece.gpu == gpu]
            held = self.cut.get(gpu, ())
            if not self.only_slices(gpu) or find_flaw(self.geometry, [*held, *new]):
                return False
            if gpu in self.pins and not (set(self.pins[gpu].held) - set(held)).issuperset(new):
                return False
        return True

    def only_slices(self, gpu: int) -> bool:
        """Whether a GPU has only slices, or nothing at all.

        Where slices are earmarked, the attempt that is being stopped for them may still hold the GPU as a whole or in
        shares.
        """
        held, pin = self.cut.get(gpu, ()), self.pins.get(gpu)
        own = self.free[gpu] + (MILLI if pin and pin.held else 0)
        return own == MILLI - _booked(self.geometry, held)

    def fit_together(self, gpu: int) -> bool:
        """Whether everything booked on a GPU can be there at once. Until then, it takes no more slices.

        It cannot while slices are earmarked there and the attempt that is being stopped for them still has its own.
        """
        return not _overlap(self.geometry, self.cut.get(gpu, ())) and self.only_slices(gpu)

    def clashes(self, grant: Grant) -> bool:
        """Whether earmarked slices still overlap with something else: other slices, or a job without slices."""
        for gpu in {piece.gpu for piece in grant.slices}:
            held, pin = self.cut.get(gpu, ()), self.pins.get(gpu)
            if pin is not None and not set(held) <= set(pin.held):
                return True
            if not self.fit_together(gpu):
                return True
        return False


@cache
def _overlap(geometry: MigGeometry, held: Held) -> bool:
    return bool(find_flaw(geometry, held))


@cache
def _booked(geometry: MigGeometry, held: Held) -> int:
    """What slices take of their GPU."""
    return sum([book_milli(geometry, size) for place in held if (size := geometry.profile(place.profile))])


def shift(cut: Cut, number: int, slices: tuple[Slice, ...], sign: int) -> None:
    """Add slices (-1) or remove them (1)."""
    row = cut.setdefault(number, {})
    for gpu, profile, start in slices:
        held = list(row.get(gpu, ()))
        if sign < 0:
            held.append(PlacedSlice(profile, start))
        else:
            held.remove(PlacedSlice(profile, start))
        row[gpu] = tuple(sorted(held, key=lambda place: (place.start, place.profile)))
        if not held:
            del row[gpu]
    if not row:
        del cut[number]


def mark_idle(idle: Cut, grants: tuple[Grant, ...]) -> None:
    """Slices are no longer in use. The engine leaves them where they are for a while."""
    for grant in grants:
        row = idle.setdefault(grant.node, {})
        for gpu, profile, start in grant.slices:
            row[gpu] = tuple(
                sorted({*row.get(gpu, ()), PlacedSlice(profile, start)}, key=lambda p: (p.start, p.profile))
            )


def mark_used(idle: Cut, nodes: Sequence[Node], grants: tuple[Grant, ...]) -> None:
    """An attempt starts: idle slices of its GPUs are used again, or removed if they are in its way."""
    for grant in grants:
        row = idle.get(grant.node)
        if row is None:
            continue
        geometry = MIG_MODELS[nodes[grant.node].gpu_model]
        for gpu in positions[grant.gpus]:
            new = [PlacedSlice(piece.profile, piece.start) for piece in grant.slices if piece.gpu == gpu]
            left = tuple([place for place in row.pop(gpu, ()) if new and not _in_way(geometry, place, new)])
            if left:
                row[gpu] = left
        if not row:
            del idle[grant.node]


def _in_way(geometry: MigGeometry, place: PlacedSlice, others: Sequence[PlacedSlice]) -> bool:
    return any([find_flaw(geometry, [other, place]) for other in others])
