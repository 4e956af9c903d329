"""`--signal=B:USR1@60`: which signal, how long before the end, and to which processes."""

import re
import signal
from typing import NamedTuple

from gpuyard.errors import quoted

_SIGNAL = re.compile(r"(?:([RB]{1,2}):)?([A-Za-z0-9+]{1,12})(?:@([0-9]{0,5}))?", re.IGNORECASE)
_DEFAULT_S = 60
_AHEAD_S_MAX = 65_535
_NUMBER_MAX = 64


class Ahead(NamedTuple):
    """A signal ahead of the end."""

    number: int
    ahead_s: int
    shell_only: bool
    """`B:`: the batch shell gets it, and not the processes it started."""
    overlaps: bool
    """`R:`: the job may overlap with a reservation."""


def ahead(text: str) -> Ahead:
    """A signal; else `ValueError` with the rest of a sentence."""
    match = _SIGNAL.fullmatch(text)
    if not match:
        raise ValueError(f"must be written as USR1@60 or B:USR1@60, not {quoted(text)}")
    marks = (match[1] or "").upper()
    seconds = int(match[3]) if match[3] else _DEFAULT_S
    if seconds > _AHEAD_S_MAX:
        raise ValueError(f"can come at most {_AHEAD_S_MAX} s ahead, not {seconds}")
    return Ahead(_number(match[2], text), seconds, "B" in marks, "R" in marks)


def _number(name: str, text: str) -> int:
    if name.isdecimal():
        if not 0 < int(name) <= _NUMBER_MAX:
            raise ValueError(f"must name a signal from 1 to {_NUMBER_MAX}, not {quoted(text)}")
        return int(name)
    try:
        if name.upper().removeprefix("SIG").startswith("RT"):
            raise KeyError(name)
        return int(signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"])
    except KeyError:
        raise ValueError(
            f"names no signal: {quoted(name)}; for example USR1, USR2, TERM, INT or HUP"
        ) from None
