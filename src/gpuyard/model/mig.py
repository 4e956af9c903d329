"""MIG: the slices into which a GPU can be cut, and where each may lie.

The memory of a GPU is a row of slots; a profile takes some of them, starting at certain slots, and some of the compute
slices, of which a GPU has fewer than memory slots. Figures are those of `nvidia-smi mig -lgip` and `-lgipp`; the
placements of B200 are derived from its fractions and counts, because we have not seen its list.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Profile:
    """One size of slice on one GPU model."""

    name: str
    """As in `1g.18gb`; `+me` includes the media engines."""
    number: int
    """The driver's number for it."""
    compute: int
    """Compute slices it takes."""
    memory: int
    """Memory slots it takes."""
    count_max: int
    """How many of it fit on a GPU."""
    memory_mib: int
    """The memory that a program sees."""
    starts: tuple[int, ...]
    """Slots at which it may start."""


@dataclass(frozen=True, slots=True, eq=False)
class MigGeometry:
    """How one GPU model is cut. There is one object per model, so that caches can use it as a cheap key."""

    model: str
    slots: int
    compute: int
    profiles: tuple[Profile, ...]
    """Smallest first; a profile with media engines follows its plain twin."""

    def profile(self, name: str) -> Profile | None:
        """The profile of that name."""
        return next((each for each in self.profiles if each.name == name), None)


class Slice(NamedTuple):
    """One MIG instance, made or to be made: the GPU of the node, the profile, and the first slot."""

    gpu: int
    profile: str
    start: int


def _geometry(
    model: str, slots: int, compute: int, *rows: tuple[str, int, int, int, int, float, str]
) -> MigGeometry:
    profiles = [
        Profile(name, number, parts, memory, most, round(gib * 1024), tuple([int(start) for start in starts]))
        for name, number, parts, memory, most, gib, starts in rows
    ]
    return MigGeometry(model, slots, compute, tuple(profiles))


def _seven(model: str, names: tuple[str, str, str, str, str, str], gib: tuple[float, ...]) -> MigGeometry:
    """A GPU with eight memory slots and seven compute slices: all models since A100, except A30, are cut alike."""
    one, double, two, three, four, whole = names
    return _geometry(
        model, 8, 7,
        (one, 19, 1, 1, 7, gib[0], "0123456"),
        (f"{one}+me", 20, 1, 1, 1, gib[0], "0123456"),
        (double, 15, 1, 2, 4, gib[1], "0246"),
        (two, 14, 2, 2, 3, gib[1], "024"),
        (three, 9, 3, 4, 2, gib[2], "04"),
        (four, 5, 4, 4, 1, gib[2], "0"),
        (whole, 0, 7, 8, 1, gib[3], "0"),
    )  # fmt: skip


MIG_MODELS: dict[str, MigGeometry] = {
    geometry.model: geometry
    for geometry in (
        _geometry(
            "A30", 4, 4,
            ("1g.6gb", 14, 1, 1, 4, 5.81, "0123"),
            ("1g.6gb+me", 21, 1, 1, 1, 5.81, "0123"),
            ("2g.12gb", 5, 2, 2, 2, 11.69, "02"),
            ("2g.12gb+me", 6, 2, 2, 1, 11.69, "02"),
            ("4g.24gb", 0, 4, 4, 1, 23.44, "0"),
        ),
        _seven(
            "A100-40GB",
            ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
            (4.75, 9.62, 19.5, 39.25),
        ),
        _seven(
            "A100-80GB",
            ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
            (9.62, 19.5, 39.25, 78.5),
        ),
        _seven(
            "H100",
            ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
            (9.75, 19.62, 39.5, 79.25),
        ),
        _seven(
            "H200",
            ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
            (16.0, 32.5, 69.75, 140.0),
        ),
        _seven(
            "B200",
            ("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
            (22.0, 44.25, 89.0, 178.0),
        ),
    )
}  # fmt: skip
"""By GPU model."""


WHOLE = "whole"
"""The layout of a GPU that is not cut."""

TEXT_MAX = 200
"""Longer than any layout."""

_PART = re.compile(r"(?:(\d{1,2})x)?(\d+g\.\d+gb(?:\+me)?)")
_ALL = re.compile(rf"{_PART.pattern}(?:[+,]{_PART.pattern})*")


def read_layout(text: str) -> tuple[str, ...]:
    """The profiles of a layout, each as often as it is wanted; none for `whole`. `ValueError` says what is wrong."""
    if len(text) > TEXT_MAX:
        raise ValueError(
            f"a layout of {len(text):,} characters, {text[:20]!r} and so on: no GPU has so many slices"
        )
    plain = re.sub(r"\s+", "", text).lower()
    if plain == WHOLE:
        return ()
    if not _ALL.fullmatch(plain):
        raise ValueError(f"{text[:60]!r} is not a layout: write 7x1g.18gb, 2x2g.35gb+3x1g.18gb or whole")
    names: list[str] = []
    for count, name in _PART.findall(plain):
        if count and not int(count):
            raise ValueError(f"{text[:60]!r} has none of {name}: leave it out")
        names += [name] * int(count or 1)
    return tuple(names)
