"""Scales and ticks: where a value lies on an axis (0 to 1), and which round values to write beside it."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from gpuyard.quantities import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled position on an axis."""

    at: float
    """0 to 1 along the axis."""
    label: str
    spare: bool = False
    """Whether it may be dropped where there is little room."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Equal steps, equal distances."""

    low: float
    high: float

    def at(self, value: float) -> float:
        return _clamp((value - self.low) / (self.high - self.low)) if self.high > self.low else 0.0


@dataclass(frozen=True, slots=True)
class Log:
    """Equal factors, equal distances. Values below `low` are on the left edge: there is no log of zero."""

    low: float
    high: float

    def at(self, value: float) -> float:
        if value <= self.low or self.high <= self.low:
            return 0.0
        return _clamp(math.log(value / self.low) / math.log(self.high / self.low))

    def value(self, at: float) -> float:
        """The value at a position: the inverse."""
        return float(self.low * (self.high / self.low) ** at)


_TIME_STEPS_MS = (
    *(n * SECOND_MS for n in (1, 5, 15, 30)),
    *(n * MINUTE_MS for n in (1, 5, 15, 30)),
    *(n * HOUR_MS for n in (1, 2, 3, 6, 12)),
    *(n * DAY_MS for n in (1, 2, 7, 14, 28, 91, 182, 364)),
)

_WAIT_TICKS = (
    (SECOND_MS, "1 s"),
    (10 * SECOND_MS, "10 s"),
    (MINUTE_MS, "1 min"),
    (10 * MINUTE_MS, "10 min"),
    (HOUR_MS, "1 h"),
    (6 * HOUR_MS, "6 h"),
    (DAY_MS, "1 d"),
    (7 * DAY_MS, "7 d"),
    (30 * DAY_MS, "30 d"),
    (365 * DAY_MS, "1 y"),
    (3650 * DAY_MS, "10 y"),
)


def choose_steps(high: float, most: int = 5) -> list[float]:
    """0 and round values to the first at or above `high`, in at most `most` steps (1, 2, 2.5, 5 × 10^n)."""
    if high <= 0:
        return [0.0, 1.0]
    rough = high / most
    base = 10.0 ** math.floor(math.log10(rough))
    step = next(base * m for m in (1, 2, 2.5, 5, 10, 20) if base * m * most >= high * (1 - 1e-9))
    return [step * n for n in range(math.ceil(high / step - 1e-9) + 1)]


def make_time_ticks(start_ms: int, end_ms: int, origin_ms: int = 0, most: int = 8) -> list[Tick]:
    """Ticks at round times: dates (UTC) with the epoch time of the start, else time since the start."""
    span = max(end_ms - start_ms, 1)
    year = 364 * DAY_MS
    step = next((s for s in _TIME_STEPS_MS if span <= s * most), year * math.ceil(span / (year * most)))
    first = -(-(start_ms + origin_ms) // step) * step - origin_ms
    scale = Linear(start_ms, end_ms)
    places = range(first, end_ms + 1, step)
    return [
        Tick(scale.at(ms), _date(ms + origin_ms, step) if origin_ms else _since(ms, step), index % 2 == 1)
        for index, ms in enumerate(places)
    ]


def _date(epoch_ms: int, step_ms: int) -> str:
    when = datetime.fromtimestamp(epoch_ms // SECOND_MS, UTC)
    if step_ms >= DAY_MS or epoch_ms % DAY_MS == 0:
        return f"{when.day} {when:%b}"
    return f"{when:%H:%M}" if step_ms >= MINUTE_MS else f"{when:%H:%M:%S}"


def _since(ms: int, step_ms: int) -> str:
    """The unit follows the step, so that all labels of one axis use the same one."""
    sizes = ((12 * HOUR_MS, DAY_MS, "d"), (30 * MINUTE_MS, HOUR_MS, "h"), (30 * SECOND_MS, MINUTE_MS, "min"))
    size, unit = next(((size, unit) for least, size, unit in sizes if step_ms >= least), (SECOND_MS, "s"))
    return f"{ms / size:g} {unit}" if ms else "0"


def wait_scale(longest_ms: int) -> tuple[Log, list[Tick]]:
    """A log axis from one second to the first human tick past the longest wait, one minute at least."""
    high = next((ms for ms, _ in _WAIT_TICKS[2:] if ms >= longest_ms), max(longest_ms, _WAIT_TICKS[-1][0]))
    scale = Log(SECOND_MS, high)
    ticks = [(ms, label) for ms, label in _WAIT_TICKS if ms <= high]
    spare = {10 * SECOND_MS, 10 * MINUTE_MS, 6 * HOUR_MS, 7 * DAY_MS}
    return scale, [Tick(scale.at(ms), label, ms in spare) for ms, label in ticks]


def make_factor_scale(highest: float) -> tuple[Log, list[Tick]]:
    """A log axis from 1× to a round factor at or past the highest, 2× at least."""
    rounds = [m * 10**e for e in range(16) for m in (1, 2, 5)]
    high = next((r for r in rounds[1:] if r >= highest), rounds[-1])
    scale = Log(1, high)
    shown = [r for r in rounds if r <= high]
    if high > 100:
        shown = [r for r in shown if r in {10**e for e in range(16)}]
    return scale, [Tick(scale.at(r), f"{r:,}×") for r in shown]


def push_apart(places: list[float], gap: float, low: float, high: float) -> list[float]:
    """Positions moved so that neighbours are `gap` apart and all are within `low` and `high`; the order is kept."""
    order = sorted(range(len(places)), key=lambda index: (places[index], index))
    moved = [min(max(places[index], low), high) for index in order]
    for before, after in pairwise(range(len(moved))):
        moved[after] = max(moved[after], moved[before] + gap)
    ceiling = high
    for index in reversed(range(len(moved))):
        moved[index] = min(moved[index], ceiling)
        ceiling = moved[index] - gap
    result = list(places)
    for index, place in zip(order, moved, strict=True):
        result[index] = place
    return result


def _clamp(value: float) -> float:
    return min(max(value, 0.0), 1.0)
