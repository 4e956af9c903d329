"""`yard waits`, `GET /waits`: what jobs waited for, in GPU-hours, by cause and by what asked."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from gpuyard.job_sizes import SIZES_TEXT
from gpuyard.reports.report import Flag, Report
from gpuyard.reports.table import Row, Table
from gpuyard.tables import Column
from gpuyard.wire.endpoints import Action, Endpoint, query

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings
    from gpuyard.control.views.past_waits import Waited

DEFAULT_BY = "reason"
EACH = "each"
"""In the place of ranges of sizes: every size has a line of its own."""
ANY_POOL, OTHER = "(any)", "(other)"
"""For a pool, jobs that could go to several; for a user or a name, those that were not told apart."""


class _WaitsAbout(TypedDict, total=False):
    tenant: str
    user: str
    name: str
    pool: str
    size: str
    reason: str
    hour: str
    day: str
    month: str


class WaitsLine(_WaitsAbout):
    """How long some jobs waited, in GPU-hours (GPUs asked for times hours) and hours, with the dimensions that were
    asked for."""

    gpu_hours: float
    job_hours: float


class WaitsReply(TypedDict):
    """What jobs waited for."""

    lines: list[WaitsLine]
    by: list[str]
    from_day: str
    to_day: str
    """The last day that counts; all days are UTC days."""
    gpu_hours: float


WAITS = Endpoint(
    "GET",
    "/waits",
    Action.SEE_TENANTS,
    WaitsReply,
    "What jobs waited for",
    tag="lists",
    parameters=(
        query("by", f"Dimensions, separated by commas: tenant,reason. Default: {DEFAULT_BY}.", maxLength=200),
        query(
            "from",
            "The first day: 2026-11-01. Default: a week before the last day.",
            maxLength=10,
            format="date",
        ),
        query("to", "The last day: 2026-11-30. Default: today, UTC.", maxLength=10, format="date"),
        query(
            "sizes",
            "Where size parts the jobs, a gang with all its GPUs: the most GPUs of each range but the last; each: no "
            f"ranges. Default: {SIZES_TEXT}.",
            maxLength=200,
        ),
    ),
    problems=(422,),
)


def build(readings: "Readings", values: Mapping[str, Any], sight: "Sight") -> Table:
    """What the tenants that you see waited for, sorted by name."""
    from gpuyard.control.views.past_waits import read_waited  # noqa: PLC0415
    from gpuyard.errors import BadInput, names_text, quote, suggest_end  # noqa: PLC0415
    from gpuyard.ledger.units import day_text, month_of  # noqa: PLC0415
    from gpuyard.model.units import DAY_MS, HOUR_MS  # noqa: PLC0415
    from gpuyard.reports.money.days import read_days  # noqa: PLC0415

    dimensions = {
        "tenant": lambda line: line.tenant,
        "user": lambda line: line.user,
        "name": lambda line: line.name,
        "pool": lambda line: line.pool,
        "size": _sizes(values["sizes"] or SIZES_TEXT),
        "reason": lambda line: line.cause,
        "hour": lambda line: f"{day_text(line.hour // 24)} {line.hour % 24:02}:00",
        "day": lambda line: day_text(line.hour // 24),
        "month": lambda line: month_of(line.hour // 24),
    }
    by = list(dict.fromkeys([word.strip() for word in (values["by"] or DEFAULT_BY).split(",")]))
    for name in by:
        if name not in dimensions:
            raise BadInput(
                f"{quote(name)} is not a dimension of waiting{suggest_end(name, dimensions)}",
                f"Take some of {names_text(dimensions)}.",
            )
    from_day, to_day = read_days(values["from"], values["to"], readings.now_ms // DAY_MS, back=6)
    of = [dimensions[name] for name in by]
    sums: dict[tuple[str, ...], list[int]] = {}
    for line in read_waited(readings.store, 24 * from_day, 24 * (to_day + 1)):
        if sight.whole or sight.sees(line.tenant):
            total = sums.setdefault(tuple([each(line) for each in of]), [0, 0])
            total[0] += line.gpu_ms
            total[1] += line.job_ms
    rows = [
        {
            **dict(zip(by, names, strict=True)),
            "gpu_hours": round(gpu_ms / HOUR_MS, 6),
            "job_hours": round(job_ms / HOUR_MS, 6),
        }
        for names, (gpu_ms, job_ms) in sorted(sums.items(), key=lambda each: _place(by, each[0]))
        if job_ms
    ]
    head = {
        "by": by,
        "from_day": day_text(from_day),
        "to_day": day_text(to_day),
        "gpu_hours": round(sum([total[0] for total in sums.values()]) / HOUR_MS, 6),
    }
    return Table(rows, head)


def _sizes(text: str) -> "Callable[[Waited], str]":
    """What stands for the size of a job: a range, or the GPUs themselves."""
    from gpuyard.errors import BadInput  # noqa: PLC0415
    from gpuyard.job_sizes import parse_sizes  # noqa: PLC0415
    from gpuyard.model.units import MILLI  # noqa: PLC0415

    if text == EACH:
        return lambda line: f"{line.gpu_milli / MILLI:g}"
    try:
        ranges = parse_sizes(text)
    except ValueError as wrong:
        raise BadInput(f"sizes {wrong}", f"For example: {SIZES_TEXT}, or {EACH}.") from None
    return lambda line: ranges.name_of(line.gpu_milli)


def _place(by: list[str], names: tuple[str, ...]) -> tuple[Any, ...]:
    """By name; sizes as the numbers that they begin with."""
    return tuple(
        [
            (_least(name), name) if word == "size" else (0.0, name)
            for word, name in zip(by, names, strict=True)
        ]
    )


def _least(size: str) -> float:
    """The least GPUs of a size: `0.5`, `up to 1`, `2-8`, `17+`."""
    return 0.0 if size.startswith("up") else float(size.rstrip("+").partition("-")[0])


def _named(name: str) -> Column:
    empty = ANY_POOL if name == "pool" else OTHER
    return Column(name.upper(), lambda row: row[name] or empty, right=name == "size")


def _columns(rows: Sequence[Row]) -> list[Column]:
    total = sum([row["gpu_hours"] for row in rows])

    def part(row: Row) -> str:
        return f"{100 * row['gpu_hours'] / total:.1f}" if total else "-"

    return [
        Column("GPU-HOURS", lambda row: f"{row['gpu_hours']:,.2f}", right=True),
        Column("%", part, right=True),
        Column("JOB-HOURS", lambda row: f"{row['job_hours']:,.2f}", right=True),
    ]


def _notes(reply: Row) -> list[str]:
    failed = (
        ["crashes: attempts that ended as FAILED, NODE_FAIL or OUT_OF_MEMORY had the GPUs then, for nothing"]
        if any([row.get("reason") == "crashes" for row in reply["lines"]])
        else []
    )
    return [
        f"{reply['from_day']} to {reply['to_day']}, UTC: {reply['gpu_hours']:,.2f} GPU-hours were waited for; "
        "what was seen enters the log every five minutes",
        *failed,
    ]


REPORT: "Report[WaitsReply]" = Report(
    "waits",
    WAITS,
    build,
    _columns,
    rows="lines",
    help="Show what jobs waited for, in GPU-hours.",
    more_help=(
        "It sums up by reason, tenant, user, name, pool, size, hour, day or month, or several of them: --by "
        "tenant,reason. A job that asks for 8 GPUs and waits 2 hours has waited for 16 GPU-hours. The size of a job is "
        "all of its GPUs, in ranges; --sizes sets them, and --sizes each gives each size a line. You see only your "
        "own tenants."
    ),
    flags=[
        Flag("by", ("--by",)),
        Flag("from", ("--from",)),
        Flag("to", ("--to",)),
        Flag("sizes", ("--sizes",)),
    ],
    notes=_notes,
    wakes=False,
    about=_named,
)
