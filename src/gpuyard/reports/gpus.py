"""`yard nodes --gpus`, `GET /gpus`: what each GPU does now, and the jobs on it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuyard.reports.report import Report
from gpuyard.reports.table import Column, Row, Table
from gpuyard.wire.endpoints import GPUS

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings
    from gpuyard.wire.replies.fleet import GpusReply


def build(readings: "Readings", values: Mapping[str, Any], _sight: "Sight") -> Table:
    """As the driver reports it at this moment."""
    found = readings.gpus(values["cluster"] or "")
    return Table(found["gpus"], {"trouble": found["trouble"]})


def _known(value: int | None, unit: str) -> str:
    return "-" if value is None else f"{value}{unit}"


def _memory(gpu: Row) -> str:
    """Used and total; a dash means unknown, not zero."""
    used, whole = gpu["memory_used_mib"], gpu["memory_mib"]
    return f"{'-' if used is None else f'{used / 1024:.1f}'}/{'-' if whole is None else f'{whole >> 10} GiB'}"


def _job_on(job: Row) -> str:
    part = "+".join(job["slices"]) or (f"{job['share']:g}" if job["share"] != 1 else "")
    used = "" if job["memory_used_mib"] is None else f"{job['memory_used_mib'] / 1024:.1f} GiB"
    said = ", ".join([each for each in (part, used) if each])
    return f"{job['label']} ({said})" if said else str(job["label"])


def _notes(reply: Row) -> list[str]:
    emulated = any([gpu["emulated"] for gpu in reply["gpus"]])
    return [
        each
        for each in (reply["trouble"], "emulated GPUs have nothing to measure" if emulated else "")
        if each
    ]


COLUMNS = [
    Column("NODE", lambda gpu: gpu["node"]),
    Column("CLUSTER", lambda gpu: gpu["cluster"], wide=True),
    Column("GPU", lambda gpu: str(gpu["gpu"]), right=True),
    Column("MODEL", lambda gpu: gpu["gpu_model"] or "-"),
    Column("BUSY", lambda gpu: _known(gpu["busy_pct"], "%"), right=True),
    Column("MEMORY", _memory, right=True),
    Column("POWER", lambda gpu: _known(gpu["power_w"], " W"), right=True),
    Column("TEMP", lambda gpu: _known(gpu["temperature_c"], " C"), right=True),
    Column("JOBS", lambda gpu: ", ".join(_job_on(job) for job in gpu["jobs"]) or "-"),
]


REPORT: "Report[GpusReply]" = Report(
    "gpus",
    GPUS,
    build,
    COLUMNS,
    rows="gpus",
    help="Show each GPU: how busy and warm it is, its memory, and the jobs on it.",
    notes=_notes,
    wakes=False,
)
