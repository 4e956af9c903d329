"""What the points of a curve stand for, and what they come to. Pure.

A point stands for the time since the one before. Where that is much longer than usual nobody looked, and the time is
in no span: neither a picture nor a mean may tell of it.
"""

from collections.abc import Sequence
from itertools import pairwise

Spans = list[tuple[int, int, float]]
"""From when, until when, and how much: of a counter for each second."""

_GAP = 2.5
"""A step that is so many times as long as usual is a hole."""
_ALONE_MS = 60_000
"""A lone point stands for so long at most, back to the beginning: so the first one of a job is its whole time."""


def find_spans(
    times_ms: Sequence[int], values: Sequence[int | None], started_ms: int, *, counts: bool = False
) -> Spans:
    """The spans of a curve. The rise of a counter over a hole is in none of them."""
    steps = sorted([after - first for first, after in pairwise(times_ms)])
    usual = steps[len(steps) // 2] if steps else _ALONE_MS
    found: Spans = []
    before = max(started_ms, times_ms[0] - usual) if times_ms else 0
    for at_ms, value in zip(times_ms, values, strict=True):
        hole = at_ms - before > _GAP * usual
        if value is not None and at_ms > before and not (hole and counts):
            per_s = value * 1000 / (at_ms - before) if counts else value
            found.append((at_ms - usual if hole else before, at_ms, per_s))
        before = at_ms
    return found


def sum_seen_ms(found: Spans) -> int:
    """How much time they cover."""
    return sum([until - since for since, until, _value in found])


def compute_mean(found: Spans) -> float:
    """Over the time that was looked at."""
    total = sum_seen_ms(found)
    return sum([(until - since) * value for since, until, value in found]) / total if total else 0.0


def find_largest(found: Spans) -> float:
    """The largest."""
    return max([value for _since, _until, value in found], default=0.0)
