"""Node names in brackets: `n[01-03,7],m` is n01, n02, n03, n7 and m, `r[1-2]c[0-1]` is four nodes."""

import re
from functools import lru_cache
from itertools import product

HOSTS_MAX = 100_000
_NOTHING = ("", "(null)", "N/A", "None")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


@lru_cache(maxsize=4096)
def expand(text: str, most: int = HOSTS_MAX) -> tuple[str, ...]:
    """Every name once, in the order they are written; raises `ValueError` with the end of a sentence."""
    if text in _NOTHING:
        return ()
    found: dict[str, None] = {}
    for part in _outside_brackets(text):
        found.update(dict.fromkeys(_expanded(part, most)))
        if len(found) > most:
            raise ValueError(f"names more than {most} nodes")
    return tuple(found)


def _outside_brackets(text: str) -> list[str]:
    """The parts between commas or blanks outside brackets."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            break
        if depth == 0 and char in ", \t":
            parts.append(current)
            current = ""
        else:
            current += char
    if depth:
        raise ValueError("has brackets that do not match")
    return [part for part in [*parts, current] if part]


def _expanded(part: str, most: int) -> list[str]:
    pieces = re.split(r"\[([^\]]*)\]", part)
    choices = [[piece] if place % 2 == 0 else _numbers(piece, most) for place, piece in enumerate(pieces)]
    total = 1
    for choice in choices:
        total *= len(choice)
        if total > most:
            raise ValueError(f"names more than {most} nodes")
    return ["".join(each) for each in product(*choices)]


def _numbers(text: str, most: int) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise ValueError("must be written as n[01-03,7]")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= most:
            raise ValueError(f"has a range that goes nowhere, or too far: {part!r}")
        # Leading zeros are part of the name: the first number says how wide all are.
        width = len(match[1]) if match[1].startswith("0") else 0
        found += [f"{number:0{width}d}" for number in range(first, last + 1)]
    return found
