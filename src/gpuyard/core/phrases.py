"""Counts and names in words, for reasons. The core has no clock and no time zone, so it gives times as spans only."""

from collections.abc import Sequence

from gpuyard.model.units import HOUR_MS, MILLI

_NAMES_MAX = 3
"""How many names of a list are shown."""


def hours_text(milli_ms: int) -> str:
    """GPU time in GPU-hours, to a hundredth: `12`, `0.25`."""
    whole, part = divmod(milli_ms * 100 // (MILLI * HOUR_MS), 100)
    return f"{whole}.{part:02d}".rstrip("0") if part else str(whole)


def hours_counted(milli_ms: int) -> str:
    """The same with its unit: `12 GPU-hours`, `1 GPU-hour`."""
    hours = hours_text(milli_ms)
    return f"{hours} GPU-hour{'' if hours == '1' else 's'}"


def cores_text(cpu_milli: int) -> str:
    """`64 cores`, `1 core`, `0.5 cores`."""
    return f"{cpu_milli / MILLI:g} core{'' if cpu_milli == MILLI else 's'}"


def count_text(count: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def choose_verb(found: Sequence[int], one: str, several: str) -> str:
    """The form of a verb for one, or for several."""
    return one if len(found) == 1 else several


def names_text(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b, c and 5 more`."""
    if len(names) > _NAMES_MAX:
        return f"{', '.join(names[:_NAMES_MAX])} and {len(names) - _NAMES_MAX} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
