"""Job arrays: `1-10:2%4` is the tasks 1, 3, 5, 7 and 9, four of them at a time."""

import re
from typing import NamedTuple

from gpuyard.errors import quote
from gpuyard.wire.job_fields import ARRAY_TASKS_MAX, TEXT_MAX

_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")


class Array(NamedTuple):
    """Tasks of one array."""

    text: str
    """The indices in the wire format: without limit, brackets and leading zeros."""
    tasks: int
    limit: int
    """How many may run at a time; 0: all."""


def parse_array(text: str) -> Array:
    """An array; else `ValueError` with the rest of a sentence."""
    indices, limit = _limited(text.strip().strip("[]"))
    parts: list[str] = []
    seen: set[int] = set()
    for part in filter(None, indices.split(",")):
        match = _PART.fullmatch(part)
        if not match:
            raise ValueError(f"must be written as 0-9, 1,3,5 or 1-10:2%4, not {quote(text)}")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step == 0:
            instead = f"{last}-{first}" if last < first else f"{first}-{last}"
            raise ValueError(f"has a range that goes nowhere: {quote(part)}; write {instead}")
        if (last - first) // step + 1 + len(seen) > ARRAY_TASKS_MAX:
            raise ValueError(f"has more than {ARRAY_TASKS_MAX} tasks; split it into several arrays")
        seen.update(range(first, last + 1, step))
        each = str(first) if first == last else f"{first}-{last}"
        parts.append(each if step == 1 or first == last else f"{each}:{step}")
    if not parts:
        raise ValueError(f"must be written as 0-9, 1,3,5 or 1-10:2%4, not {quote(text)}")
    written = ",".join(parts)
    if len(written) > TEXT_MAX:
        written = _compressed(sorted(seen))
        if len(written) > TEXT_MAX:
            raise ValueError(f"names its tasks in more than {TEXT_MAX} characters; use ranges")
    return Array(written, len(seen), limit)


def _compressed(indices: list[int]) -> str:
    """Neighbours as ranges."""
    ranges: list[list[int]] = []
    for index in indices:
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join([str(first) if first == last else f"{first}-{last}" for first, last in ranges])


def _limited(text: str) -> tuple[str, int]:
    """The indices without `%4`, which may also be in the middle; and 4."""
    before, sign, after = text.partition("%")
    if not sign:
        return text, 0
    figure, comma, rest = after.partition(",")
    if figure and not re.fullmatch(r"[0-9]{1,9}", figure):
        raise ValueError(f"must have a number after '%', not {quote(figure)}")
    return before + comma + rest, int(figure or 0)
