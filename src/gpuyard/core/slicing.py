"""MIG slices in the books: which GPUs are cut and into what, whether more fits, and where a slice goes.

A GPU that is cut counts in the ordinary books as partly taken, by the compute its slices have, so that who waits for
a whole GPU sees when it will be whole again. What else may be cut from it is said by geometry alone. Whoever waits for
slices is promised whole GPUs: where one is free, its slices fit.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from gpuyard.core.bits import each
from gpuyard.core.geometry import Held, Place, best_start, flaw, gpu_milli, harm
from gpuyard.model.mig import MOLDS, Mold, Profile, Slice
from gpuyard.model.plans import Grant
from gpuyard.model.units import MILLI

if TYPE_CHECKING:
    from gpuyard.core.nodes import Nodes
    from gpuyard.core.shapes import Shape, Way

Cut = dict[int, dict[int, Held]]
"""GPUs that are cut, by node and number, with what is on them."""

Cheapest = Callable[[Mold, Held, str], "tuple[int, int] | None"]
"""Where on a GPU one more slice of a profile is best made, and what that costs: as (cost, first slot)."""

Found = tuple[int, tuple[Slice, ...], int]
"""Room for all slices of a task: the cost, the slices, and what each of their GPUs is charged."""


def molds_of(profile: str) -> list[Mold]:
    """The GPU models that can be cut to this size, by name."""
    return [mold for _name, mold in sorted(MOLDS.items()) if mold.profile(profile) is not None]


def book_milli(mold: Mold, profile: Profile) -> int:
    """What a slice takes of its GPU in the books: its part of the compute, so that no layout comes to more than one."""
    return profile.compute * MILLI // mold.compute


def charge_of(profile: str) -> int:
    """What a slice counts against quotas and shares; 0: no GPU has such a profile."""
    found = 0
    for mold in molds_of(profile):
        size = mold.profile(profile)
        assert size is not None, "the mold was found by it"
        found = max(found, gpu_milli(mold, size))
    return found


def gpus_for(profile: str, count: int) -> int:
    """Whole GPUs that are enough for so many slices."""
    most = [size.count_max for mold in molds_of(profile) if (size := mold.profile(profile))]
    return -(-count // min(most)) if most else count


def shift(cut: Cut, number: int, slices: tuple[Slice, ...], sign: int) -> None:
    """Enter slices (-1) or strike them (1)."""
    row = cut.setdefault(number, {})
    for gpu, profile, start in slices:
        held = list(row.get(gpu, ()))
        if sign < 0:
            held.append(Place(profile, start))
        else:
            held.remove(Place(profile, start))
        row[gpu] = tuple(sorted(held, key=lambda place: (place.start, place.profile)))
        if not held:
            del row[gpu]
    if not row:
        del cut[number]


def fits(nodes: "Nodes", grant: Grant) -> bool:
    """Whether the slices of a grant could be made now."""
    mold = MOLDS[nodes.node[grant.node].gpu_model]
    row, free = nodes.cut.get(grant.node, {}), nodes.gpu_free[grant.node]
    for gpu in {piece.gpu for piece in grant.slices}:
        new = [Place(piece.profile, piece.start) for piece in grant.slices if piece.gpu == gpu]
        if gpu not in row and free[gpu] != MILLI:
            # Shared in another way, or taken.
            return False
        if free[gpu] < grant.milli or flaw(mold, [*row.get(gpu, ()), *new]):
            return False
    return True


def clashes(nodes: "Nodes", grant: Grant) -> bool:
    """Whether slices that were promised still lie where others are: other slices, or who has the GPU without any."""
    mold = MOLDS[nodes.node[grant.node].gpu_model]
    row, free = nodes.cut.get(grant.node, {}), nodes.gpu_free[grant.node]
    for gpu in {piece.gpu for piece in grant.slices}:
        held = row.get(gpu, ())
        sizes = [size for place in held if (size := mold.profile(place.profile))]
        if flaw(mold, held) or free[gpu] < MILLI - sum([book_milli(mold, size) for size in sizes]):
            return True
    return False


def uncut_free(nodes: "Nodes", number: int) -> Sequence[int]:
    """Milli free on each GPU of a node for whoever wants no slices: nothing on those that are cut."""
    free, cut = nodes.gpu_free[number], nodes.cut.get(number)
    return free if cut is None else [0 if gpu in cut else left for gpu, left in enumerate(free)]


def whole_free(nodes: "Nodes") -> int:
    """Wholly free GPUs of schedulable nodes."""
    buckets = [pair for kind in nodes.kinds for pair in enumerate(kind.buckets)]
    return sum([free * bucket.bit_count() for free, bucket in buckets])


def place_slices(nodes: "Nodes", shape: "Shape", way: "Way", among: int) -> tuple[Grant, ...] | None:
    """All slices of a task on one node, the same number on each GPU: on GPUs that are cut already, where it does the
    least harm; else one more GPU is cut, unless too few would stay whole."""
    kind = nodes.kinds[way.kind]
    members = kind.members & among
    best: tuple[int, int, Found] | None = None
    for number in each(members):
        if number in nodes.cut and not nodes.closed[number] and _has_room(nodes, shape, number):
            found = slices_on(nodes, shape, number, tuple(sorted(nodes.cut[number])), _least_harm)
            # 1. the least harm; 2. the lowest node.
            if found is not None and (best is None or (found[0], number) < best[:2]):
                best = (found[0], number, found)
    if best is None:
        best = _on_new(nodes, shape, way, members)
    return None if best is None else slice_grant(shape, best[1], best[2])


def slice_grant(shape: "Shape", number: int, found: Found) -> tuple[Grant, ...]:
    """The grant of a task whose slices have their room."""
    _cost, slices, milli = found
    gpus = 0
    for piece in slices:
        gpus |= 1 << piece.gpu
    return (Grant(number, gpus, milli, shape.cpu_milli, shape.memory_mib, 1, slices),)


def _on_new(nodes: "Nodes", shape: "Shape", way: "Way", members: int) -> tuple[int, int, Found] | None:
    """A GPU is broken into where the fewest are whole, and only while enough stay whole."""
    kind = nodes.kinds[way.kind]
    spare = whole_free(nodes) - nodes.whole_reserve
    if spare <= 0:
        return None
    for bucket in kind.buckets[1:]:
        for number in each(bucket & members):
            if _has_room(nodes, shape, number):
                found = slices_on(nodes, shape, number, sliceable(nodes, number, spare), _least_harm)
                if found is not None:
                    return found[0], number, found
    return None


def sliceable(nodes: "Nodes", number: int, spare: int) -> tuple[int, ...]:
    """GPUs of a node that may take slices: those that are cut, and of the whole ones as many as may be cut."""
    whole = [gpu for gpu in range(nodes.home[number].gpus) if nodes.free_mask[number] >> gpu & 1]
    return (*sorted(nodes.cut.get(number, ())), *whole[: max(0, spare)])


def _has_room(nodes: "Nodes", shape: "Shape", number: int) -> bool:
    return shape.cpu_milli <= nodes.cpu_free[number] and shape.memory_mib <= nodes.memory_free[number]


@cache
def _least_harm(mold: Mold, held: Held, profile: str) -> tuple[int, int] | None:
    start = best_start(mold, held, profile)
    return None if start is None else (harm(mold, held, Place(profile, start)), start)


def slices_on(
    nodes: "Nodes", shape: "Shape", number: int, gpus: tuple[int, ...], cheapest: Cheapest
) -> Found | None:
    """The slices on these GPUs of a node, as many on each as possible; of equally good GPUs the first of these."""
    mold = MOLDS.get(nodes.node[number].gpu_model)
    size = mold.profile(shape.profile) if mold else None
    if mold is None or size is None:
        return None
    row, free, milli = nodes.cut.get(number, {}), nodes.gpu_free[number], book_milli(mold, size)
    for each_gpu in range(min(shape.slices, size.count_max), 0, -1):
        if shape.slices % each_gpu:
            continue
        found: list[tuple[int, int, tuple[Slice, ...]]] = []
        for turn, gpu in enumerate(gpus):
            if free[gpu] < milli * each_gpu:
                continue
            held: Held = row.get(gpu, ())
            lost, made = 0, []
            for _ in range(each_gpu):
                best = cheapest(mold, held, shape.profile)
                if best is None:
                    break
                cost, start = best
                lost += cost
                held = tuple(sorted((*held, Place(shape.profile, start)), key=_order))
                made.append(Slice(gpu, shape.profile, start))
            if len(made) == each_gpu:
                found.append((lost, turn, tuple(made)))
        wanted = shape.slices // each_gpu
        if len(found) >= wanted:
            chosen = sorted(found)[:wanted]
            lost = sum([part[0] for part in chosen])
            return lost, tuple([piece for part in chosen for piece in part[2]]), milli * each_gpu
    return None


def _order(place: Place) -> tuple[int, str]:
    return place.start, place.profile
