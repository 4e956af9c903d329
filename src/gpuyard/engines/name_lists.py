"""Names and numbers in short: n1, n2 and n3 are `n[1-3]`, numbers by node `2(x3),1`, indices of an array `1-4`.

Jobs find such lists in the variables of their environment, and people in what commands print. They are read and written
here alone. What others wrote is refused before it takes memory: a short text can stand for very many names.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product

HOSTS_MAX = 100_000
_NOTHING = ("", "(null)", "N/A", "None")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,15})")

# -- reading -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def expand(text: str, most: int = HOSTS_MAX) -> tuple[str, ...]:
    """Every name once, in the order they are written; raises `ValueError` with the end of a sentence.

    `n[01-03,7],m` is n01, n02, n03, n7 and m, `r[1-2]c[0-1]` is four nodes.
    """
    if text in _NOTHING:
        return ()
    found: dict[str, None] = {}
    for part in _outside_brackets(text):
        found.update(dict.fromkeys(_expanded(part, most)))
        if len(found) > most:
            raise _too_many(most)
    return tuple(found)


def _too_many(most: int) -> ValueError:
    return ValueError(f"names more than {most} nodes")


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
    choices, total = [], 1
    for place, piece in enumerate(re.split(r"\[([^\]]*)\]", part)):
        choices.append([piece] if place % 2 == 0 else _numbers(piece, most))
        total *= len(choices[-1])
        if total > most:
            raise _too_many(most)
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
        if len(found) > most:
            raise _too_many(most)
    return found


# -- writing -------------------------------------------------------------------------------------------------------


def natural_key(name: str) -> tuple[str, int, str]:
    """A key that puts n2 before n10."""
    match = _NUMBERED.fullmatch(name)
    return (match[1], int(match[2]), name) if match else (name, -1, name)


def fold_names(names: Sequence[str]) -> str:
    """Names in their order; neighbours with the same stem share a bracket. Leading zeros are part of a name."""
    if len(names) == 1:
        return names[0]
    groups: list[tuple[str, list[str]]] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        stem, number = (match[1], match[2]) if match else (name, "")
        if number and groups and groups[-1][0] == stem and groups[-1][1][0]:
            groups[-1][1].append(number)
        else:
            groups.append((stem, [number]))
    parts = []
    for stem, numbers in groups:
        inside = _ranges(numbers)
        parts.append(stem + (f"[{inside}]" if len(numbers) > 1 else inside))
    return ",".join(parts)


def _ranges(numbers: list[str]) -> str:
    ranges: list[list[str]] = []
    for number in numbers:
        if (ranges and len(number) == len(ranges[-1][1]) and int(number) == int(ranges[-1][1]) + 1) or (
            ranges
            and not ranges[-1][1].startswith("0")
            and not number.startswith("0")
            and (int(number) == int(ranges[-1][1]) + 1)
        ):
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join([first if first == last else f"{first}-{last}" for first, last in ranges])


def fold_counts(numbers: Iterable[int]) -> str:
    """Numbers by node as Slurm writes them: `2(x3),1`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][0] == number:
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return ",".join([f"{number}(x{times})" if times > 1 else str(number) for number, times in runs])


def fold_indices(indices: Iterable[int]) -> str:
    """Indices of an array: 1-4, or 3,5,7."""
    return _ranges([str(index) for index in sorted(indices)])
