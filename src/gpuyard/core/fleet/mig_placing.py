"""Where MIG slices go.

A job that waits for slices is promised whole GPUs: where enough are free, its slices fit.
"""

from collections.abc import Callable, Sequence
from functools import cache

from gpuyard.core.fleet.bits import each, positions
from gpuyard.core.fleet.mig_book import ByForce
from gpuyard.core.fleet.mig_geometry import (
    Held,
    PlacedSlice,
    book_milli,
    count_harm,
    find_best_start,
    find_flaw,
    layout_text,
)
from gpuyard.core.fleet.nodes import Nodes
from gpuyard.core.fleet.shapes import Shape, Way
from gpuyard.model.mig import MIG_MODELS, MigGeometry, Slice
from gpuyard.model.plans import Grant
from gpuyard.model.units import MILLI

Cheapest = Callable[[MigGeometry, Held, str, Held], "tuple[int, int] | None"]
"""The best place for one more slice of a profile on a GPU with these idle slices, as (cost, first slot). Idle slices
change the place, never the cost."""

KEPT = -1
"""The cost of a slice that a pin keeps for such asks: no other ask could use it."""

Found = tuple[int, tuple[Slice, ...], int]
"""Room for all slices of a task: the cost, the slices, and the milli that each of their GPUs is charged."""


def pin_flaw(nodes: Nodes, number: int, gpu: int, held: Held) -> str:
    """Why a GPU cannot keep this layout from now on; empty: it can. Slices in use are not moved."""
    node = nodes.node[number]
    geometry = MIG_MODELS.get(node.gpu_model)
    if not 0 <= gpu < node.gpus:
        return f"{node.name} has no GPU {gpu}"
    if geometry is None:
        return f"{node.gpu_model or 'a node without GPUs'} cannot be cut: it has no MIG"
    there = nodes.slices_used.get(number, {}).get(gpu, ())
    if wrong := find_flaw(geometry, held):
        return wrong
    if stays := [place for place in there if place not in held]:
        return f"{layout_text(stays)} is in use there and not part of it"
    if held and not nodes.cards(number).only_slices(gpu):
        return "the GPU is in use, and not by slices"
    return ""


def find_uncut_free(nodes: Nodes, number: int) -> Sequence[int]:
    """Milli free on each GPU of a node for asks without slices: nothing on GPUs that are cut."""
    free, cut = nodes.gpu_free[number], nodes.slices_used.get(number)
    return free if cut is None else [0 if gpu in cut else left for gpu, left in enumerate(free)]


def count_whole_free(nodes: Nodes) -> int:
    """Wholly free GPUs of schedulable nodes."""
    buckets = [pair for kind in nodes.kinds for pair in enumerate(kind.buckets)]
    return sum([free * bucket.bit_count() for free, bucket in buckets])


def note_before_force(nodes: Nodes) -> ByForce | None:
    """How things are before victims are drafted away; None: it makes no difference, because any GPU may be cut."""
    return ByForce(count_spare_whole(nodes), tuple(nodes.free_mask)) if nodes.whole_reserve else None


def count_spare_whole(nodes: Nodes) -> int:
    """How many wholly free GPUs may be cut, so that enough stay whole."""
    return count_whole_free(nodes) - nodes.whole_reserve if nodes.by_force is None else nodes.by_force.spare


def place_slices(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
    """All slices of a task on one node, the same number on each GPU: on GPUs that are pinned to such slices; else on
    GPUs that are already cut, where it does the least harm; else on one more GPU, unless too few would stay whole."""
    kind = nodes.kinds[way.kind]
    members = kind.members & among
    best: tuple[int, int, Found] | None = None
    for number in each(members):
        used = nodes.slices_used.get(number, {}).keys() | nodes.pins.get(number, {}).keys()
        if used and not nodes.closed[number] and _has_room(nodes, shape, number):
            found = find_slices(nodes, shape, number, find_sliceable(nodes, number, 0), _least_harm)
            # 1. the least harm; 2. the lowest node.
            if found is not None and (best is None or (found[0], number) < best[:2]):
                best = (found[0], number, found)
    if best is None:
        best = _on_new(nodes, shape, way, members)
    return None if best is None else make_slice_grant(shape, best[1], best[2])


def make_slice_grant(shape: Shape, number: int, found: Found) -> tuple[Grant, ...]:
    """The grant of a task, from the room that was found for its slices."""
    _cost, slices, milli = found
    gpus = 0
    for piece in slices:
        gpus |= 1 << piece.gpu
    return (Grant(number, gpus, milli, shape.cpu_milli, shape.memory_mib, 1, slices),)


def _on_new(nodes: Nodes, shape: Shape, way: Way, members: int) -> tuple[int, int, Found] | None:
    """Cut a whole GPU, on the node with the fewest, and only while enough stay whole."""
    kind = nodes.kinds[way.kind]
    spare = count_spare_whole(nodes)
    if spare <= 0 and nodes.by_force is None:
        return None
    for bucket in kind.buckets[1:]:
        for number in each(bucket & members):
            if _has_room(nodes, shape, number):
                found = find_slices(nodes, shape, number, find_sliceable(nodes, number, spare), _least_harm)
                if found is not None:
                    return found[0], number, found
    return None


def find_sliceable(nodes: Nodes, number: int, spare: int) -> tuple[int, ...]:
    """GPUs of a node that may take slices: those that are cut, and as many of the whole ones as may be cut.

    The highest numbers first: jobs for whole GPUs take the lowest, so slices that come and go are cut on the same GPU
    again, which need not be made whole in between.
    """
    pins = nodes.pins.get(number, {})
    used = nodes.slices_used.get(number, {}).keys() | pins.keys()
    whole = [gpu for gpu in reversed(positions[nodes.free_mask[number]]) if gpu not in pins]
    left = [gpu for gpu in whole if find_forced_gpus(nodes, number) >> gpu & 1]
    return (*sorted(used, reverse=True), *left, *[gpu for gpu in whole if gpu not in left][: max(0, spare)])


def find_forced_gpus(nodes: Nodes, number: int) -> int:
    """GPUs of a node that are free and whole only because victims are drafted away."""
    return nodes.free_mask[number] & ~nodes.by_force.free_mask[number] if nodes.by_force else 0


def find_kept_starts(kept: Held, held: Held, profile: str) -> list[int]:
    """First slots of the slices on a pinned GPU that are not in use."""
    return [place.start for place in kept if place.profile == profile and place not in held]


def _has_room(nodes: Nodes, shape: Shape, number: int) -> bool:
    return shape.cpu_milli <= nodes.cpu_free[number] and shape.memory_mib <= nodes.memory_free[number]


@cache
def _least_harm(geometry: MigGeometry, held: Held, profile: str, idle: Held) -> tuple[int, int] | None:
    start = find_best_start(geometry, held, profile, idle)
    return None if start is None else (count_harm(geometry, held, PlacedSlice(profile, start)), start)


def find_slices(
    nodes: Nodes, shape: Shape, number: int, gpus: tuple[int, ...], cheapest: Cheapest
) -> Found | None:
    """The slices on these GPUs of a node, as many on each as possible; of equally good GPUs, the first in the list."""
    geometry = MIG_MODELS.get(nodes.node[number].gpu_model)
    size = geometry.profile(shape.profile) if geometry else None
    if geometry is None or size is None:
        return None
    cards, milli, idle = nodes.cards(number), book_milli(geometry, size), nodes.slices_idle.get(number, {})
    row, pins, free = cards.cut, cards.pins, cards.free
    gpus = tuple(
        [
            gpu
            for gpu in gpus
            if (free[gpu] >= milli or gpu in pins)
            and (cards.fit_together(gpu) if gpu in pins or gpu in row else free[gpu] == MILLI)
        ]
    )
    for each_gpu in range(min(shape.slices, size.count_max), 0, -1):
        if shape.slices % each_gpu:
            continue
        found: list[tuple[int, int, tuple[Slice, ...]]] = []
        for turn, gpu in enumerate(gpus):
            held: Held = row.get(gpu, ())
            if gpu in pins:
                able = find_kept_starts(pins[gpu].held, held, shape.profile)
                if len(able) >= each_gpu:
                    made = [Slice(gpu, shape.profile, start) for start in able[:each_gpu]]
                    found.append((KEPT, turn, tuple(made)))
                continue
            lost, made = 0, []
            for _ in range(each_gpu):
                best = cheapest(geometry, held, shape.profile, idle.get(gpu, ()))
                if best is None:
                    break
                cost, start = best
                lost += cost
                held = tuple(sorted((*held, PlacedSlice(shape.profile, start)), key=_order))
                made.append(Slice(gpu, shape.profile, start))
            if len(made) == each_gpu:
                found.append((lost, turn, tuple(made)))
        wanted = shape.slices // each_gpu
        if len(found) >= wanted:
            chosen = sorted(found)[:wanted]
            lost = sum([part[0] for part in chosen])
            return lost, tuple([piece for part in chosen for piece in part[2]]), milli * each_gpu
    return None


def _order(place: PlacedSlice) -> tuple[int, str]:
    return place.start, place.profile
