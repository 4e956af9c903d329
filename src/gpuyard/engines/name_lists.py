"""Names and numbers in short: n1, n2 and n3 are `n[1-3]`, numbers by node `2(x3),1`, indices of an array `1-4`.

Jobs find such lists in the variables of their environment, and people in what commands print.
"""

import re
from collections.abc import Iterable, Sequence

_NUMBERED = re.compile(r"(.*?)([0-9]{1,15})")


def natural(name: str) -> tuple[str, int, str]:
    """A key that puts n2 before n10."""
    match = _NUMBERED.fullmatch(name)
    return (match[1], int(match[2]), name) if match else (name, -1, name)


def folded(names: Sequence[str]) -> str:
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


def counted(numbers: Iterable[int]) -> str:
    """Numbers by node as Slurm writes them: `2(x3),1`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][0] == number:
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return ",".join([f"{number}(x{times})" if times > 1 else str(number) for number, times in runs])


def indices_folded(indices: Iterable[int]) -> str:
    """Indices of an array: 1-4, or 3,5,7."""
    return _ranges([str(index) for index in sorted(indices)])
