"""`yard cost statement TENANT`, `GET /cost/statement`: one month of one tenant, as a page to print or to hand on.

What its jobs had and are charged for, by day, person, project, class and price; what they waited for; its budgets; and
what was learned in the month about months that are closed. Every part adds up to the same total.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from gpuyard.quantities import hour_rate_text, usd_text
from gpuyard.reports.money.lines import (
    CLASS,
    CORRECTION,
    DAY,
    PARTS,
    PRICE,
    PROJECT,
    TENANT,
    TOTAL,
    USER,
    behind_texts,
    budget_text,
    digits_of_lines,
    make_hours_cell,
    unbooked_texts,
)  # fmt: skip
from gpuyard.reports.report import Asking, Flag, Report
from gpuyard.reports.table import Row, Table
from gpuyard.tables import Column
from gpuyard.wire.endpoints import Action, Endpoint, query

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings
    from gpuyard.control.views.accounts import Accounts
    from gpuyard.ledger.accounts import Entry

KINDS = ("used", "wasted", "unmeasured", "starting", "held")
"""The kinds of time that a job may have, as a line shows them."""


class StatementLine(TypedDict):
    """One line of a part. The lines of every part but `correction` add up to the line `total`."""

    part: str
    name: str
    """Empty: its jobs name none."""
    used_gpu_hours: float
    wasted_gpu_hours: float
    unmeasured_gpu_hours: float
    starting_gpu_hours: float
    held_gpu_hours: float
    charged_gpu_hours: float
    """What is charged for: of each node the largest part that a job holds of GPUs, cores or memory."""
    energy_kwh: float
    price_micro_usd_h: int | None
    """Of a line `price`; null: there was none, or the line has several."""
    charged_micro_usd: int
    wasted_micro_usd: int
    """What the wasted time cost."""


class StatementWait(TypedDict):
    """What jobs waited for, for one reason."""

    reason: str
    gpu_hours: float
    job_hours: float


class StatementBudget(TypedDict):
    """A budget of the tenant or of a tenant below it, and how much of it the month's jobs of this tenant spent."""

    budget: str
    unit: str
    amount: float
    """As it is now."""
    window: str
    action: str
    spent_in_month: float
    left: float | None
    """Of the window of now; null: the month has passed."""
    renews_ms: int | None
    told_percent: int | None


class StatementBefore(TypedDict):
    """The month before, for comparison."""

    month: str
    gpu_hours: float
    charged_micro_usd: int
    wasted_micro_usd: int


class StatementReply(TypedDict):
    """One month of a tenant and of all below it."""

    lines: list[StatementLine]
    waits: list[StatementWait]
    budgets: list[StatementBudget]
    before: StatementBefore
    tenant: str
    month: str
    from_day: str
    to_day: str
    """The last day that counts; all days are UTC days."""
    closed: bool
    """Whether the books of the month are closed: nothing of it changes any more."""
    currency: str
    unpriced: list[str]
    """GPU models that had no price on some of the days: their time counts as 0."""
    charged_micro_usd: int
    late_events: int
    """Events of the log that the books lack while they are being filled; 0: none."""
    not_booked_gpu_hours: float
    """Of the unmeasured time, that of running jobs of which is not booked yet what they did."""


STATEMENT = Endpoint(
    "GET",
    "/cost/statement",
    Action.SEE_TENANTS,
    StatementReply,
    "One month of a tenant: used, charged, wasted, waited for",
    tag="lists",
    parameters=(
        query("tenant", "The tenant, with all tenants below it. Default: your own, if you have one.",
            maxLength=1000),
        query("month", "The month: 2026-11. Default: this one, so far.", maxLength=7),
    ),
    problems=(404, 422),
)  # fmt: skip


class _Sum:
    """What some entries come to. Time is in parts times milliseconds, money in micro-dollars."""

    __slots__ = ("charged", "energy_mj", "money", "time", "wasted")

    def __init__(self) -> None:
        self.time = [0] * len(KINDS)
        self.charged = self.energy_mj = self.money = self.wasted = 0


class _Name(NamedTuple):
    """What a line is about."""

    part: str
    name: str = ""
    price: int | None = None


class _Month:
    """A tenant's entries of some days, summed up part by part."""

    def __init__(self, books: "Accounts", tenant: str) -> None:
        from gpuyard.control.access.rights import below  # noqa: PLC0415

        self.books = books
        self.owners = {
            name: owner
            for name, owner in books.owners.items()
            if owner.tenant and below(owner.tenant, tenant)
        }
        self.entries = [entry for entry in books.entries if entry.owner in self.owners]
        self.sums: dict[_Name, _Sum] = {_Name(TOTAL): _Sum()}
        for entry in self.entries:
            self._add(entry)
        self.total = self.sums[_Name(TOTAL)]

    def _add(self, entry: "Entry") -> None:
        from gpuyard.ledger.accounts import micro_usd  # noqa: PLC0415
        from gpuyard.ledger.units import CATEGORIES, CHARGED, ENERGY, KWH_PARTS, WASTED  # noqa: PLC0415

        columns, place = entry.columns, self.books.places[entry.place]
        price, a_kwh = self.books.prices.rate(place, entry.day)
        money = micro_usd(columns[CHARGED] * (price or 0) + columns[ENERGY] * a_kwh * KWH_PARTS)
        wasted = micro_usd(columns[WASTED] * (price or 0))
        for name in self._names(entry, price, a_kwh):
            into = self.sums.setdefault(name, _Sum())
            for column, kind in enumerate(KINDS):
                into.time[column] += columns[CATEGORIES.index(kind)]
            into.charged += columns[CHARGED]
            into.energy_mj += columns[ENERGY]
            into.money += money
            into.wasted += wasted

    def _names(self, entry: "Entry", price: int | None, a_kwh: int) -> list[_Name]:
        """The lines that an entry belongs to."""
        from gpuyard.ledger.units import day_text  # noqa: PLC0415

        owner, place = self.owners[entry.owner], self.books.places[entry.place]
        what = [f"{place.model or 'nodes'} in {place.pool}", place.market]
        what += [place.region] if place.region else []
        what += [f"and {hour_rate_text(a_kwh)} a kWh"] if a_kwh else []
        found = [
            _Name(TOTAL),
            _Name(TENANT, owner.tenant),
            _Name(USER, owner.user),
            _Name(PROJECT, owner.labels.get("project", "")),
            _Name(CLASS, owner.klass),
            _Name(PRICE, ", ".join(what), price),
            _Name(DAY, day_text(entry.learned)),
        ]
        if entry.learned != entry.day:
            found.append(_Name(CORRECTION, f"{day_text(entry.day)}, learned {day_text(entry.learned)}"))
        return found

    def lines(self) -> list[StatementLine]:
        """Part by part."""
        from gpuyard.ledger.units import GPU_HOUR  # noqa: PLC0415

        found: list[StatementLine] = []
        for part in PARTS:
            names = sorted(
                [name for name in self.sums if name.part == part], key=lambda each: (*each[:2], each[2] or 0)
            )
            for name in names:
                each = self.sums[name]
                hours = [round(time / GPU_HOUR, 6) for time in each.time]
                found.append(
                    {
                        "part": part,
                        "name": name.name,
                        "used_gpu_hours": hours[0],
                        "wasted_gpu_hours": hours[1],
                        "unmeasured_gpu_hours": hours[2],
                        "starting_gpu_hours": hours[3],
                        "held_gpu_hours": hours[4],
                        "charged_gpu_hours": round(each.charged / GPU_HOUR, 6),
                        "energy_kwh": round(each.energy_mj / 3_600_000_000, 6),
                        "price_micro_usd_h": name.price,
                        "charged_micro_usd": each.money,
                        "wasted_micro_usd": each.wasted,
                    }
                )
        return found


def build(readings: "Readings", values: Mapping[str, Any], sight: "Sight") -> Table:
    """One month of a tenant that you see."""
    from gpuyard.control.views.accounts import read_accounts  # noqa: PLC0415
    from gpuyard.ledger.prices import CURRENCY  # noqa: PLC0415
    from gpuyard.ledger.units import GPU_HOUR, day_text, month_days, month_of  # noqa: PLC0415
    from gpuyard.model.units import DAY_MS  # noqa: PLC0415
    from gpuyard.reports.money.days import read_month  # noqa: PLC0415

    today = readings.now_ms // DAY_MS
    month = read_month(values["month"], today)
    first, after = month_days(month)
    until = min(after, today + 1)
    books = read_accounts(readings.store, first, until, readings.now_ms)
    tenant = _tenant(readings, values["tenant"], books, sight)
    this = _Month(books, tenant)
    earlier = month_of(first - 1)
    before = _Month(read_accounts(readings.store, *month_days(earlier), readings.now_ms), tenant).total
    lines = this.lines()
    head = {
        "waits": _waits(readings, tenant, first, until),
        "budgets": _budgets(readings, this, tenant, sight, now=until == today + 1),
        "before": {
            "month": earlier,
            "gpu_hours": round(sum(before.time) / GPU_HOUR, 6),
            "charged_micro_usd": before.money,
            "wasted_micro_usd": before.wasted,
        },
        "tenant": tenant,
        "month": month,
        "from_day": day_text(first),
        "to_day": day_text(until - 1),
        "closed": books.closed_day >= after,
        "currency": CURRENCY,
        "late_events": books.late,
        "not_booked_gpu_hours": round(sum([books.untold.get(name, 0) for name in this.owners]) / GPU_HOUR, 6),
        "unpriced": books._replace(entries=this.entries).unpriced(),
        "charged_micro_usd": lines[0]["charged_micro_usd"],
    }
    return Table(lines, head)


def _tenant(readings: "Readings", wanted: str, books: "Accounts", sight: "Sight") -> str:
    """The tenant that is meant, if the asker sees it; one that is gone may still have books."""
    from gpuyard.control.access.rights import below  # noqa: PLC0415
    from gpuyard.control.refusals import unknown_tenant  # noqa: PLC0415
    from gpuyard.errors import BadInput, names_text  # noqa: PLC0415

    known = {row["tenant"] for row in readings.configs.tenants(sight)}
    known |= {owner.tenant for owner in books.owners.values()}
    seen = sorted([each for each in known if each and sight.sees(each)])
    if not wanted:
        if not sight.whole and len(sight.tenants) == 1:
            return sight.tenants[0]
        raise BadInput(
            "a statement is of one tenant", f"Name it: {names_text(seen)}." if seen else "There is none yet."
        )
    if sight.sees(wanted) and any([below(each, wanted) for each in seen]):
        return wanted
    raise unknown_tenant(wanted, seen)


def _waits(readings: "Readings", tenant: str, first: int, until: int) -> list[StatementWait]:
    """What its jobs waited for, the most first."""
    from gpuyard.control.access.rights import below  # noqa: PLC0415
    from gpuyard.control.views.past_waits import read_waited  # noqa: PLC0415
    from gpuyard.model.units import HOUR_MS  # noqa: PLC0415

    sums: dict[str, list[int]] = {}
    for line in read_waited(readings.store, 24 * first, 24 * until):
        if below(line.tenant, tenant):
            total = sums.setdefault(line.cause, [0, 0])
            total[0] += line.gpu_ms
            total[1] += line.job_ms
    return [
        {
            "reason": cause,
            "gpu_hours": round(gpu_ms / HOUR_MS, 6),
            "job_hours": round(job_ms / HOUR_MS, 6),
        }
        for cause, (gpu_ms, job_ms) in sorted(sums.items(), key=lambda each: (-each[1][0], each[0]))
        if job_ms
    ]


def _budgets(
    readings: "Readings", this: _Month, tenant: str, sight: "Sight", now: bool
) -> list[StatementBudget]:
    """Budgets that are of this tenant, of one below it, or of one above it that the asker sees too."""
    from gpuyard.control.access.rights import below  # noqa: PLC0415
    from gpuyard.reports.budget import GPU_HOURS, USD, convert_amount, count_spent, window_text  # noqa: PLC0415

    found: list[StatementBudget] = []
    for use, told in readings.configs.budgets():
        rule = use.rule
        theirs = below(rule.tenant, tenant) or below(tenant, rule.tenant)
        if not (rule.tenant and theirs and sight.sees(rule.tenant)):
            continue
        spent = sum([count_spent(rule, entry, this.books) for entry in this.entries])
        found.append(
            {
                "budget": rule.name,
                "unit": USD if rule.micro_usd else GPU_HOURS,
                "amount": convert_amount(rule, use.amount),
                "window": window_text(use),
                "action": rule.action.value,
                "spent_in_month": convert_amount(rule, spent),
                "left": convert_amount(rule, use.left) if now else None,
                "renews_ms": use.window_end_ms if now else None,
                "told_percent": told if now else None,
            }
        )
    return found


def named(row: Row) -> str:
    """What a line is about, in words."""
    if row["part"] == TOTAL:
        return ""
    if row["part"] == PRICE:
        each = (
            "no price"
            if row["price_micro_usd_h"] is None
            else f"{hour_rate_text(row['price_micro_usd_h'])} an hour"
        )
        return f"{row['name']}: {each}"
    return row["name"] or "(none)"


def _columns(rows: Sequence[Row]) -> list[Column]:
    places = digits_of_lines(rows)
    return [
        Column("PART", lambda row: row["part"]),
        Column("NAME", named),
        *[
            Column(kind.upper(), make_hours_cell(kind), right=True, wide=kind in ("starting", "held"))
            for kind in KINDS
        ],
        Column("GPU-HOURS", make_hours_cell(*KINDS), right=True),
        Column("CHARGED FOR", make_hours_cell("charged"), right=True, wide=True),
        Column(
            "KWH",
            lambda row: f"{row['energy_kwh']:,.2f}" if row["energy_kwh"] else "-",
            right=True,
            wide=True,
        ),
        Column("WASTE", lambda row: usd_text(row["wasted_micro_usd"], places), right=True, wide=True),
        Column("CHARGED", lambda row: usd_text(row["charged_micro_usd"], places), right=True),
    ]


def _notes(reply: Row) -> list[str]:
    state = "closed" if reply["closed"] else "open"
    places = digits_of_lines(reply["lines"])
    wasted = next((line["wasted_micro_usd"] for line in reply["lines"] if line["part"] == TOTAL), 0)
    found = [
        f"{reply['tenant']}, {reply['from_day']} to {reply['to_day']}, UTC, {state}: "
        f"{usd_text(reply['charged_micro_usd'], places)} charged, {usd_text(wasted, places)} of it for wasted time; "
        f"{usd_text(reply['before']['charged_micro_usd'], places)} in {reply['before']['month']}"
    ]
    waits = [f"{wait['reason']} {wait['gpu_hours']:,.2f}" for wait in reply["waits"]]
    if waits:
        found.append(f"GPU-hours waited for: {', '.join(waits)}")
    found += [budget_text(budget) for budget in reply["budgets"]]
    found += [f"no price for {model}: it counts as 0" for model in reply["unpriced"]]
    return [*found, *behind_texts(reply["late_events"]), *unbooked_texts(reply["not_booked_gpu_hours"])]


def _page(ask: Asking, values: Mapping[str, Any]) -> str:
    from gpuyard.reports.money.statement_page import statement_page  # noqa: PLC0415

    return statement_page(ask(values))


REPORT: "Report[StatementReply]" = Report(
    "statement",
    STATEMENT,
    build,
    _columns,
    rows="lines",
    help="Show one month of a tenant: what its jobs used, wasted and waited for, and what they are charged.",
    more_help=(
        "It has a total; parts by tenant, user, project, class, price and day, each of which adds up to "
        "the total; and corrections of closed months. `yard cost statement org/research --month 2026-11 -o "
        "html > research.html` writes one page to print. You see only your own tenants."
    ),
    flags=[Flag("tenant", operand=True), Flag("month", ("--month",))],
    notes=_notes,
    wakes=False,
    whole=True,
    page=_page,
)
