"""What a report is made of: rows, the columns that people see of them, and how a cell is written.

Reports of other packages have `Column` and `span` from here.
"""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gpuyard.quantities import span
from gpuyard.tables import Column

__all__ = ["Column", "Row", "Table", "clock", "number", "ordinal", "span"]

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
