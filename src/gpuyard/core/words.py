"""Times in words, for reasons. The core has no clock and no time zone, so it speaks of spans only."""

from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS


_UNITS = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s"))


def span(ms: int) -> str:
    """A span in its largest unit and the next: `2 h 5 min`."""
    for (size, name), below in zip(_UNITS, (*_UNITS[1:], None), strict=True):
        if ms >= size:
            text = f"{ms // size} {name}"
            rest = ms % size // below[0] if below else 0
            return f"{text} {rest} {below[1]}" if below and rest else text
    return "0 s"
