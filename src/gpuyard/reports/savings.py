"""`yard cost savings`, `GET /cost/savings`: what a month has saved against another: idle time, waste, spend.

Months have other lengths and fleets. So shares are compared: what this month would have had at the shares of the
baseline, less what it had.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from gpuyard.quantities import count_digits, usd_text
from gpuyard.reports.report import Flag, Report
from gpuyard.reports.table import Row, Table
from gpuyard.tables import Column
from gpuyard.wire.endpoints import Action, Endpoint, query

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings

SPEND = "spend"
OF_JOBS = ("used", "wasted", "unmeasured", "starting")
"""The kinds of time that jobs had."""
USEFUL = ("used", "unmeasured")
"""What jobs had of use, as far as anybody knows."""
COMPARED = {"idle": (), "stranded": (), "unavailable": (), "wasted": OF_JOBS}
"""Kinds of time that are better small, and of what each is a share; empty: of all GPUs times time."""


class SavingsLine(TypedDict):
    """One kind of time, or the spend, in both months. The line of the spend has the GPU-hours of useful time."""

    what: str
    baseline_gpu_hours: float
    baseline_percent: float | None
    gpu_hours: float
    percent: float | None
    saved_gpu_hours: float | None
    """What the month would have had at the baseline's share, less what it had; null: the baseline had nothing."""
    baseline_micro_usd: int
    micro_usd: int
    saved_micro_usd: int | None


class SavingsReply(TypedDict):
    """One month compared with another. Without sight of the whole yard it covers the jobs of the tenants that you
    see."""

    lines: list[SavingsLine]
    month: str
    baseline: str
    to_day: str
    """The last day of the month that counts."""
    currency: str


SAVINGS = Endpoint(
    "GET",
    "/cost/savings",
    Action.SEE_TENANTS,
    SavingsReply,
    "What one month saved compared with another",
    tag="lists",
    parameters=(
        query("month", "The month: 2026-11. Default: this one, so far.", maxLength=7),
        query("baseline", "The month to compare it with. Default: the one before.", maxLength=7),
    ),
    problems=(422,),
)


class _Month:
    """What a month came to. Time is in parts times milliseconds, money in micro-dollars."""

    def __init__(self, readings: "Readings", sight: "Sight", first: int, after: int) -> None:
        from gpuyard.control.views.accounts import read_accounts  # noqa: PLC0415
        from gpuyard.ledger.units import CATEGORIES  # noqa: PLC0415

        books = read_accounts(readings.store, first, after, readings.now_ms)
        if not sight.whole:
            seen = {name for name, owner in books.owners.items() if owner.tenant and sight.sees(owner.tenant)}
            books = books._replace(entries=[entry for entry in books.entries if entry.owner in seen])
        lines = books.lines(["month"])
        self.time = {kind: sum([line.time[place] for line in lines]) for place, kind in enumerate(CATEGORIES)}
        self.spend = sum([line.fleet if sight.whole else line.charged for line in lines])

    def of(self, kinds: tuple[str, ...]) -> int:
        """Time of some kinds; of none: of all."""
        return sum([self.time[kind] for kind in kinds or self.time])


def build(readings: "Readings", values: Mapping[str, Any], sight: "Sight") -> Table:
    """Both months, for the tenants that you see."""
    from gpuyard.errors import BadInput  # noqa: PLC0415
    from gpuyard.ledger.prices import CURRENCY  # noqa: PLC0415
    from gpuyard.ledger.units import day_text, month_days, month_of  # noqa: PLC0415
    from gpuyard.model.units import DAY_MS  # noqa: PLC0415
    from gpuyard.reports.money.days import read_month  # noqa: PLC0415

    today = readings.now_ms // DAY_MS
    month = read_month(values["month"], today)
    first, after = month_days(month)
    baseline = read_month(values["baseline"] or month_of(first - 1), today, "--baseline")
    if baseline == month:
        raise BadInput(f"{month} cannot be compared with itself", "Give --baseline another month.")
    before = _Month(readings, sight, *month_days(baseline))
    now = _Month(readings, sight, first, min(after, today + 1))
    kinds = COMPARED if sight.whole else {"wasted": OF_JOBS}
    rows = [_line(what, (what,), of, before, now) for what, of in kinds.items()]
    rows.append(_spend(before, now))
    head = {
        "month": month,
        "baseline": baseline,
        "to_day": day_text(min(after - 1, today)),
        "currency": CURRENCY,
    }
    return Table(rows, head)


def _line(what: str, kinds: tuple[str, ...], of: tuple[str, ...], before: _Month, now: _Month) -> Row:
    from gpuyard.ledger.units import GPU_HOUR  # noqa: PLC0415

    had, has, of_before, of_now = before.of(kinds), now.of(kinds), before.of(of), now.of(of)
    saved = had * of_now // of_before - has if of_before and of_now else None
    return {
        "what": what,
        "baseline_gpu_hours": round(had / GPU_HOUR, 6),
        "baseline_percent": round(100 * had / of_before, 3) if of_before else None,
        "gpu_hours": round(has / GPU_HOUR, 6),
        "percent": round(100 * has / of_now, 3) if of_now else None,
        "saved_gpu_hours": None if saved is None else round(saved / GPU_HOUR, 6),
        "baseline_micro_usd": _money(before, had),
        "micro_usd": _money(now, has),
        "saved_micro_usd": None if saved is None else _money(now, saved),
    }


def _money(month: _Month, time: int) -> int:
    """Micro-dollars of this time at the mean price of the month."""
    return month.spend * time // month.of(()) if month.of(()) else 0


def _spend(before: _Month, now: _Month) -> Row:
    """What the time that was of use would have cost at the baseline's cost of an hour of use."""
    from gpuyard.ledger.units import GPU_HOUR  # noqa: PLC0415

    had, has = before.of(USEFUL), now.of(USEFUL)
    saved = before.spend * has // had - now.spend if had and has else None
    return {
        "what": SPEND,
        "baseline_gpu_hours": round(had / GPU_HOUR, 6),
        "baseline_percent": None,
        "gpu_hours": round(has / GPU_HOUR, 6),
        "percent": None,
        "saved_gpu_hours": None,
        "baseline_micro_usd": before.spend,
        "micro_usd": now.spend,
        "saved_micro_usd": saved,
    }


def _hours(name: str) -> Column:
    return Column(name, lambda row: f"{row[_FIELDS[name]]:,.2f}", right=True)


_FIELDS = {"BASELINE": "baseline_gpu_hours", "NOW": "gpu_hours"}


def _percent(row: Row, name: str) -> str:
    return "-" if row[name] is None else f"{row[name]:.1f}"


def _saved(row: Row) -> str:
    return "-" if row["saved_gpu_hours"] is None else f"{row['saved_gpu_hours']:,.2f}"


def _columns(rows: Sequence[Row]) -> list[Column]:
    amounts = ("baseline_micro_usd", "micro_usd", "saved_micro_usd")
    places = count_digits([row[name] for row in rows for name in amounts])

    def money(name: str) -> Callable[[Row], str]:
        return lambda row: "-" if row[name] is None else usd_text(row[name], places)

    return [
        Column("WHAT", lambda row: row["what"]),
        _hours("BASELINE"),
        Column("%", lambda row: _percent(row, "baseline_percent"), right=True),
        _hours("NOW"),
        Column("% NOW", lambda row: _percent(row, "percent"), right=True),
        Column("SAVED GPU-HOURS", _saved, right=True),
        Column("BASELINE COST", money("baseline_micro_usd"), right=True, wide=True),
        Column("COST", money("micro_usd"), right=True, wide=True),
        Column("SAVED", money("saved_micro_usd"), right=True),
    ]


def _notes(reply: Row) -> list[str]:
    return [
        f"{reply['month']} up to {reply['to_day']}, UTC, against {reply['baseline']}: what the month would have had "
        "at the shares of the baseline, less what it had; below zero: lost"
    ]


REPORT: "Report[SavingsReply]" = Report(
    "savings",
    SAVINGS,
    build,
    _columns,
    rows="lines",
    help="Show what one month saved compared with another: idle time, waste, spend.",
    more_help=(
        "It compares shares, since months differ in length and fleet: idle, stranded and unavailable "
        "time as a share of all GPU time, waste as a share of the time that jobs had, the spend as the cost "
        "of a used GPU-hour. You see only your own tenants; idle time needs sight of the whole yard."
    ),
    flags=[Flag("month", ("--month",)), Flag("baseline", ("--baseline",))],
    notes=_notes,
    wakes=False,
)
