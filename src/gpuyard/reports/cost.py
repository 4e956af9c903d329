"""`yard cost`, `GET /cost`: where GPU time went, and what it cost, by any dimensions of the books.

Both books are in each line: GPU-hours by the kinds of time, and the charge. With sight of the whole yard there is also
the time that no job had, and what was not charged, with which the charges add up to the cost of the fleet.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from gpuyard.quantities import count_digits, usd_text
from gpuyard.reports.money.lines import (
    KINDS,
    LABEL,
    MAY_LACK,
    NO_JOB,
    NONE,
    behind_texts,
    make_hours_cell,
    unbooked_texts,
)
from gpuyard.reports.report import Asking, Flag, Report
from gpuyard.reports.table import Row, Table
from gpuyard.tables import Column
from gpuyard.wire.endpoints import Action, Endpoint, query

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings

NOT_CHARGED = "not charged"
DEFAULT_BY = "tenant"

_About = TypedDict(
    "_About",
    {
        "tenant": str,
        "user": str,
        "class": str,
        "project": str,
        "model": str,
        "pool": str,
        "market": str,
        "region": str,
        "cluster": str,
        "day": str,
        "month": str,
    },
    total=False,
)


class BooksLine(_About):
    """One line of the books: its dimensions, its GPU-hours by kind of time, and its charge.

    It has the dimensions that were asked for; an empty one means that no job had that time, or that its jobs have no
    value there.
    """

    labels: NotRequired[dict[str, str]]
    """By key, those that were asked for."""
    used_gpu_hours: float
    wasted_gpu_hours: float
    unmeasured_gpu_hours: float
    starting_gpu_hours: float
    held_gpu_hours: float
    stranded_gpu_hours: float
    idle_gpu_hours: float
    recutting_gpu_hours: float
    unavailable_gpu_hours: float
    energy_kwh: float
    """As far as it was measured."""
    charged_micro_usd: int
    fleet_micro_usd: int | None
    """What the GPUs of this line cost, with or without a job; null without sight of the whole yard."""
    not_charged_micro_usd: int | None
    """What the fleet cost and no job was charged for: on the lines of what no job had. Null without sight of the whole
    yard."""


class BooksReply(TypedDict):
    """The lines, and how they add up. What the fleet cost is null without sight of the whole yard."""

    lines: list[BooksLine]
    by: list[str]
    from_day: str
    to_day: str
    """The last day that counts; all days are UTC days."""
    currency: str
    unpriced: list[str]
    """GPU models that had no price on some of the days: their time counts as 0."""
    charged_micro_usd: int
    not_charged_micro_usd: int | None
    fleet_micro_usd: int | None
    late_events: int
    """Events of the log that the books lack while they are being filled; 0: none."""
    not_booked_gpu_hours: float
    """Of the unmeasured time, that of running jobs of which is not booked yet what they did."""


COST = Endpoint(
    "GET",
    "/cost",
    Action.SEE_TENANTS,
    BooksReply,
    "Where GPU time went, and what it cost",
    tag="lists",
    parameters=(
        query("by", f"Dimensions, separated by commas: tenant,model. Default: {DEFAULT_BY}.", maxLength=200),
        query(
            "from",
            "The first day: 2026-11-01. Default: the first of the month of the last day.",
            maxLength=10,
            format="date",
        ),
        query("to", "The last day: 2026-11-30. Default: today, UTC.", maxLength=10, format="date"),
    ),
    problems=(422,),
)


def build(readings: "Readings", values: Mapping[str, Any], sight: "Sight") -> Table:
    """The lines of the tenants that you see, sorted by name; with sight of the whole yard also the time that no job
    had."""
    from gpuyard.control.views.accounts import read_accounts  # noqa: PLC0415
    from gpuyard.errors import BadInput, quote  # noqa: PLC0415
    from gpuyard.ledger.prices import CURRENCY  # noqa: PLC0415
    from gpuyard.ledger.units import (  # noqa: PLC0415
        CATEGORIES,
        GPU_HOUR,
        day_text,
    )
    from gpuyard.model.units import DAY_MS  # noqa: PLC0415
    from gpuyard.reports.money.days import read_days  # noqa: PLC0415
    from gpuyard.wire.job_fields import label_fault  # noqa: PLC0415

    by = list(dict.fromkeys([word.strip() for word in (values["by"] or DEFAULT_BY).split(",")]))
    for key in [word.removeprefix(LABEL) for word in by if word.startswith(LABEL)]:
        if fault := label_fault(key, "value"):
            raise BadInput(
                f"{quote(key)} is not a key of a label: {fault}",
                "Write the key behind 'label:', as in --by label:stage; `yard show JOB` has the labels of a job.",
            )
    from_day, to_day = read_days(values["from"], values["to"], readings.now_ms // DAY_MS)
    books = read_accounts(readings.store, from_day, to_day + 1, readings.now_ms)
    untold = books.untold
    if not sight.whole:
        seen = {name for name, owner in books.owners.items() if owner.tenant and sight.sees(owner.tenant)}
        books = books._replace(entries=[entry for entry in books.entries if entry.owner in seen])
        untold = {owner: ms for owner, ms in untold.items() if owner in seen}
    lines = books.lines(by, whole=sight.whole)
    rows = [
        {
            **_dimensions(by, line.names),
            **{f"{kind}_gpu_hours": round(line.time[CATEGORIES.index(kind)] / GPU_HOUR, 6) for kind in KINDS},
            "energy_kwh": round(line.energy_mj / 3_600_000_000, 6),
            "charged_micro_usd": line.charged,
            "not_charged_micro_usd": line.rest if sight.whole else None,
            "fleet_micro_usd": line.fleet if sight.whole else None,
        }
        for line in lines
    ]
    head = {
        "by": by,
        "from_day": day_text(from_day),
        "to_day": day_text(to_day),
        "currency": CURRENCY,
        "unpriced": books.unpriced(),
        "late_events": books.late,
        "not_booked_gpu_hours": round(sum(untold.values()) / GPU_HOUR, 6),
        "charged_micro_usd": sum([line.charged for line in lines]),
        "not_charged_micro_usd": sum([line.rest for line in lines]) if sight.whole else None,
        "fleet_micro_usd": sum([line.fleet for line in lines]) if sight.whole else None,
    }
    return Table(rows, head)


def _dimensions(by: Sequence[str], names: Sequence[str]) -> Row:
    """What a line is about, as a row has it: labels are together."""
    row: dict[str, Any] = {}
    for dimension, name in zip(by, names, strict=True):
        if dimension.startswith(LABEL):
            row.setdefault("labels", {})[dimension.removeprefix(LABEL)] = name
        else:
            row[dimension] = name
    return row


def _named(name: str) -> Column:
    """The column of a dimension. A label is named as it was asked for: a key may be the name of a dimension too."""
    if name.startswith(LABEL):
        key = name.removeprefix(LABEL)
        return Column(name.upper(), lambda row: row["labels"][key] or NONE)
    return Column(name.upper(), lambda row: row[name] or (NONE if name in MAY_LACK else NO_JOB))


def _digits(rows: Sequence[Row]) -> int:
    """Digits of all amounts of a reply."""
    return count_digits([row[f"{name}_micro_usd"] for row in rows for name in ("charged", "not_charged")])


def _columns(rows: Sequence[Row]) -> list[Column]:
    hidden = {"starting", "held", "stranded", "recutting", "unavailable"}
    places = _digits(rows)
    return [
        *[Column(kind.upper(), make_hours_cell(kind), right=True, wide=kind in hidden) for kind in KINDS],
        Column("GPU-HOURS", make_hours_cell(*KINDS), right=True),
        Column(
            "KWH",
            lambda row: f"{row['energy_kwh']:,.2f}" if row["energy_kwh"] else "-",
            right=True,
            wide=True,
        ),
        Column("CHARGED", lambda row: usd_text(row["charged_micro_usd"], places), right=True),
        Column(
            "NOT CHARGED",
            lambda row: (
                usd_text(row["not_charged_micro_usd"], places) if row["not_charged_micro_usd"] else "-"
            ),
            right=True,
        ),
    ]


def _notes(reply: Row) -> list[str]:
    days = f"{reply['from_day']} to {reply['to_day']}, UTC"
    without = [
        f"no price for {model}: it counts as 0; add it to price_book in yard.yaml"
        for model in reply["unpriced"]
    ]
    without += [*behind_texts(reply["late_events"]), *unbooked_texts(reply["not_booked_gpu_hours"])]
    places = _digits(reply["lines"])
    if reply["fleet_micro_usd"] is None:
        return [f"{days}: {usd_text(reply['charged_micro_usd'], places)} charged", *without]
    parts = [usd_text(reply[f"{name}_micro_usd"], places) for name in ("charged", "not_charged", "fleet")]
    return [
        f"{days}: {parts[0]} charged + {parts[1]} {NOT_CHARGED} = {parts[2]}, the cost of the fleet",
        *without,
    ]


def _page(ask: Asking, values: Mapping[str, Any]) -> str:
    from gpuyard.reports.money.cost_page import cost_page  # noqa: PLC0415

    return cost_page(ask, values)


REPORT: "Report[BooksReply]" = Report(
    "cost",
    COST,
    build,
    _columns,
    rows="lines",
    help="Show where GPU time went, in GPU-hours, and what it cost.",
    more_help=(
        "It sums up by tenant, user, class, project, label:KEY, model, pool, market, region, cluster, "
        "day or month, or several of them: --by tenant,model. You see only your own tenants; with sight of "
        "the whole yard you also see the time that no job had, and what was not charged. `yard cost -o html "
        "> cost.html` writes a page with plots over time."
    ),
    flags=[
        Flag("by", ("--by",)),
        Flag("from", ("--from",)),
        Flag("to", ("--to",)),
    ],
    notes=_notes,
    wakes=False,
    page=_page,
    about=_named,
)
