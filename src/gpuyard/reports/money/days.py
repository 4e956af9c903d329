"""The days and months that a report is asked for: those to come are refused, and what is left out is filled in."""

from gpuyard.errors import BadInput
from gpuyard.ledger.units import day_text, month_days, month_of, read_day

FIRST_MONTH = "2000-01"
"""No yard has books of an earlier month."""


def read_month(text: str, today: int, option: str = "--month") -> str:
    """The month of a report; left out, it is this one."""
    month = text or month_of(today)
    first, _after = month_days(month)
    if first > today:
        raise BadInput(
            f"{month} has not begun: this month is {month_of(today)}, UTC", f"Give {option} a month that has."
        )
    if month < FIRST_MONTH <= month_of(today):
        raise BadInput(f"no yard has books of {month}", f"Give {option} a month from {FIRST_MONTH} on.")
    return month


def read_days(first: str, last: str, today: int, back: int | None = None) -> tuple[int, int]:
    """The days of a report, both included: the last is today if it is left out.

    The first is then `back` days earlier, or the first of that month.
    """
    to_day = read_day(last) if last else today
    from_day = (
        read_day(first) if first else to_day - back if back is not None else month_days(month_of(to_day))[0]
    )
    if from_day > today:
        raise BadInput(
            f"{day_text(from_day)} is still to come: today is {day_text(today)}, UTC",
            "Give --from a day up to today." if first else "Give --to a day up to today, or --from one.",
        )
    if from_day > to_day:
        raise BadInput(
            f"the first day, {day_text(from_day)}, is after the last one, {day_text(to_day)}",
            "Give a --from that is not after --to.",
        )
    return from_day, to_day
