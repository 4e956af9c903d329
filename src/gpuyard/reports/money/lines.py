"""Lines of the books as reports show them: kinds of time, parts of a statement, and how both read in words."""

from collections.abc import Callable, Sequence

from gpuyard.quantities import count_digits
from gpuyard.reports.table import Row

NO_JOB = "(no job)"
NONE = "(none)"
MAY_LACK = frozenset({"project", "region", "model"})
"""Dimensions that the time of a job may lack."""
LABEL = "label:"

KINDS = ("used", "wasted", "unmeasured", "starting", "held", "stranded", "idle", "recutting", "unavailable")
"""The kinds of time, as a line shows them."""
KIND_COLOURS = {
    "used": "var(--c3)", "wasted": "var(--c2)", "unmeasured": "var(--c0)", "starting": "var(--c5)", "held": "var(--c4)",
    "stranded": "var(--c7)", "idle": "var(--c6)", "recutting": "var(--c5)", "unavailable": "var(--soft)",
}  # fmt: skip
"""The same on every page."""

TOTAL, TENANT, USER, PROJECT, CLASS, PRICE, DAY, CORRECTION = (
    "total", "tenant", "user", "project", "class", "price", "day", "correction",
)  # fmt: skip
"""The parts of a statement."""
PARTS = (TOTAL, TENANT, USER, PROJECT, CLASS, PRICE, DAY, CORRECTION)


def make_hours_cell(*kinds: str) -> Callable[[Row], str]:
    """The cell with GPU-hours of these kinds together."""

    def cell(row: Row) -> str:
        hours = sum([row[f"{kind}_gpu_hours"] for kind in kinds])
        return f"{hours:,.2f}" if hours else "-"

    return cell


def digits_of_lines(lines: Sequence[Row]) -> int:
    """Digits of all amounts of a statement."""
    return count_digits([line[name] for line in lines for name in ("charged_micro_usd", "wasted_micro_usd")])


def behind_texts(events: int) -> list[str]:
    """What is said of books that lack events."""
    return (
        [f"the books are being filled and lack {events:,} events: `yard rebuild` shows how far they are"]
        if events
        else []
    )


def unbooked_texts(hours: float) -> list[str]:
    """What is to be said of time that counts as unmeasured for now."""
    if hours < 0.005:
        return []
    return [
        f"not booked yet: what running jobs did with {hours:,.2f} of the unmeasured GPU-hours; it is booked every few "
        "minutes, at the latest with their hour"
    ]


def budget_text(budget: Row) -> str:
    """One budget in a sentence."""
    from gpuyard.reports.budget import amount_texts  # noqa: PLC0415

    amounts = [budget[name] for name in ("amount", "spent_in_month", "left")]
    texts = dict(zip(amounts, amount_texts(budget["unit"], amounts, "GPU-hours"), strict=True))
    text = texts.__getitem__

    said = f"budget {budget['budget']} of {text(budget['amount'])} a {budget['window']}"
    if budget["window"][:1].isdigit():
        said = f"budget {budget['budget']} of {text(budget['amount'])} in {budget['window']}"
    said += f" ({budget['action']}): {text(budget['spent_in_month'])} of it in this month"
    said += " by the books" if budget["unit"] == "USD" else ""
    return (
        said if budget["left"] is None else f"{said}; {text(budget['left'])} left now, as the budget counts"
    )
