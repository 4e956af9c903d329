"""MIG slices in the books: which GPUs are cut and into what, whether more fits, and where a slice goes.

A GPU that is cut counts in the ordinary books as partly taken, by the compute its slices have, so that who waits for
a whole GPU sees when it will be whole again. What else may be cut from it geometry alone says. A job that waits for
slices is promised whole GPUs: where one is free, its slices fit.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from gpuyard.core.bits import each, positions
from gpuyard.core.geometry import Held, Place, best_start, flaw, gpu_milli, harm, layout_text
from gpuyard.model.mig import MOLDS, Mold, Profile, Slice
from gpuyard.model.plans import Grant
from gpuyard.model.units import MILLI

if TYPE_CHECKING:
    from gpuyard.core.nodes import Nodes
    from gpuyard.core.shapes import Shape, Way

Cut = dict[int, dict[int, Held]]
"""GPUs that are cut, by node and number, with what is on them."""

Cheapest = Callable[[Mold, Held, str, Held], "tuple[int, int] | None"]
"""Where on a GPU, with these idle slices on it, one more of a profile is best made, and what that costs: as (cost,
first slot). Idle slices change the place and never the cost."""

KEPT = -1
"""What a slice costs that is kept for such asks: it is of no use to anybody else."""

Found = tuple[int, tuple[Slice, ...], int]
"""Room for all slices of a task: the cost, the slices, and what each of their GPUs is charged."""


def molds_of(profile: str) -> list[Mold]:
    """The GPU models that can be cut to this size, by name."""
    return [mold for _name, mold in sorted(MOLDS.items()) if mold.profile(profile) is not None]


def book_milli(mold: Mold, profile: Profile) -> int:
    """What a slice takes of its GPU in the books: its part of the compute, so that no layout comes to more than one."""
    return profile.compute * MILLI // mold.compute


def charge_of(profile: str) -> int:
    """What a slice counts against quotas and shares; 0: no GPU has such a profile.

    It must not depend on the fleet, which changes. Where models differ the least counts: of `1g.10gb` seven fit on an
    H100, and on the A100-40GB, where it has two slots, only four.
    """
    sizes = [(mold, mold.profile(profile)) for mold in molds_of(profile)]
    return min([gpu_milli(mold, size) for mold, size in sizes if size is not None], default=0)


def gpus_for(profile: str, count: int) -> int:
    """Whole GPUs that are enough for so many slices."""
    most = [size.count_max for mold in molds_of(profile) if (size := mold.profile(profile))]
    return -(-count // min(most)) if most else count


def gpus_on(size: Profile, count: int) -> int:
    """The fewest GPUs of one model that take so many slices, the same number on each."""
    each_gpu = min(size.count_max, count)
    while count % each_gpu:
        each_gpu -= 1
    return count // each_gpu


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


def rest(nodes: "Nodes", grants: tuple[Grant, ...]) -> None:
    """Slices are no longer in use. The engine leaves them where they are for a while."""
    for grant in grants:
        row = nodes.idle.setdefault(grant.node, {})
        for gpu, profile, start in grant.slices:
            row[gpu] = tuple(
                sorted({*row.get(gpu, ()), Place(profile, start)}, key=lambda p: (p.start, p.profile))
            )


def wake(nodes: "Nodes", grants: tuple[Grant, ...]) -> None:
    """An attempt starts: idle slices of its GPUs are used again, or taken away if they are in its way."""
    for grant in grants:
        row = nodes.idle.get(grant.node)
        if row is None:
            continue
        mold = MOLDS[nodes.node[grant.node].gpu_model]
        for gpu in positions[grant.gpus]:
            new = [Place(piece.profile, piece.start) for piece in grant.slices if piece.gpu == gpu]
            left = tuple([place for place in row.pop(gpu, ()) if new and not _in_way(mold, place, new)])
            if left:
                row[gpu] = left
        if not row:
            del nodes.idle[grant.node]


def _in_way(mold: Mold, place: Place, others: Sequence[Place]) -> bool:
    return any([flaw(mold, [other, place]) for other in others])


def fits(nodes: "Nodes", grant: Grant) -> bool:
    """Whether the slices of a grant could be made now."""
    mold = MOLDS[nodes.node[grant.node].gpu_model]
    row, pins = nodes.cut.get(grant.node, {}), nodes.pins.get(grant.node, {})
    for gpu in {piece.gpu for piece in grant.slices}:
        new = [Place(piece.profile, piece.start) for piece in grant.slices if piece.gpu == gpu]
        held = row.get(gpu, ())
        if not only_slices(nodes, mold, grant.node, gpu) or flaw(mold, [*held, *new]):
            return False
        if gpu in pins and not (set(pins[gpu].held) - set(held)).issuperset(new):
            return False
    return True


def only_slices(nodes: "Nodes", mold: Mold, number: int, gpu: int) -> bool:
    """Whether a GPU has slices and nothing else, or nothing at all.

    Where slices are kept for someone, whoever is being stopped for them may still have the GPU in another way.
    """
    held, pin = nodes.cut.get(number, {}).get(gpu, ()), nodes.pins.get(number, {}).get(gpu)
    own = nodes.gpu_free[number][gpu] + (MILLI if pin and pin.held else 0)
    return own == MILLI - _booked(mold, held)


def clashes(nodes: "Nodes", grant: Grant) -> bool:
    """Whether slices that were promised still lie where others are: other slices, or who has the GPU without any."""
    mold = MOLDS[nodes.node[grant.node].gpu_model]
    row, pins = nodes.cut.get(grant.node, {}), nodes.pins.get(grant.node, {})
    for gpu in {piece.gpu for piece in grant.slices}:
        held, pin = row.get(gpu, ()), pins.get(gpu)
        if pin is not None and not set(held) <= set(pin.held):
            return True
        if flaw(mold, held) or not only_slices(nodes, mold, grant.node, gpu):
            return True
    return False


@cache
def _booked(mold: Mold, held: Held) -> int:
    """What slices take of their GPU in the books."""
    return sum([book_milli(mold, size) for place in held if (size := mold.profile(place.profile))])


@cache
def _overlap(mold: Mold, held: Held) -> bool:
    return bool(flaw(mold, held))


def pin_flaw(nodes: "Nodes", number: int, gpu: int, held: Held) -> str:
    """Why a GPU cannot keep this layout from now on; empty: it can. Nothing that runs is moved."""
    node = nodes.node[number]
    mold = MOLDS.get(node.gpu_model)
    if not 0 <= gpu < node.gpus:
        return f"{node.name} has no GPU {gpu}"
    if mold is None:
        return f"{node.gpu_model or 'a node without GPUs'} cannot be cut: it has no MIG"
    there = nodes.cut.get(number, {}).get(gpu, ())
    if wrong := flaw(mold, held):
        return wrong
    if stays := [place for place in there if place not in held]:
        return f"{layout_text(stays)} is in use there and not part of it"
    if held and not only_slices(nodes, mold, number, gpu):
        return "the GPU is in use, and not by slices"
    return ""


def uncut_free(nodes: "Nodes", number: int) -> Sequence[int]:
    """Milli free on each GPU of a node for whoever wants no slices: nothing on those that are cut."""
    free, cut = nodes.gpu_free[number], nodes.cut.get(number)
    return free if cut is None else [0 if gpu in cut else left for gpu, left in enumerate(free)]


def whole_free(nodes: "Nodes") -> int:
    """Wholly free GPUs of schedulable nodes."""
    buckets = [pair for kind in nodes.kinds for pair in enumerate(kind.buckets)]
    return sum([free * bucket.bit_count() for free, bucket in buckets])


class ByForce(NamedTuple):
    """While victims are drafted away: how many GPUs might be cut before, and which were free then.

    A GPU that a victim leaves may be cut: it was not free for whole jobs. Nobody is stopped so that others stay whole.
    """

    spare: int
    free_mask: tuple[int, ...]


def by_force(nodes: "Nodes") -> ByForce | None:
    """How things are before anyone is drafted away; None: it makes no difference, as any GPU may be cut."""
    return ByForce(spare_whole(nodes), tuple(nodes.free_mask)) if nodes.whole_reserve else None


def spare_whole(nodes: "Nodes") -> int:
    """How many GPUs that are free and whole may be cut, so that enough stay."""
    return whole_free(nodes) - nodes.whole_reserve if nodes.by_force is None else nodes.by_force.spare


def place_slices(nodes: "Nodes", shape: "Shape", way: "Way", among: int) -> tuple[Grant, ...] | None:
    """All slices of a task on one node, the same number on each GPU: on GPUs that are pinned to such; else on GPUs
    that are cut already, where it does the least harm; else one more GPU is cut, unless too few would stay whole."""
    kind = nodes.kinds[way.kind]
    members = kind.members & among
    best: tuple[int, int, Found] | None = None
    for number in each(members):
        used = nodes.cut.get(number, {}).keys() | nodes.pins.get(number, {}).keys()
        if used and not nodes.closed[number] and _has_room(nodes, shape, number):
            found = slices_on(nodes, shape, number, sliceable(nodes, number, 0), _least_harm)
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
    spare = spare_whole(nodes)
    if spare <= 0 and nodes.by_force is None:
        return None
    for bucket in kind.buckets[1:]:
        for number in each(bucket & members):
            if _has_room(nodes, shape, number):
                found = slices_on(nodes, shape, number, sliceable(nodes, number, spare), _least_harm)
                if found is not None:
                    return found[0], number, found
    return None


def sliceable(nodes: "Nodes", number: int, spare: int) -> tuple[int, ...]:
    """GPUs of a node that may take slices: those that are cut, and of the whole ones as many as may be cut.

    The last ones first: whole jobs take the first ones, so slices that come and go between them are cut on the same GPU
    again, which need not be made whole in between.
    """
    pins = nodes.pins.get(number, {})
    used = nodes.cut.get(number, {}).keys() | pins.keys()
    whole = [gpu for gpu in reversed(positions[nodes.free_mask[number]]) if gpu not in pins]
    left = [gpu for gpu in whole if taken_by_force(nodes, number) >> gpu & 1]
    return (*sorted(used, reverse=True), *left, *[gpu for gpu in whole if gpu not in left][: max(0, spare)])


def taken_by_force(nodes: "Nodes", number: int) -> int:
    """GPUs of a node that are free and whole only because victims are drafted away."""
    return nodes.free_mask[number] & ~nodes.by_force.free_mask[number] if nodes.by_force else 0


def kept_for(kept: Held, held: Held, profile: str) -> list[int]:
    """First slots of the slices of a pinned GPU that nobody has."""
    return [place.start for place in kept if place.profile == profile and place not in held]


def _has_room(nodes: "Nodes", shape: "Shape", number: int) -> bool:
    return shape.cpu_milli <= nodes.cpu_free[number] and shape.memory_mib <= nodes.memory_free[number]


@cache
def _least_harm(mold: Mold, held: Held, profile: str, idle: Held) -> tuple[int, int] | None:
    start = best_start(mold, held, profile, idle)
    return None if start is None else (harm(mold, held, Place(profile, start)), start)


def slices_on(
    nodes: "Nodes", shape: "Shape", number: int, gpus: tuple[int, ...], cheapest: Cheapest
) -> Found | None:
    """The slices on these GPUs of a node, as many on each as possible; of equally good GPUs the first of these."""
    mold = MOLDS.get(nodes.node[number].gpu_model)
    size = mold.profile(shape.profile) if mold else None
    if mold is None or size is None:
        return None
    row, milli = nodes.cut.get(number, {}), book_milli(mold, size)
    pins, idle = nodes.pins.get(number, {}), nodes.idle.get(number, {})
    free = nodes.gpu_free[number]
    gpus = tuple(
        [
            gpu
            for gpu in gpus
            if (free[gpu] >= milli or gpu in pins)
            and (_open(nodes, mold, number, gpu) if gpu in pins or gpu in row else free[gpu] == MILLI)
        ]
    )
    for each_gpu in range(min(shape.slices, size.count_max), 0, -1):
        if shape.slices % each_gpu:
            continue
        found: list[tuple[int, int, tuple[Slice, ...]]] = []
        for turn, gpu in enumerate(gpus):
            held: Held = row.get(gpu, ())
            if gpu in pins:
                able = kept_for(pins[gpu].held, held, shape.profile)
                if len(able) >= each_gpu:
                    made = [Slice(gpu, shape.profile, start) for start in able[:each_gpu]]
                    found.append((KEPT, turn, tuple(made)))
                continue
            lost, made = 0, []
            for _ in range(each_gpu):
                best = cheapest(mold, held, shape.profile, idle.get(gpu, ()))
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


def _open(nodes: "Nodes", mold: Mold, number: int, gpu: int) -> bool:
    """Whether more slices may be put on a GPU; not while one lies where another is kept for somebody."""
    return not _overlap(mold, nodes.cut.get(number, {}).get(gpu, ())) and only_slices(
        nodes, mold, number, gpu
    )


def _order(place: Place) -> tuple[int, str]:
    return place.start, place.profile
