"""`yard tenants`, `GET /tenants`: the tree of tenants, what they may use and what they use."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuyard.reports.caps import cap_columns
from gpuyard.reports.report import Report
from gpuyard.reports.table import Column, Row, Table, number
from gpuyard.wire.endpoints import TENANTS

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings
    from gpuyard.wire.replies.tenants import TenantsReply


def build(readings: "Readings", _values: Mapping[str, Any], sight: "Sight") -> Table:
    """Parents before children; those that you may see."""
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
        parts = [f"{gpus:g}" if model == "total" else f"{gpus:g} {model}" for model, gpus in row[key].items()]
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
