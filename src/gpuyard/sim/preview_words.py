"""A preview in words. Kept apart from the preview itself, for commands that only print one."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from gpuyard.quantities import percent_text

TENANTS_SAID_MAX = 4


def preview_text(found: Mapping[str, Any]) -> str:
    """The preview in one sentence."""
    days = f"over {span_text(found['until_ms'] - found['from_ms'])}"
    told = [row for row in found["tenants"] if None not in row["wait_mean_ms"]]
    if not told:
        return f"{days}: no job was recorded whose wait could be compared"
    # The tenants with the largest change, in the order of the table.
    most = sorted(told, key=lambda row: (-_moved(row), row["tenant"]))[:TENANTS_SAID_MAX]
    waits = [f"{row['tenant']} {pair_text(*row['wait_mean_ms'])}" for row in told if row in most]
    return f"{days}: mean wait of {', '.join(waits)}, {_utilisation_text(found['utilisation'])}"


def _moved(row: Mapping[str, Any]) -> int:
    before, after = row["wait_mean_ms"]
    return abs(after - before)


def pair_text(before_ms: int | None, after_ms: int | None) -> str:
    """Two waits in one unit: `41 → 18 min`; `6 min as before`."""
    if before_ms is None or after_ms is None:
        return f"{alone_text(before_ms)} → {alone_text(after_ms)}"
    most = max(before_ms, after_ms)
    unit_ms, unit = next(
        (size, name)
        for size, name in ((HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s"))
        if most >= 2 * size or size == SECOND_MS
    )
    before, after = (_figure(ms, unit_ms) for ms in (before_ms, after_ms))
    return f"{before} {unit} as before" if before == after else f"{before} → {after} {unit}"


def alone_text(ms: int | None) -> str:
    """One wait: `41 min`."""
    return "-" if ms is None else pair_text(ms, ms).removesuffix(" as before")


def _figure(ms: int, unit_ms: int) -> str:
    """Whole numbers from ten up, one decimal below."""
    tenths = (10 * ms + unit_ms // 2) // unit_ms
    return str((ms + unit_ms // 2) // unit_ms) if tenths >= 100 or not tenths % 10 else f"{tenths / 10:.1f}"


def span_text(span_ms: int) -> str:
    """`the last 7 days`, `the last 26 hours`."""
    for size, name in ((DAY_MS, "day"), (HOUR_MS, "hour"), (MINUTE_MS, "minute")):
        count = round(span_ms / size)
        if span_ms >= 2 * size or (count == 1 and name == "day"):
            return f"the last {count} {name}s" if count != 1 else f"the last {name}"
    return "the last minute"


def _utilisation_text(sides: Sequence[float | None]) -> str:
    before, after = sides
    if before is None or after is None:
        return "utilisation unknown"
    points = 100 * (after - before)
    if abs(points) < 0.05:
        return f"utilisation {percent_text(100 * before)} as before"
    return f"utilisation {points:+.0f} points" if abs(points) >= 1 else f"utilisation {points:+.1f} points"
