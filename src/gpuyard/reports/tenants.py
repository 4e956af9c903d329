"""`yard tenants`, `GET /tenants`: the tree of tenants, what they may use and what they use."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuyard.quantities import memory_size, span_words
from gpuyard.reports.report import Report
from gpuyard.reports.table import Row, Table, number
from gpuyard.tables import Column
from gpuyard.wire.endpoints import TENANTS

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings
    from gpuyard.wire.replies.tenants import TenantsReply


def cap_columns(rows: Iterable[Mapping[str, Any]]) -> list[Column]:
    """Shown where any tenant has some; otherwise only where they are asked for."""
    rows = list(rows)
    budgets = any(row["budget"] for row in rows)
    caps = any(_caps(row) != "-" for row in rows)
    return [
        Column("BUDGET", _budget, right=True, wide=not budgets),
        Column("WINDOW", _window, right=True, wide=not budgets),
        Column("CAPS", _caps, wide=not caps),
    ]


def _budget(row: Mapping[str, Any]) -> str:
    """`12.5/100 GPU-h`: spent, of all."""
    budget = row["budget"]
    return f"{budget['spent_gpu_hours']:g}/{budget['gpu_hours']:g} GPU-h" if budget else "-"


def _window(row: Mapping[str, Any]) -> str:
    return span_words(row["budget"]["window_ms"]) if row["budget"] else "-"


def _caps(row: Mapping[str, Any]) -> str:
    """`3/4 jobs, 2/8 GPUs a user, 4 GPUs a job`."""
    found = []
    if row["max_running_jobs"] is not None:
        found.append(f"{row['running']}/{row['max_running_jobs']} jobs")
    if row["max_gpus_per_user"] is not None:
        found.append(f"{number(row['most_gpus_of_a_user'])}/{number(row['max_gpus_per_user'])} GPUs a user")
    if row["max_gpus_per_job"] is not None:
        found.append(f"{number(row['max_gpus_per_job'])} GPUs a job")
    if row.get("max_jobs") is not None:
        found.append(f"{row['running'] + row['waiting']}/{row['max_jobs']} jobs, waiting ones too")
    found += [f"{kind} a job: {text}" for kind, text in row.get("per_job", {}).items()]
    found += [f"{klass}: {text}" for klass, text in row.get("class_limits", {}).items()]
    if row.get("on_limit") == "refuse":
        found.append("refuses")
    if row.get("max_cpus") is not None:
        found.append(f"{number(row['cpus'])}/{number(row['max_cpus'])} cores")
    if row.get("max_memory_mib") is not None:
        found.append(f"{memory_size(row['memory_mib'])}/{memory_size(row['max_memory_mib'])}")
    return ", ".join(found) or "-"


def build(readings: "Readings", _values: Mapping[str, Any], sight: "Sight") -> Table:
    """The tenants that you may see, parents before children."""
    return Table(readings.configs.tenants(sight))


def _columns(rows: Sequence[Row]) -> list[Column]:
    return [
        Column("TENANT", lambda row: "  " * row["tenant"].count("/") + row["tenant"].rpartition("/")[2]),
        Column("WEIGHT", lambda row: str(row["weight"]), right=True),
        Column("GUARANTEE", _amount("guarantee")),
        Column("LIMIT", _amount("limit")),
        Column("BORROW", _amount("borrow"), wide=True),
        Column("LEND", _amount("lend"), wide=True),
        Column("IN USE", lambda row: number(row["gpus_used"]), right=True),
        *cap_columns(rows),
        Column("RUNNING", lambda row: str(row["running"]), right=True),
        Column("WAITING", lambda row: str(row["waiting"]), right=True),
        Column("CLASSES", lambda row: ", ".join(row["classes"]), wide=True),
    ]


def _amount(key: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        percent = row["percentages"].get(key, {})
        parts = [
            (f"{gpus:g}" if model == "total" else f"{gpus:g} {model}")
            + (f" ({percent[model]})" if model in percent else "")
            for model, gpus in row[key].items()
        ]
        return ", ".join(parts) or "-"

    return cell


REPORT: "Report[TenantsReply]" = Report(
    "tenants",
    TENANTS,
    build,
    _columns,
    rows="tenants",
    help="Show the tenants with their quotas in GPUs, what each uses, and how many of its jobs run and wait.",
)
