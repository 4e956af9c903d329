"""Points in time as people write them: `-2h`, `14:05`, `2026-03-02 14:05`, milliseconds since 1970."""

import re
import time

from gpuyard.errors import BadInput

_EPOCH_MS = re.compile(r"[0-9]{12,14}")
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_FORMS = "For example: -2h (two hours ago), 14:05, 2026-03-02T14:05, or milliseconds since 1970."


def time_ms(option: str, text: str, now_ms: int) -> int:
    """A time in milliseconds. A time of day is the last such time; without a zone it is this machine's."""
    said = text.strip()
    if said.startswith("-"):
        from gpuyard.durations import duration_positive_ms

        try:
            return now_ms - duration_positive_ms(said[1:])
        except ValueError as error:
            raise BadInput(f"{option} {error}", _FORMS) from None
    if _EPOCH_MS.fullmatch(said):
        return int(said)
    clock = _CLOCK.fullmatch(said)
    if clock is not None:
        return _today_ms(option, text, clock, now_ms)
    from datetime import datetime

    try:
        return round(datetime.fromisoformat(said).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise BadInput(f"{option} {text!r} is no time", _FORMS) from None


def _today_ms(option: str, text: str, clock: re.Match[str], now_ms: int) -> int:
    hour, minute, second = (int(part or 0) for part in clock.groups())
    if hour > 23 or minute > 59 or second > 59:
        raise BadInput(f"{option} {text!r} is no time of day", _FORMS)
    today = time.localtime(now_ms / 1000)
    # The day before, if that time of today has not come yet.
    at_ms = [
        round(time.mktime((*today[:2], today[2] - back, hour, minute, second, 0, 0, -1)) * 1000)
        for back in (0, 1)
    ]
    return at_ms[0] if at_ms[0] <= now_ms else at_ms[1]
