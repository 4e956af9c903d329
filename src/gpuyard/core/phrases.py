"""Quantities in words, for reasons. The core has no clock and no time zone, so it gives times as spans only."""

from collections.abc import Sequence

from gpuyard.model.units import DAY_MS, GIB_MIB, HOUR_MS, MILLI, MINUTE_MS, SECOND_MS

_UNITS = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s"))
_NAMES_MAX = 3
"""How many names of a list are shown."""


def span(ms: int) -> str:
    """A span in its largest unit and the next: `2 h 5 min`."""
    for (size, name), below in zip(_UNITS, (*_UNITS[1:], None), strict=True):
        if ms >= size:
            text = f"{ms // size} {name}"
            rest = ms % size // below[0] if below else 0
            return f"{text} {rest} {below[1]}" if below and rest else text
    return "0 s"


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


def memory_text(mib: int) -> str:
    """`64 GiB`, or MiB if it is not a whole number of GiB."""
    return f"{mib // GIB_MIB} GiB" if mib % GIB_MIB == 0 else f"{mib} MiB"


def count_text(count: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def names_text(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b, c and 5 more`."""
    if len(names) > _NAMES_MAX:
        return f"{', '.join(names[:_NAMES_MAX])} and {len(names) - _NAMES_MAX} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
