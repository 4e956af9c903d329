"""Times as people write them in options: the one reader of --since, --from, --to, --at, --begin and --deadline.

A time without a zone is one of the person's machine. Only the days of the books are days of UTC, as the books are.
"""

import re
import time
from datetime import UTC, datetime, timedelta

from gpuyard.errors import BadInput, quote
from gpuyard.quantities import parse_positive_duration_ms

_EPOCH_MS = r"[0-9]{12,14}"
_SPAN = r"-?((?:[0-9]+[a-z])+)"
_CLOCK = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?"
_NAMED_DAY = r"today|yesterday"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_WHOLE_DAY = rf"{_NAMED_DAY}|{_DATE}"
_FORMS = (
    "Forms that work: 2h or -2h (two hours ago), 7d, 14:05, today, yesterday, 'yesterday 14:05', 2026-11-17, "
    "2026-11-17T10:00, or milliseconds since 1970."
)


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def parse_past_ms(option: str, text: str, at_ms: int) -> int:
    """A time in milliseconds since 1970; it is `at_ms` now. A time of day is the last such time."""
    said = text.strip()
    span = re.fullmatch(_SPAN, said)
    if span is not None:
        return at_ms - _span_ms(option, span[1], _FORMS)
    if re.fullmatch(_EPOCH_MS, said):
        return int(said)
    now = _here(at_ms)
    found = _dated(option, said, now)
    if re.fullmatch(_CLOCK, said) and found > now:
        # The day before, if that time of today has not come yet.
        found -= timedelta(days=1)
    return round(found.timestamp() * 1000)


def parse_since_ms(option: str, text: str, at_ms: int) -> int:
    """A time up to now, from which on something is shown."""
    found = parse_past_ms(option, text, at_ms)
    if found > at_ms:
        raise BadInput(f"{option} {text}: that time is still to come", _FORMS)
    return found


def parse_coming_ms(option: str, text: str, at_ms: int) -> int:
    """A time to come: `+2h`, or any form that Slurm's --begin takes. A time of day is the next such time."""
    if text.startswith("+"):
        return at_ms + _span_ms(option, text[1:])
    from gpuyard.intake.sbatch.moments import parse_moment

    try:
        return round(parse_moment(text, _here(at_ms)).timestamp() * 1000)
    except ValueError as error:
        raise BadInput(f"{option} {error}", f"Also: {option} +2h, two hours from now.") from None


def book_day(option: str, text: str, at_ms: int) -> str:
    """A day of the books as the yard takes it: 2026-11-17. Of a moment it is the day of UTC in which that lies."""
    said = text.strip()
    if re.fullmatch(_WHOLE_DAY, said):
        today = datetime.fromtimestamp(at_ms / 1000, UTC).replace(tzinfo=None)
        return f"{_dated(option, said, today):%Y-%m-%d}"
    return f"{datetime.fromtimestamp(parse_past_ms(option, text, at_ms) / 1000, UTC):%Y-%m-%d}"


def book_days(first: str, last: str) -> tuple[str, str]:
    """What --from and --to say, as days of the books; empty where one is left out."""
    at_ms = now_ms()
    given = (("--from", first), ("--to", last))
    from_day, to_day = [book_day(option, text, at_ms) if text else "" for option, text in given]
    return from_day, to_day


def _here(at_ms: int) -> datetime:
    """What the clock on the wall shows here. It has no zone: another day of the year may be in summer time."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().replace(tzinfo=None)


def _dated(option: str, said: str, now: datetime) -> datetime:
    """A day, a time of today, or both."""
    typed, named = said, re.match(_NAMED_DAY, said)
    if re.fullmatch(_CLOCK, said):
        said = f"{now:%Y-%m-%d} {said}"
    elif named is not None:
        back = ("today", "yesterday").index(named[0])
        said = f"{now - timedelta(days=back):%Y-%m-%d}{said[named.end() :]}"
    # A date first, then the hour with its zero, as ISO 8601 has it.
    written = re.sub(rf"^({_DATE})[ Tt](?=[0-9]:)", r"\1T0", said)
    try:
        if not re.match(_DATE, written):
            raise ValueError
        found = datetime.fromisoformat(written)
        found.timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadInput(f"{option} {quote(typed)} is not a time", _FORMS) from None
    return found


def _span_ms(option: str, text: str, forms: str = "") -> int:
    try:
        return parse_positive_duration_ms(text)
    except ValueError as error:
        raise BadInput(f"{option} {error}", forms) from None
