"""Curves of a job in a terminal: one signal below the other over one axis of time. Pure: text from values.

A column without any point is blank, because nobody looked then; a zero is a line at the bottom. What was estimated is
hatched and has `~` before its figures, so that no eye takes it for a measurement.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuyard.quantities import memory_size, percent_text, rate_text, span
from gpuyard.reports.table import clock
from gpuyard.telemetry.spans import Spans, compute_mean, find_largest, find_spans

Curve = Mapping[str, Any]
ROWS = 2
_BLOCKS = " ▁▂▃▄▅▆▇█"
_HATCHED = " ⡀⡄⡆⡇⣇⣧⣷⣿"
_WIDTH_MIN = 20


def _percent(value: float) -> str:
    return percent_text(value / 10)


def _memory(value: float) -> str:
    return memory_size(round(value))


def _cores(value: float) -> str:
    cores = value / 1000
    if 0 < cores < 0.005:
        return "under 0.01 cores"
    written = f"{cores:.0f}" if cores >= 10 or cores < 0.005 else f"{cores:.2g}"
    return f"{written} core{'' if written == '1' else 's'}"


SHOWN: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("gpu_busy", "GPU", _percent),
    ("gpu_busy_estimated", "GPU", _percent),
    ("gpu_memory", "GPU memory", _memory),
    ("cpu", "CPU", _cores),
    ("memory", "memory", _memory),
    ("disk_read", "read", rate_text),
    ("disk_written", "written", rate_text),
)
"""Signals that are drawn, from top to bottom, what they are called, and how their values are written."""


def columns(found: Spans, from_ms: int, to_ms: int, width: int) -> list[float | None]:
    """One value for each column: the mean of what lies in it; None: a hole."""
    sums, spans = [0.0] * width, [0.0] * width
    step = max(1, to_ms - from_ms) / width
    for since, until, value in found:
        first = max(0, int((since - from_ms) / step))
        for column in range(first, min(width, int((until - from_ms) / step) + 1)):
            left = from_ms + column * step
            inside = min(until, left + step) - max(since, left)
            if inside > 0:
                sums[column] += inside * value
                spans[column] += inside
    return [sums[i] / spans[i] if spans[i] else None for i in range(width)]


def drawn(values: Sequence[float | None], full: float, blocks: str = _BLOCKS, rows: int = ROWS) -> list[str]:
    """A curve as filled columns, the top line first."""
    levels = [
        None if value is None else max(1, round(8 * rows * min(1.0, value / full) if full else 0))
        for value in values
    ]
    return [
        "".join([" " if level is None else blocks[max(0, min(8, level - 8 * row))] for level in levels])
        for row in range(rows - 1, -1, -1)
    ]


def draw_curves(told: Mapping[str, Any], width: int, now_ms: int) -> list[str]:
    """All curves of a job, line by line. Width 0: no terminal, and figures alone."""
    started_ms = told["started_ms"] or 0
    until_ms = max(told["ended_ms"] or now_ms, started_ms + 1)
    by_name = {curve["signal"]: curve for curve in told["curves"] if curve["times_ms"]}
    rows = [(name, curve, word) for signal, name, word in SHOWN if (curve := by_name.get(signal))]
    if not rows:
        return []
    measured = [_measured(name, curve, word, started_ms) for name, curve, word in rows]
    left = max([len(name) for name, *_rest in measured])
    if not width:
        # Where nobody knows what the job holds of it, the scale is its own peak.
        held = [bool(curve["full"]) for _name, curve, _word in rows]
        return [
            f"{name:<{left}}  {figures}{f', of {scale}' if known else ''}"
            for (name, _found, _full, scale, figures, _b), known in zip(measured, held, strict=True)
        ]
    right = max([max(len(scale) + 2, len(figures)) for _n, _f, _u, scale, figures, _b in measured])
    wide = max(_WIDTH_MIN, width - left - right - 5)
    lines = []
    for name, found, full, scale, figures, blocks in measured:
        top, bottom = drawn(columns(found, started_ms, until_ms, wide), full, blocks)
        lines += [f"{name:<{left}} │{top}│ ‾ {scale}", f"{'':<{left}} │{bottom}│ {figures}"]
    return [*lines, *_axis(started_ms, until_ms, left, wide)]


def _measured(
    name: str, curve: Curve, word: Callable[[float], str], started_ms: int
) -> tuple[str, Spans, float, str, str, str]:
    found = find_spans(curve["times_ms"], curve["values"], started_ms, counts=curve["counts"])
    top = find_largest(found)
    about = "~" if curve["estimated"] else ""
    # What goes beyond the ask, as CPU time may where nothing limits it, stays inside the picture.
    full = max(curve["full"] or 0, top)
    scale = word(full)
    if full == curve["full"] and curve["signal"] in ("cpu", "memory"):
        scale += " asked"
    figures = f"mean {about}{word(compute_mean(found))}, peak {about}{word(top)}"
    if curve["estimated"]:
        name, scale = f"{name} ~", f"{scale} (estimated)"
    return name, found, full or 1.0, scale, figures, _HATCHED if curve["estimated"] else _BLOCKS


def _axis(from_ms: int, to_ms: int, left: int, wide: int) -> list[str]:
    first, last = clock(from_ms), clock(to_ms)
    middle = span(to_ms - from_ms)
    room = wide - len(first) - len(last)
    return [
        f"{'':<{left}} └{'─' * wide}┘",
        f"{'':<{left}}  {first}{middle if room > len(middle) + 2 else '':^{max(1, room)}}{last}",
    ]
