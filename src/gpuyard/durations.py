"""Durations as people write them, such as `90s`, `24h` or `1h30m`, in milliseconds. Light: `yard submit` needs them."""

import re

from gpuyard.errors import quoted

DURATION_PATTERN = r"^([0-9]{1,9}d)?([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?$"
SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
DURATION_MS_MAX = 3650 * DAY_MS
"""Ten years: the time limit of a job that has none."""

_DURATION_UNITS_MS = (DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS)


def duration_ms(text: str) -> int:
    """A duration such as `90s`, `10m`, `24h`, `7d` or `1h30m`, in milliseconds."""
    match = re.fullmatch(DURATION_PATTERN, text)
    if not match or not text:
        raise ValueError(f"must be a duration such as 90s, 10m, 24h, 7d or 1h30m, not {quoted(text)}")
    parts = zip(match.groups(), _DURATION_UNITS_MS, strict=True)
    value = sum(int(part[:-1]) * unit for part, unit in parts if part)
    if value > DURATION_MS_MAX:
        raise ValueError(f"must be at most {duration_text(DURATION_MS_MAX)}, not {text}")
    return value


def duration_positive_ms(text: str) -> int:
    """A duration above zero, in milliseconds."""
    value = duration_ms(text)
    if value == 0:
        raise ValueError(f"must be longer than zero, not {text}")
    return value


def duration_text(value_ms: int) -> str:
    """A duration in the notation of the file, in whole seconds: the inverse of `duration_ms`."""
    parts, rest = [], value_ms
    for unit, letter in zip(_DURATION_UNITS_MS, "dhms", strict=True):
        count, rest = divmod(rest, unit)
        if count:
            parts.append(f"{count}{letter}")
    return "".join(parts) or "0s"
