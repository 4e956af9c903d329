"""`yard budget`, `GET /budgets`: what is spent of each budget and by which user, what is set aside, when it renews.

When it will be spent is drawn from the days of the books: between the first and the last time nine paths of ten end.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from gpuyard.quantities import count_digits, percent_text, usd_text
from gpuyard.reports.report import Flag, Report
from gpuyard.reports.table import Row, Table, clock
from gpuyard.tables import Column
from gpuyard.wire.endpoints import Action, Endpoint, query

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings
    from gpuyard.control.views.accounts import Accounts
    from gpuyard.core.explain.budget_use import NamedUse
    from gpuyard.ledger.accounts import Entry
    from gpuyard.model import NamedBudget
    from gpuyard.sim.exhaustion import Exhaustion

_MICRO = 1_000_000
_MILLI_MS_H = 1000 * 3_600_000
GPU_HOURS, USD = "GPU-hours", "USD"


class BudgetPart(TypedDict):
    """What one user spent of a budget; the name is empty for jobs without a user."""

    user: str
    spent: float


class BudgetLine(TypedDict):
    """One budget. Amounts are in its unit: spent, set aside and left add up to all of it."""

    budget: str
    unit: str
    amount: float
    spent: float
    set_aside: float
    """What running jobs may still spend, up to their time limits."""
    left: float
    """Below 0 if the budget was made smaller than what is spent and set aside."""
    action: str
    tenant: str
    job_class: str
    labels: dict[str, str]
    of_users: list[str]
    """The users whose jobs count; empty: those of all."""
    window: str
    window_start_ms: int
    renews_ms: int
    """When the next window begins; one that rolls drops its oldest day then."""
    told_percent: int
    """The highest threshold that was passed in this window; 0: none."""
    books: float | None
    """What its jobs are charged for this window by the books, at the prices in force; null: of GPU-hours."""
    users: list[BudgetPart]
    endless: list[str]
    """Running jobs without a time limit: nothing can be set aside for them."""
    spent_p5_ms: int | None
    spent_p50_ms: int | None
    """When everything will be spent, as far as the last days tell; null: not in this window, or nothing is known."""
    spent_p95_ms: int | None
    sure_percent: int | None
    """Of a hundred paths, how many spend everything before it renews; null: nothing is known."""


class BudgetsReply(TypedDict):
    """The budgets that you may see: those of your tenants, or with sight of the whole yard all.

    After the named budgets come the tenants' own (`tenants.NAME.budget`), each under its tenant's path.
    """

    budgets: list[BudgetLine]


BUDGETS = Endpoint(
    "GET",
    "/budgets",
    Action.SEE_TENANTS,
    BudgetsReply,
    "How much of each budget is spent and set aside, and when all of it will be spent",
    tag="lists",
    parameters=(query("budget", "Show only the budget of this name.", maxLength=200),),
    problems=(404,),
)


def build(readings: "Readings", values: Mapping[str, Any], sight: "Sight") -> Table:
    """The budgets of the tenants that you see, by name."""
    from gpuyard.control.refusals import NotFound  # noqa: PLC0415
    from gpuyard.control.views.accounts import read_accounts  # noqa: PLC0415
    from gpuyard.errors import quote, suggest  # noqa: PLC0415
    from gpuyard.model.units import DAY_MS  # noqa: PLC0415
    from gpuyard.sim.exhaustion import HISTORY_DAYS  # noqa: PLC0415

    uses = [(use, told) for use, told in readings.configs.budgets() if _in_sight(use, sight)]
    name = values["budget"]
    if name and name not in [use.rule.name for use, _told in uses]:
        names = [use.rule.name for use, _told in uses]
        known = suggest(name, names, "budgets") if names else "there are none that you may see"
        raise NotFound(f"no budget {quote(name)}; {known}")
    wanted = [(use, told) for use, told in uses if name in (None, "", use.rule.name)]
    today = readings.now_ms // DAY_MS
    first = min([today - HISTORY_DAYS, *[use.window_start_ms // DAY_MS for use, _told in wanted]])
    books = read_accounts(readings.store, first, today + 1, readings.now_ms) if wanted else None
    return Table([line(use, told, books, readings.now_ms) for use, told in wanted if books is not None])


def _in_sight(use: "NamedUse", sight: "Sight") -> bool:
    """Whether a person sees a budget. A tenant's own is a cap, as `yard share` shows it to all below that tenant."""
    tenant = use.rule.tenant
    return sight.whole or bool(tenant and (sight.knows(tenant) if use.every_ms else sight.sees(tenant)))


def window_text(use: "NamedUse") -> str:
    """`month`, `28d` for one that rolls, `every 30d` for a tenant's own."""
    from gpuyard.quantities import duration_text  # noqa: PLC0415

    rule = use.rule
    if use.every_ms:
        return f"every {duration_text(use.every_ms)}"
    return f"{rule.days}d" if rule.days else rule.window.value


def line(use: "NamedUse", told: int, books: "Accounts", now_ms: int) -> BudgetLine:
    """One budget as it stands now."""
    from gpuyard.model.units import DAY_MS  # noqa: PLC0415

    rule, start = use.rule, use.window_start_ms // DAY_MS
    ends = _forecast(books, use, now_ms)
    charged = sum([count_spent(rule, entry, books) for entry in books.entries if entry.day >= start])
    return {
        "budget": rule.name,
        "unit": USD if rule.micro_usd else GPU_HOURS,
        "amount": convert_amount(rule, use.amount),
        "spent": convert_amount(rule, use.spent),
        "set_aside": convert_amount(rule, use.aside),
        "left": convert_amount(rule, use.left),
        "action": rule.action.value,
        "tenant": rule.tenant,
        "job_class": rule.klass,
        "labels": dict(rule.labels),
        "of_users": list(rule.users),
        "window": window_text(use),
        "window_start_ms": use.window_start_ms,
        "renews_ms": use.window_end_ms,
        "told_percent": told,
        "books": convert_amount(rule, charged) if rule.micro_usd else None,
        "users": [{"user": user, "spent": convert_amount(rule, part)} for user, part in use.by_user],
        "endless": list(use.endless),
        "spent_p5_ms": ends.p5_ms if ends else None,
        "spent_p50_ms": ends.p50_ms if ends else None,
        "spent_p95_ms": ends.p95_ms if ends else None,
        "sure_percent": ends.certain if ends else None,
    }


def convert_amount(rule: "NamedBudget", amount: int) -> float:
    """GPU-hours, or dollars."""
    return round(amount / (_MICRO * _MILLI_MS_H if rule.micro_usd else _MILLI_MS_H), 6)


def _forecast(books: "Accounts", use: "NamedUse", now_ms: int) -> "Exhaustion | None":
    """From the days of the books. A window that rolls is never renewed as a whole: nothing is said of it."""
    from gpuyard.model.units import DAY_MS  # noqa: PLC0415
    from gpuyard.sim.exhaustion import HISTORY_DAYS, estimate_exhaustion  # noqa: PLC0415

    rule = use.rule
    if rule.days:
        return None
    today = now_ms // DAY_MS
    daily = dict.fromkeys(range(today - HISTORY_DAYS, today), 0)
    for entry in books.entries:
        if entry.day in daily:
            daily[entry.day] += count_spent(rule, entry, books)
    first = next((day for day, spent in daily.items() if spent), today)
    known = [(day, spent) for day, spent in daily.items() if day >= first]
    return estimate_exhaustion(known, use.amount - use.spent, now_ms, use.window_end_ms, seed=today)


def count_spent(rule: "NamedBudget", entry: "Entry", books: "Accounts") -> int:
    """What an entry of the books is to a budget: milli-GPU x ms, or that times micro-dollars an hour; 0: nothing."""
    from gpuyard.core.quota.budgets import is_about  # noqa: PLC0415
    from gpuyard.ledger.units import CHARGED, PARTS, STARTING, UNMEASURED, USED, WASTED  # noqa: PLC0415
    from gpuyard.model.units import MILLI  # noqa: PLC0415

    owner = books.owners.get(entry.owner)
    if owner is None or not is_about(rule, owner.tenant, owner.klass, owner.user, owner.labels.items()):
        return 0
    if rule.micro_usd:
        spent = entry.columns[CHARGED] * books.prices.price(books.places[entry.place], entry.day)
    else:
        spent = sum([entry.columns[kind] for kind in (USED, WASTED, UNMEASURED, STARTING)])
    return spent * MILLI // PARTS


_AMOUNTS = ("amount", "spent", "set_aside", "left")


def _amount(rows: Sequence[Row], key: str) -> Column:
    money = [row[name] for row in rows if row["unit"] == USD for name in _AMOUNTS]
    return Column(
        key.upper().replace("_", " "),
        lambda row: amount_texts(row["unit"], [row[key], *money], "GPU-h")[0],
        right=True,
    )


def amount_texts(unit: str, amounts: Sequence[float | None], hours: str) -> list[str]:
    """Amounts of one budget as they stand side by side; `hours`: what GPU-hours are called."""
    if unit != USD:
        return [f"{each:,.2f} {hours}" if each is not None else "" for each in amounts]
    micro = [None if each is None else round(each * _MICRO) for each in amounts]
    return ["" if each is None else usd_text(each, count_digits(micro)) for each in micro]


def _of(row: Row) -> str:
    labels = [f"{key}={value}" for key, value in row["labels"].items()]
    kinds = (row["tenant"], row["job_class"], *labels, *row["of_users"])
    return ", ".join([each for each in kinds if each]) or "all"


def _empty(row: Row) -> str:
    if row["sure_percent"] is None:
        return "-"
    if row["spent_p5_ms"] is None:
        return "not before it renews"
    last = "later" if row["spent_p95_ms"] is None else clock(row["spent_p95_ms"])
    return f"{clock(row['spent_p5_ms'])} to {last}"


def _columns(rows: Sequence[Row]) -> list[Column]:
    return [
        Column("BUDGET", lambda row: row["budget"]),
        Column("OF", _of),
        *[_amount(rows, key) for key in _AMOUNTS],
        Column("SPENT BY", lambda row: ", ".join([each["user"] or "-" for each in row["users"][:3]]) or "-"),
        Column("ALL SPENT", _empty),
        Column("RENEWS", lambda row: "day by day" if row["window"][0].isdigit() else clock(row["renews_ms"])),
        Column("ACTION", lambda row: row["action"]),
        Column("WINDOW", lambda row: row["window"], wide=True),
        Column(
            "TOLD", lambda row: percent_text(row["told_percent"]) if row["told_percent"] else "-", wide=True
        ),
    ]


def differs(row: Row) -> str:
    """That a budget of money has counted something else than the books charge; empty: it has not."""
    apart = abs(row["books"] - row["spent"]) if row["books"] is not None else 0.0
    if apart <= max(0.005, 0.02 * row["spent"]):
        return ""
    spent, books = amount_texts(row["unit"], [row["spent"], row["books"]], "")
    return (
        f"budget {row['budget']}: it has counted {spent}, each job at the price of the day on which it started; for "
        f"this window the books charge {books} at the prices in force"
    )


def _notes(reply: Row) -> list[str]:
    if not reply["budgets"]:
        return ["no budget that you may see; `budgets` in yard.yaml has them"]
    return [
        *[said for row in reply["budgets"] if (said := differs(row))],
        *_endless(reply),
    ]


def _endless(reply: Row) -> list[str]:
    return [
        f"budget {row['budget']}: job {', '.join(row['endless'])} runs without a time limit, so nothing can be set "
        "aside for it; cancel it, or wait for its end"
        for row in reply["budgets"]
        if row["endless"]
    ]


REPORT: "Report[BudgetsReply]" = Report(
    "budget",
    BUDGETS,
    build,
    _columns,
    rows="budgets",
    help="Show how much of each budget is spent and set aside, and when all of it will be spent.",
    more_help=(
        "A budget is an entry of 'budgets' in yard.yaml. What running jobs may still spend is set "
        "aside. ALL SPENT is the range of nine in ten forecasts from the last four weeks."
    ),
    flags=[Flag("budget", operand=True)],
    notes=_notes,
    wakes=False,
)
