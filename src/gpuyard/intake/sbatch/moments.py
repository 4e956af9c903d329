"""Moments in --begin and --deadline: `16:00`, `now+1hour`, `2027-01-20T12:34`, `tomorrow`, `teatime`.

Words in any order, with spaces, `-` or `T` between date and time. Without a date, a time of day that has passed means
tomorrow; without a year, a day that has passed means next year. The present time is an argument.
"""

import re
from datetime import datetime, time, timedelta

from gpuyard.errors import quote

_UNITS_S = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 7 * 86_400}
_NOW = re.compile(r"now(?:\s*([+-])\s*([0-9]{1,9})\s*([a-z]*))?")
_NAMED = {"midnight": time(0), "noon": time(12), "fika": time(15), "teatime": time(16)}
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?\s*(am|pm)?")
_ISO = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_AMERICAN = re.compile(r"([0-9]{1,2})[/.]([0-9]{1,2})(?:[/.]([0-9]{4}|[0-9]{2}))?")
_DIGITS = re.compile(r"([0-9]{2})([0-9]{2})([0-9]{2})?(?![0-9:])")
_GAP = re.compile(r"[\s,]+|-|t(?=[0-9])")
_YEAR_MAX = 9000


def parse_moment(text: str, now: datetime) -> datetime:
    """The moment, in the zone of `now`; else `ValueError` with the rest of a sentence.

    Without a zone, `now` is what the clock on the wall shows, and so is what it finds.
    """
    words = text.strip().lower()
    try:
        relative = _NOW.fullmatch(words)
        found = _from_now(relative, now) if relative else _Words(words, now).moment()
        if found.year > _YEAR_MAX:
            raise ValueError
    except (ValueError, OverflowError):
        example = "16:00, now+2hours, tomorrow, 2027-01-20T12:34 or 01/20/27"
        raise ValueError(f"must be a time such as {example}, not {quote(text)}") from None
    return found


def _from_now(match: re.Match[str], now: datetime) -> datetime:
    if not match[1]:
        return now
    unit = match[3].removesuffix("s") or "second"
    seconds = int(match[2]) * _UNITS_S.get(unit, 0)
    if not seconds and int(match[2]):
        raise ValueError(unit)
    # A clock without a zone may be set between the two times, for summer.
    since = now if now.tzinfo else now.astimezone()
    return since + timedelta(seconds=seconds if match[1] == "+" else -seconds)


class _Words:
    """Reads date and time from the front of the text until nothing is left."""

    def __init__(self, text: str, now: datetime) -> None:
        self._left = text
        self._now = now
        self._day: datetime | None = None
        self._clock: time | None = None
        self._guessed_year = False

    def moment(self) -> datetime:
        while self._left:
            gap = _GAP.match(self._left) if self._day or self._clock else None
            self._left = self._left[gap.end() :] if gap else self._left
            if not (self._left and (self._word() or self._pattern())):
                raise ValueError(self._left)
        if self._day is None and self._clock is None:
            raise ValueError(self._left)
        clock = self._clock or time(0)
        if self._day is None:
            found = self._now.replace(
                hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0
            )
            return found if found >= self._now.replace(microsecond=0) else found + timedelta(days=1)
        found = self._day.replace(hour=clock.hour, minute=clock.minute, second=clock.second)
        if self._guessed_year and found < self._now:
            found = found.replace(year=found.year + 1)
        return found

    def _word(self) -> bool:
        for word, clock in _NAMED.items():
            if self._left.startswith(word):
                return self._take(len(word), clock=clock)
        for days, word in enumerate(("today", "tomorrow")):
            if self._left.startswith(word):
                day = self._now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=days)
                return self._take(len(word), day=day)
        return False

    def _pattern(self) -> bool:
        if match := _ISO.match(self._left):
            return self._take(match.end(), day=self._date(int(match[1]), match[2], match[3]))
        if match := _CLOCK.match(self._left):
            return self._take(match.end(), clock=_clock(match))
        if match := _AMERICAN.match(self._left) or _DIGITS.match(self._left):
            year = int(match[3]) if match[3] else self._now.year
            self._guessed_year = match[3] is None
            return self._take(match.end(), day=self._date(year % 2000 + 2000, match[1], match[2]))
        return False

    def _date(self, year: int, month: str, day: str) -> datetime:
        return datetime(year, int(month), int(day), tzinfo=self._now.tzinfo)

    def _take(self, length: int, *, day: datetime | None = None, clock: time | None = None) -> bool:
        if (day and self._day) or (clock is not None and self._clock is not None):
            raise ValueError(self._left)
        self._day, self._clock = day or self._day, clock if clock is not None else self._clock
        self._left = self._left[length:]
        return True


def _clock(match: re.Match[str]) -> time:
    hour = int(match[1])
    if match[4]:
        if not 1 <= hour <= 12:
            raise ValueError(match[0])
        hour = hour % 12 + (12 if match[4] == "pm" else 0)
    return time(hour, int(match[2]), int(match[3] or 0))
