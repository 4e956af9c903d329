"""`yard nodes`, `GET /nodes`: the machines, what is free on them, and which GPUs are used from outside the yard."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuyard.errors import count_text
from gpuyard.quantities import memory_gib
from gpuyard.reports.report import Report
from gpuyard.reports.table import Row, Table, number
from gpuyard.tables import Column
from gpuyard.wire.endpoints import NODES

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings
    from gpuyard.wire.replies.fleet import NodesReply


def build(readings: "Readings", values: Mapping[str, Any], sight: "Sight") -> Table:
    """Every node, with what is free on it, and what scripts call pools, tenants and classes."""
    found = readings.views.nodes(sight, values["cluster"] or "")
    return Table(found["nodes"], {"script_names": found["script_names"]})


def _why(node: Row) -> str:
    pins = f"{count_text(node['gpus_pinned'], 'GPU')} pinned to slices" if node["gpus_pinned"] else ""
    return "; ".join(part for part in (node["why"], node["foreign"], pins) if part)


def _labels(node: Row) -> str:
    return " ".join([f"{key}={value}" if value else key for key, value in node["labels"].items()]) or "-"


COLUMNS = [
    Column("NODE", lambda node: node["name"]),
    Column("STATE", lambda node: node["state"]),
    Column("MODEL", lambda node: node["gpu_model"] or "-"),
    Column("GPUS", lambda node: str(node["gpus"]), right=True),
    Column("FREE", lambda node: number(node["gpus_free"]), right=True),
    Column("CPUS", lambda node: f"{number(node['cpus_free'])}/{number(node['cpus'])}", right=True),
    Column(
        "MEMORY",
        lambda node: f"{node['memory_mib_free'] >> 10}/{memory_gib(node['memory_mib'])}",
        right=True,
    ),
    Column("JOBS", lambda node: str(len(node["jobs"])), right=True),
    Column("CLUSTER", lambda node: node["cluster"], wide=True),
    Column("POOL", lambda node: node["pool"], wide=True),
    Column("LABELS", _labels, wide=True),
    Column("TAINTS", lambda node: " ".join(node["taints"]) or "-", wide=True),
    Column("IDS", lambda node: " ".join(node["jobs"]) or "-", wide=True),
    Column("WHY", _why, wraps=True),
]


REPORT: "Report[NodesReply]" = Report(
    "nodes",
    NODES,
    build,
    COLUMNS,
    rows="nodes",
    help="Show the nodes, what is free on them, and which GPUs are used from outside the yard.",
)
