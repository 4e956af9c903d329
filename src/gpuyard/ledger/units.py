"""What the books count in: parts of a GPU, UTC days, and the columns of an entry.

A GPU has 7,000 parts, so that a thousandth of it (a share) and a seventh, an eighth or a quarter of it (a MIG slice)
are all whole numbers of parts. Time is parts times milliseconds; nothing is ever rounded before it is shown.
"""

import re
from datetime import date

from gpuyard.errors import BadInput, quote
from gpuyard.model.units import DAY_MS, HOUR_MS, MILLI

PARTS = 7 * MILLI
"""Parts of a whole GPU."""
PARTS_OF_MILLI = PARTS // MILLI
GPU_HOUR = PARTS * HOUR_MS
"""A GPU-hour, as the books count time."""

CATEGORIES = (
    "used",
    "wasted",
    "unmeasured",
    "held",
    "starting",
    "stranded",
    "idle",
    "recutting",
    "unavailable",
)
"""The kinds of time. Each part of each GPU is in exactly one of them at any moment."""
USED, WASTED, UNMEASURED, HELD, STARTING, STRANDED, IDLE, RECUTTING, UNAVAILABLE = range(len(CATEGORIES))
CHARGED = len(CATEGORIES)
"""The column of what jobs are charged for: their dominant resource, as parts of GPUs."""
FLEET = CHARGED + 1
"""The column of what there was to pay for: parts of GPUs, or of nodes that have none."""
ENERGY = FLEET + 1
"""The column of the measured energy of jobs, in millijoules."""
COLUMNS = ENERGY + 1
KWH_PARTS = PARTS * HOUR_MS // 3_600_000_000
"""A millijoule at a price of a kWh, in the unit in which a part and a millisecond have the price of an hour."""

NOBODY = ""
"""The owner of time that no job has."""
EPOCH = date(1970, 1, 1).toordinal()
_MONTH = re.compile(r"(19[7-9]|2[01]\d)\d-\d\d", re.ASCII)
_DAY = re.compile(_MONTH.pattern + r"-\d\d", re.ASCII)


def month_of(day: int) -> str:
    """The month of a day (days since 1970, UTC): `2026-11`."""
    return date.fromordinal(EPOCH + day).isoformat()[:7]


def day_text(day: int) -> str:
    """`2026-11-16`."""
    return date.fromordinal(EPOCH + day).isoformat()


def read_day(text: str) -> int:
    """The number of a day such as `2026-11-16`, from 1970 to 2199."""
    try:
        if not _DAY.fullmatch(text):
            raise ValueError
        return date.fromisoformat(text).toordinal() - EPOCH
    except ValueError:
        raise BadInput(
            f"{quote(text)} is not a day of the books", "Write a day from 1970 to 2199 as 2026-11-16."
        ) from None


def month_days(month: str) -> tuple[int, int]:
    """The first day of a month such as `2026-11`, and the first day after it, from 1970 to 2199."""
    try:
        if not _MONTH.fullmatch(month):
            raise ValueError
        first = date.fromisoformat(f"{month}-01")
        later = date(first.year + first.month // 12, first.month % 12 + 1, 1)
    except ValueError:
        raise BadInput(
            f"{quote(month)} is not a month of the books", "Write a month from 1970 to 2199 as 2026-11."
        ) from None
    return first.toordinal() - EPOCH, later.toordinal() - EPOCH


def split_days(from_ms: int, until_ms: int) -> list[tuple[int, int]]:
    """The days of a span, each with how much of it lies there."""
    first, last = from_ms // DAY_MS, (until_ms - 1) // DAY_MS
    if first == last:
        return [(first, until_ms - from_ms)]
    middle = [(day, DAY_MS) for day in range(first + 1, last)]
    return [(first, (first + 1) * DAY_MS - from_ms), *middle, (last, until_ms - last * DAY_MS)]
