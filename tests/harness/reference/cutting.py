"""MIG once more, from the table of profiles alone: what may lie on a GPU at once, and what a slice counts.

The core knows geometry by bits, caches and searches in a clever order. Here slots are lists and everything is tried;
what was found once is remembered.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations

from gpuyard.model.mig import MIG_MODELS, Profile
from gpuyard.model.units import MILLI

Piece = tuple[str, int]
"""A slice on one GPU: profile and first slot."""
Pieces = tuple[Piece, ...]


@cache
def profile_of(model: str, name: str) -> Profile | None:
    """A profile of a GPU model, if it has such."""
    return {p.name: p for p in MIG_MODELS[model].profiles}.get(name) if model in MIG_MODELS else None


def unlawful(model: str, pieces: Iterable[Piece]) -> str:
    """Why a GPU cannot have these slices at once; empty: it can."""
    return _unlawful(model, tuple(pieces))


@cache
def _unlawful(model: str, there: Pieces) -> str:
    sizes = [profile_of(model, name) for name, _start in there]
    if model not in MIG_MODELS and there:
        return f"{model} has no MIG"
    if None in sizes:
        return f"{model} has not all of {[*there]}"
    known = [size for size in sizes if size is not None]
    slots: list[int] = []
    for (name, start), size in zip(there, known, strict=True):
        if start not in size.starts:
            return f"{name} at {start}"
        slots += range(start, start + size.memory)
    if len(set(slots)) < len(slots):
        return f"{[*there]} lie on each other"
    if sum(size.compute for size in known) > (MIG_MODELS[model].compute if known else 0):
        return f"{[*there]} have more compute than there is"
    if any(sum(size is other for other in known) > size.count_max for size in known):
        return f"{[*there]} are too many of one size"
    return ""


def most_more(model: str, there: Sequence[Piece], name: str) -> int:
    """How many more slices of one profile a GPU takes beside what is there, wherever that lies."""
    size = profile_of(model, name)
    if size is None:
        return 0
    able = [start for start in size.starts if not unlawful(model, [*there, (name, start)])]
    for count in range(len(able), 0, -1):
        if any(
            not unlawful(model, [*there, *[(name, s) for s in some]]) for some in combinations(able, count)
        ):
            return count
    return 0


def can_be_laid(model: str, fixed: Sequence[Piece], names: Sequence[str]) -> bool:
    """Whether slices of these profiles fit beside some that lie where they lie, put anywhere."""
    return _can_be_laid(model, tuple(sorted(fixed)), tuple(names))


@cache
def _can_be_laid(model: str, fixed: Pieces, names: tuple[str, ...]) -> bool:
    if unlawful(model, fixed) or (names and model not in MIG_MODELS):
        return False
    if not names:
        return True
    size = profile_of(model, names[0])
    return size is not None and any(
        can_be_laid(model, [*fixed, (names[0], start)], names[1:]) for start in size.starts
    )


def booked_milli(model: str, name: str) -> int:
    """What a slice takes of its GPU: its part of the compute."""
    size = profile_of(model, name)
    assert size is not None, f"{model} has no {name}"
    return size.compute * MILLI // MIG_MODELS[model].compute


def charged_milli(name: str) -> int:
    """What a slice counts against quotas: the larger part of a GPU, on the model where that is least; 0: no such."""
    parts = []
    for geometry in MIG_MODELS.values():
        for size in geometry.profiles:
            if size.name == name:
                compute, memory = (
                    size.compute * MILLI / geometry.compute,
                    size.memory * MILLI / geometry.slots,
                )
                parts.append(max(-int(-compute // 1), -int(-memory // 1)))
    return min(parts, default=0)


def shares(count: int, model: str, name: str) -> list[tuple[int, int]]:
    """Ways to put so many slices on GPUs, the same number on each: (on each GPU, GPUs)."""
    size = profile_of(model, name)
    most = size.count_max if size else 0
    return [(each, count // each) for each in range(1, min(count, most) + 1) if count % each == 0]
