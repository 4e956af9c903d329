"""What a cell of a trace may hold: numbers within reason, times, names. Everything else is refused with a reason.

Limits are generous for a cluster and tight for a computer: a time fits a 64-bit integer of milliseconds and is exact as
a float, so that what is read equals what was saved.
"""

from datetime import UTC, datetime
from math import isnan

TIME_MS_MAX = 10**15
"""Some 30,000 years."""

_SECONDS_MAX = TIME_MS_MAX / 1000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (times without a zone are taken as UTC)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)

COUNT_MAX = 10**6
"""GPUs or tasks of one job."""

MEMORY_MIB_MAX = 10**12
CPU_MILLI_MAX = 10**12
TEXT_CHARS_MAX = 256


class RowError(Exception):
    """A row that cannot be used; the text says why."""


def show(text: str) -> str:
    """A cell as it may be printed: short, and without control characters."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def parse_seconds_ms(text: str, what: str) -> int:
    """Seconds, in milliseconds."""
    try:
        value = float(text)
    except ValueError:
        raise RowError(f"{what} is {show(text)}, not a number") from None
    if 0 <= value <= _SECONDS_MAX:
        return int(value * 1000 + 0.5)
    raise RowError(f"{what} is {show(text)}, which is {_absurd(value)}")


def parse_whole(text: str, what: str, most: int = COUNT_MAX) -> int:
    """A whole number; `8.0` is one."""
    try:
        value = float(text)
    except ValueError:
        raise RowError(f"{what} is {show(text)}, not a number") from None
    if not 0 <= value <= most:
        raise RowError(f"{what} is {show(text)}, which is {_absurd(value)}")
    if value != int(value):
        raise RowError(f"{what} is {show(text)}, not a whole number")
    return int(value)


def parse_thousandths(text: str, what: str, most: int) -> int:
    """A number with at most three decimals, in thousandths."""
    try:
        value = float(text) * 1000
    except ValueError:
        raise RowError(f"{what} is {show(text)}, not a number") from None
    if not 0 <= value <= most:
        raise RowError(f"{what} is {show(text)}, which is {_absurd(value)}")
    if abs(value - round(value)) > 1e-6 + 1e-12 * value:
        raise RowError(f"{what} is {show(text)}, finer than a thousandth")
    return round(value)


def parse_instant_ms(text: str, what: str) -> int:
    """A time of day such as `2026-03-02T09:30:00`, as epoch milliseconds; UTC unless it names a zone."""
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise RowError(f"{what} is {show(text)}, not a time such as 2026-03-02T09:30:00") from None
    since = when - (_EPOCH if when.tzinfo is None else _EPOCH_UTC)
    if since.days < 0:
        raise RowError(f"{what} is {show(text)}, before 1970")
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def name(text: str, what: str) -> str:
    """A short text in one line, without the blanks around it."""
    text = text.strip()
    if not text.isprintable():
        raise RowError(f"{what} is {show(text)}, with characters that cannot be printed")
    if len(text) > TEXT_CHARS_MAX:
        raise RowError(f"{what} has {len(text)} characters, more than {TEXT_CHARS_MAX}")
    return text


def parse_tenant(text: str, what: str = "tenant") -> str:
    """A place in the tenant tree: `team`, `team/user`, `org/team/user`."""
    path = name(text, what)
    if not all(part and part == part.strip() for part in path.split("/")):
        raise RowError(f"{what} is {show(text)}, not a path such as team/user")
    return path


def _absurd(value: float) -> str:
    if isnan(value):
        return "not a number"
    return "negative" if value < 0 else "absurdly large"
