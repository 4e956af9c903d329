"""Cutting a GPU into MIG slices: how large they are, what fits beside the existing ones, and where it goes best.

The slices on a GPU are a set of places, each a profile with its first slot. Slices in use are never moved: a slice
stays where it was made until it ends. So the place of a small slice decides which large one still fits later, and the
best place is the one that leaves the most possible.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from gpuyard.model.mig import MIG_MODELS, MigGeometry, Profile
from gpuyard.model.units import MILLI


class PlacedSlice(NamedTuple):
    """A slice on one GPU: its profile and its first slot."""

    profile: str
    start: int


Held = tuple[PlacedSlice, ...]
"""The slices on a GPU, by first slot."""


def slots_of(profile: Profile, start: int) -> int:
    """The memory slots that a slice takes, as bits."""
    return ((1 << profile.memory) - 1) << start


def gpu_milli(geometry: MigGeometry, profile: Profile) -> int:
    """What a slice counts as, in thousandths of its GPU: the larger of its parts of compute and memory, rounded up."""
    return max(-(-profile.compute * MILLI // geometry.compute), -(-profile.memory * MILLI // geometry.slots))


def find_geometries(profile: str) -> list[MigGeometry]:
    """The GPU models that can be cut to this profile, by name."""
    return [
        geometry for _name, geometry in sorted(MIG_MODELS.items()) if geometry.profile(profile) is not None
    ]


def book_milli(geometry: MigGeometry, profile: Profile) -> int:
    """What a slice takes of its GPU: its part of the compute, so that no layout adds up to more than one GPU."""
    return profile.compute * MILLI // geometry.compute


def charge_of(profile: str) -> int:
    """What a slice counts against quotas and shares; 0: no GPU has such a profile.

    It must not depend on the fleet, which changes. Where models differ, the smallest value counts: seven `1g.10gb` fit
    on an H100, but only four on the A100-40GB, where it has two slots.
    """
    sizes = [(geometry, geometry.profile(profile)) for geometry in find_geometries(profile)]
    return min([gpu_milli(geometry, size) for geometry, size in sizes if size is not None], default=0)


def gpus_for(profile: str, count: int) -> int:
    """How many whole GPUs are enough for `count` slices."""
    most = [size.count_max for geometry in find_geometries(profile) if (size := geometry.profile(profile))]
    return -(-count // min(most)) if most else count


def gpus_on(size: Profile, count: int) -> int:
    """The fewest GPUs of one model that take `count` slices, the same number on each."""
    each_gpu = min(size.count_max, count)
    while count % each_gpu:
        each_gpu -= 1
    return count // each_gpu


def find_starts(geometry: MigGeometry, held: Iterable[PlacedSlice], name: str) -> tuple[int, ...]:
    """First slots where one more slice of a profile could be made now; none if the model has no such profile."""
    profile = geometry.profile(name)
    if profile is None:
        return ()
    taken, compute, count = 0, profile.compute, 1
    for place in held:
        other = geometry.profile(place.profile)
        assert other is not None, f"{geometry.model} has no {place.profile}"
        taken |= slots_of(other, place.start)
        compute += other.compute
        count += other.name == name
    if compute > geometry.compute or count > profile.count_max:
        return ()
    return tuple([start for start in profile.starts if not slots_of(profile, start) & taken])


def find_flaw(geometry: MigGeometry, held: Sequence[PlacedSlice]) -> str:
    """What is wrong with a set of places as the layout of a GPU; empty: nothing."""
    before: list[PlacedSlice] = []
    for place in held:
        profile = geometry.profile(place.profile)
        if profile is None:
            known = ", ".join([each.name for each in geometry.profiles])
            return f"{geometry.model} has no profile {place.profile}; it has {known}"
        if place.start not in profile.starts:
            return f"{place.profile} cannot begin at slot {place.start}, only at {_listed(profile.starts)}"
        if place.start not in find_starts(geometry, before, place.profile):
            return f"{place.profile} at slot {place.start} does not fit beside {_named(before)}"
        before.append(place)
    return ""


def find_best_start(
    geometry: MigGeometry, held: Iterable[PlacedSlice], name: str, idle: Sequence[PlacedSlice] = ()
) -> int | None:
    """Where a slice does the least harm: where it leaves the most possible.

    `idle` are existing slices that are not in use: of equal places, the one that spares them is best.
    """
    there = tuple(held)
    able = find_starts(geometry, there, name)
    if not able:
        return None

    def rank(start: int) -> tuple[int, int, bool, int]:
        place = PlacedSlice(name, start)
        # 1. what could still be made; 2. idle slices spared; 3. the last slots, which large slices use last.
        return -worth(geometry, _with(there, place)), *count_idle_harm(geometry, idle, place), -start

    return min(able, key=rank)


def count_idle_harm(
    geometry: MigGeometry, idle: Sequence[PlacedSlice], place: PlacedSlice
) -> tuple[int, bool]:
    """What a new slice does to idle ones: how many must go, and whether it has to be made."""
    if not idle:
        return 0, True
    return sum(
        [bool(find_flaw(geometry, [place, other])) for other in idle if other != place]
    ), place not in idle


def count_harm(geometry: MigGeometry, held: Held, place: PlacedSlice) -> int:
    """How much less can be made on a GPU once this slice is on it."""
    return worth(geometry, held) - worth(geometry, _with(held, place))


@cache
def worth(geometry: MigGeometry, held: Held) -> int:
    """How much can still be made on a GPU: for each profile, the size of as many slices as fit, summed up."""
    total = 0
    for profile in _plain(geometry):
        total += _most(geometry, held, profile) * gpu_milli(geometry, profile)
    return total


def _most(geometry: MigGeometry, held: Held, profile: Profile) -> int:
    """How many more slices of one profile fit. Slices of one size only exclude each other by overlap."""
    count, there = 0, held
    while able := find_starts(geometry, there, profile.name):
        there = _with(there, PlacedSlice(profile.name, able[0]))
        count += 1
    return count


def layouts(geometry: MigGeometry) -> Iterator[Held]:
    """Every set of places that a GPU can have at once, the empty one included, without media engines."""
    places = [PlacedSlice(profile.name, start) for profile in _plain(geometry) for start in profile.starts]

    def more(held: Held, first: int) -> Iterator[Held]:
        yield held
        for index in range(first, len(places)):
            place = places[index]
            if place.start in find_starts(geometry, held, place.profile):
                yield from more((*held, place), index + 1)

    for held in more((), 0):
        yield tuple(sorted(held, key=_order))


class Fitted(NamedTuple):
    """A layout for a GPU, and which of the wanted slices are in it."""

    held: Held
    """The slices that were there, and the new ones."""
    new: Held
    left_out: tuple[str, ...]
    """Wanted slices that found no place."""


def fit(geometry: MigGeometry, held: Iterable[PlacedSlice], wanted: Sequence[str]) -> Fitted:
    """The most of the wanted slices, counted by size, beside the existing ones, which do not move.

    Every combination is tried: a GPU has few. Of equals, the one that leaves the most possible.
    """
    there = tuple(sorted(held, key=_order))
    names = sorted(
        [name for name in wanted if geometry.profile(name) is not None],
        key=lambda n: (-_size(geometry, n), n),
    )
    best: tuple[int, int, Held] = (-1, -1, ())
    seen: set[tuple[int, Held]] = set()

    def search(index: int, new: Held, size: int) -> None:
        nonlocal best
        if (index, new) in seen:
            return
        seen.add((index, new))
        if index == len(names):
            found = (size, worth(geometry, _joined(there, new)), new)
            # Of equals, the first layout in order: a total order, however the search went.
            if found[:2] > best[:2] or (found[:2] == best[:2] and found[2] < best[2]):
                best = found
            return
        name = names[index]
        for start in find_starts(geometry, _joined(there, new), name):
            added = tuple(sorted((*new, PlacedSlice(name, start)), key=_order))
            search(index + 1, added, size + _size(geometry, name))
        search(index + 1, new, size)

    search(0, (), 0)
    new = best[2]
    left = list(wanted)
    for place in new:
        left.remove(place.profile)
    return Fitted(_joined(there, new), new, tuple(left))


def layout_text(held: Iterable[PlacedSlice]) -> str:
    """A layout in its usual notation, largest first: `3g.71gb+2x2g.35gb`; `whole` without slices."""
    counts: dict[str, int] = {}
    for place in held:
        counts[place.profile] = counts.get(place.profile, 0) + 1
    # 1. most compute, which is the number at the start of a name; 2. the name.
    names = sorted(counts, key=lambda name: (-int(name.partition("g")[0]), name))
    return "+".join([f"{counts[name]}x{name}" if counts[name] > 1 else name for name in names]) or "whole"


@cache
def _plain(geometry: MigGeometry) -> tuple[Profile, ...]:
    """The profiles that layouts are made of: without media engines and without the odd one slice on two slots."""
    return tuple(
        [p for p in geometry.profiles if "+" not in p.name and (p.compute >= p.memory or p.compute > 2)]
    )


def _size(geometry: MigGeometry, name: str) -> int:
    profile = geometry.profile(name)
    return gpu_milli(geometry, profile) if profile else 0


def _with(held: Held, place: PlacedSlice) -> Held:
    return tuple(sorted((*held, place), key=_order))


def _joined(held: Held, new: Held) -> Held:
    return tuple(sorted((*held, *new), key=_order))


def _order(place: PlacedSlice) -> tuple[int, str]:
    return place.start, place.profile


def _named(held: Sequence[PlacedSlice]) -> str:
    return ", ".join([f"{place.profile} at {place.start}" for place in held]) or "nothing"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
