"""Layouts of MIG slices as people write them: `7x1g.18gb`, `2x2g.35gb+3x1g.18gb`, `whole`."""

import re

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
        raise ValueError(f"{text[:60]!r} is no layout: write 7x1g.18gb, 2x2g.35gb+3x1g.18gb or whole")
    names: list[str] = []
    for count, name in _PART.findall(plain):
        if count and not int(count):
            raise ValueError(f"{text[:60]!r} has none of {name}: leave it out")
        names += [name] * int(count or 1)
    return tuple(names)
