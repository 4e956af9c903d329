"""When a budget will be spent: paths of days drawn from the days that were, and where their ends lie.

Each path first draws the days that it goes by (how much is spent in a week is known no better than that) and then, day
by day, one of them, a working day for a working day. Nothing here has a clock: equal input gives equal output.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from gpuyard.model.units import DAY_MS

PATHS = 400
HISTORY_DAYS = 28
_THURSDAY = 3
"""The day of the week on which 1970 began, from Monday on."""


class Exhaustion(NamedTuple):
    """When everything is spent: of a hundred paths five end before `p5_ms`. None: the window ends first."""

    p5_ms: int | None
    p50_ms: int | None
    p95_ms: int | None
    certain: int
    """Of a hundred paths, how many end before the window does."""


def _rests(day: int) -> bool:
    """Whether a day is a Saturday or a Sunday."""
    return (day + _THURSDAY) % 7 >= 5


def estimate_exhaustion(
    daily: Sequence[tuple[int, int]], left: int, now_ms: int, until_ms: int, seed: int
) -> Exhaustion | None:
    """When `left` will be spent; `daily` are days (since 1970) and what was spent on each. None: nothing is known.

    `left` is what is not spent yet, whether it is set aside or not. The day that is not over is no day to go by.
    """
    days = [(day, spent) for day, spent in daily if day < now_ms // DAY_MS][-HISTORY_DAYS:]
    if left <= 0:
        return Exhaustion(now_ms, now_ms, now_ms, 100)
    if not any([spent for _day, spent in days]):
        return None
    random = Random(seed)
    ends = sorted([_path(random, days, left, now_ms, until_ms) for _ in range(PATHS)])
    p5, p50, p95 = [
        end if end < until_ms else None for end in [ends[PATHS * part // 100] for part in (5, 50, 95)]
    ]
    return Exhaustion(p5, p50, p95, sum([end < until_ms for end in ends]) * 100 // PATHS)


def _path(random: Random, days: list[tuple[int, int]], left: int, now_ms: int, until_ms: int) -> int:
    drawn = [random.choice(days) for _ in days]
    by_kind = [[spent for day, spent in drawn if _rests(day) is rests] for rests in (False, True)]
    every = [spent for _day, spent in drawn]
    at_ms = now_ms
    while at_ms < until_ms:
        day = at_ms // DAY_MS
        end_ms = (day + 1) * DAY_MS
        spent = random.choice(by_kind[_rests(day)] or every)
        # Of a day that has begun, its rest.
        rest = spent * (end_ms - at_ms) // DAY_MS
        if rest >= left:
            return at_ms + left * (end_ms - at_ms) // max(1, rest)
        left -= rest
        at_ms = end_ms
    return until_ms
