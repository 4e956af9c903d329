"""What a report is made of: rows, the columns that people see of them, and how a cell is written."""

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

Row = Mapping[str, Any]


class Table:
    """What a report tells. Written out: a NamedTuple is compiled anew whenever a command starts."""

    __slots__ = ("head", "more", "rows")

    def __init__(
        self, rows: Sequence[Row], head: Mapping[str, Any] = MappingProxyType({}), more: int | None = None
    ) -> None:
        self.rows = rows
        self.head = head
        """Other fields of the reply."""
        self.more = more
        """Where the next page begins, for a report in pages; None: there are no more rows."""


class Column:
    """A header and how a record's cell is made."""

    __slots__ = ("cell", "header", "right", "wide", "wraps")

    def __init__(
        self,
        header: str,
        cell: Callable[[Row], str],
        right: bool = False,
        wide: bool = False,
        wraps: bool = False,
    ) -> None:
        self.header = header
        self.cell = cell
        self.right = right
        self.wide = wide
        """Only in the wide form."""
        self.wraps = wraps
        """Of the last column: sentences, which go on in the next line where a terminal is too narrow."""


def span(ms: int) -> str:
    """A span of time in a few letters: `42s`, `12m05s`, `3h20m`, `2d04h`."""
    seconds = max(0, ms) // 1000
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}h"


def span_words(ms: int) -> str:
    """The same in a sentence, as reasons have it: `42 s`, `12 min 5 s`, `3 h 20 min`, `2 d`."""
    seconds = max(0, ms) // 1000
    units = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    first = next((place for place, (size, _name) in enumerate(units) if seconds >= size), 3)
    parts: list[str] = []
    for size, name in units[first : first + 2]:
        count, seconds = divmod(seconds, size)
        if count or not parts:
            parts.append(f"{count} {name}")
    return " ".join(parts)


def clock(ms: int | None) -> str:
    """A time of this machine's clock: `14:05:09` today, else with its date."""
    if not ms:
        return "-"
    then, now = time.localtime(ms / 1000), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


def number(value: int | float) -> str:
    """`8`, `0.25`."""
    return f"{value:g}"


def ordinal(number: int) -> str:
    """`1st`, `22nd`, `13th`."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 <= number % 100 <= 20 else ends.get(number % 10, 'th')}"


def size(mib: int) -> str:
    """An amount of memory: `512 MiB`, `900 GiB`, `1.5 TiB`."""
    if mib < 1024:
        return f"{mib} MiB"
    return f"{mib / 1024:.4g} GiB" if mib < 1024 * 1024 else f"{mib / 1024**2:.4g} TiB"
