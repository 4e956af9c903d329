"""What a GPU with certain MIG slices is worth: how much of the expected slices it will still take.

One GPU is considered by itself, as if it were to live for one mean run time: slices end, and others arrive as expected,
in all as much as one GPU can serve. An arrival goes where it leaves the most. Most arrivals would find room elsewhere
too, so taking one is worth little; but the larger a slice, the more often this GPU is the only one left for it, and
then all of it is gained. How often that is grows with the square of its size (`PRESSURE`): measured on fleets of 4 to
400 GPUs at 80 to 130 % of load, it need not be known better than within a factor of two.

The values are those of the best choice of places, computed by sweeps over all sets of slices on a GPU (723 on an H100)
in plain Python: a tenth of a second, once for a mix of asks. The arithmetic is the four operations on doubles in a
fixed order; what leaves this module is integers.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from gpuyard.core.fleet.mig_geometry import Held, PlacedSlice, find_starts, gpu_milli
from gpuyard.model.mig import MigGeometry, Profile
from gpuyard.model.units import MILLI

PRESSURE = 80
"""A slice as large as the GPU finds it the only one left this many times as often as its part of the arrivals."""

SLICE = 1000
"""The value of a compute slice that is in use for one mean run time."""

_SWEEPS_MAX = 60
_ENOUGH = 1e-3
_HORIZON = 1.0
"""The rate, per mean run time, at which the considered period ends."""


class _Ways(NamedTuple):
    """Every set of slices that a GPU can have, fullest first, and the steps from one to another."""

    number: dict[Held, int]
    taking: tuple[tuple[tuple[int, ...], ...], ...]
    """By set and profile: the sets that one more slice can lead to."""
    leaving: tuple[tuple[int, ...], ...]
    """By set: the sets that the end of one slice leads to."""


def strip_media(name: str) -> str:
    """The profile without its media engines: it takes the same room."""
    return name.partition("+")[0]


def list_profiles(geometry: MigGeometry) -> tuple[Profile, ...]:
    """Every size that a GPU can be cut to; the last is the whole GPU."""
    return tuple([profile for profile in geometry.profiles if "+" not in profile.name])


def value_sets(geometry: MigGeometry, weights: Mapping[str, int]) -> Mapping[Held, int]:
    """The value of every set of slices, if slices of these profiles arrive in these proportions."""
    return _values(geometry, tuple([max(0, weights.get(size.name, 0)) for size in list_profiles(geometry)]))


@lru_cache(maxsize=32)
def _values(geometry: MigGeometry, wanted: tuple[int, ...]) -> Mapping[Held, int]:
    # Cached, because estimates run many copies of one state forward.
    ways, sizes = _ways(geometry), list_profiles(geometry)
    compute = sum([weight * size.compute for weight, size in zip(wanted, sizes, strict=True)])
    coming: list[tuple[int, float, float]] = []
    for index, (weight, size) in enumerate(zip(wanted, sizes, strict=True)):
        if weight:
            part = gpu_milli(geometry, size) / MILLI
            press = PRESSURE * part * part
            rate = weight * geometry.compute / compute * (1.0 + press)
            coming.append((index, rate, size.compute * press / (1.0 + press)))
    found = _swept(ways, coming)
    return {held: int(found[number] * SLICE + 0.5) for held, number in ways.number.items()}


def _swept(ways: _Ways, coming: list[tuple[int, float, float]]) -> list[float]:
    """The values, by sweeps from full to empty and back until they no longer change."""
    worth = [0.0] * len(ways.taking)
    rows: list[tuple[float, float, list[tuple[float, tuple[int, ...]]], tuple[int, ...]]] = []
    for taking, leaving in zip(ways.taking, ways.leaving, strict=True):
        able = [(rate, gained, taking[index]) for index, rate, gained in coming if taking[index]]
        gain = sum([rate * gained for rate, gained, _into in able])
        rates = _HORIZON + len(leaving) + sum([rate for rate, _gained, _into in able])
        rows.append((gain, rates, [(rate, into) for rate, _gained, into in able], leaving))
    order = range(len(worth))
    for sweep in range(_SWEEPS_MAX):
        moved = 0.0
        for way in order if sweep % 2 == 0 else reversed(order):
            gain, rates, able_now, leaving = rows[way]
            for rate, into in able_now:
                best = worth[into[0]]
                for after in into[1:]:
                    if worth[after] > best:
                        best = worth[after]
                gain += rate * best
            for after in leaving:
                gain += worth[after]
            gain /= rates
            change = gain - worth[way]
            worth[way] = gain
            if change > moved or -change > moved:
                moved = abs(change)
        if moved < _ENOUGH:
            break
    return worth


@cache
def _ways(geometry: MigGeometry) -> _Ways:
    sizes = list_profiles(geometry)
    seen: list[Held] = [()]
    known: set[Held] = {()}
    for held in seen:
        for size in sizes:
            for start in find_starts(geometry, held, size.name):
                more = add_place(held, PlacedSlice(size.name, start))
                if more not in known:
                    known.add(more)
                    seen.append(more)
    compute = {size.name: size.compute for size in sizes}
    seen.sort(key=lambda held: (-sum([compute[place.profile] for place in held]), held))
    number = {held: i for i, held in enumerate(seen)}
    taking = [
        tuple(
            [
                tuple(
                    [
                        number[add_place(held, PlacedSlice(s.name, at))]
                        for at in find_starts(geometry, held, s.name)
                    ]
                )
                for s in sizes
            ]
        )
        for held in seen
    ]
    leaving = [tuple([number[tuple([p for p in held if p != gone])] for gone in held]) for held in seen]
    return _Ways(number, tuple(taking), tuple(leaving))


def add_place(held: Held, place: PlacedSlice) -> Held:
    """The slices on a GPU, with one more."""
    return tuple(sorted((*held, place), key=lambda each: (each.start, each.profile)))
