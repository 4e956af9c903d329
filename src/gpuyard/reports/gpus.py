"""`yard nodes --gpus`, `GET /gpus`: what each GPU does now, and the jobs on it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuyard.errors import names_text
from gpuyard.quantities import memory_gib, memory_used, span
from gpuyard.reports.report import Report
from gpuyard.reports.table import Row, Table
from gpuyard.tables import Column
from gpuyard.wire.endpoints import GPUS

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings
    from gpuyard.wire.replies.fleet import GpusReply

STALE_S = 60
_NAMED_MAX = 3


def build(readings: "Readings", values: Mapping[str, Any], sight: "Sight") -> Table:
    """What the driver reports at this moment, or what the node's collector last reported."""
    found = readings.gpus(values["cluster"] or "", sight)
    return Table(found["gpus"], {"trouble": found["trouble"]})


def figure_text(value: int | None, unit: str) -> str:
    """A figure with its unit; a dash means unknown, not zero."""
    return "-" if value is None else f"{value}{unit}"


def memory_use_text(gpu: Row) -> str:
    """Used and total; a dash means unknown, not zero."""
    used, whole = gpu["memory_used_mib"], gpu["memory_mib"]
    return f"{'-' if used is None else memory_used(used)}/{'-' if whole is None else memory_gib(whole)}"


def _job_on(job: Row) -> str:
    part = "+".join(job["slices"]) or (f"{job['share']:g}" if job["share"] != 1 else "")
    used = "" if job["memory_used_mib"] is None else f"{memory_used(job['memory_used_mib'])} GiB"
    said = ", ".join([each for each in (job["user"], part, used) if each])
    return f"{job['label']} ({said})" if said else str(job["label"])


def is_stale(gpu: Row) -> bool:
    """Whether what is known of a GPU says little about now."""
    return gpu["age_s"] is not None and gpu["age_s"] > STALE_S


def _age(gpu: Row) -> str:
    return f"{span(gpu['age_s'] * 1000)} old" if is_stale(gpu) else ""


def _notes(reply: Row) -> list[str]:
    """What could not be read, and why figures are missing."""
    gpus = reply["gpus"]
    silent = any([gpu["emulated"] and gpu["jobs"] and gpu["busy_pct"] is None for gpu in gpus])
    untold = sorted({gpu["node"] for gpu in gpus if gpu["age_s"] is None})
    named = names_text(untold, _NAMED_MAX)
    notes = [
        reply["trouble"],
        "a job on emulated GPUs that does not say what it does there (YARD_EMULATED_LOAD) tells nothing"
        if silent
        else "",
        f"nobody tells what the GPUs of {named} do: `yard collect` there does"
        if untold and not reply["trouble"]
        else "",
    ]
    return [each for each in notes if each]


def _columns(rows: Sequence[Row]) -> list[Column]:
    """How old figures are is a column where some are."""
    ages = [Column("AGE", _age)] if any([is_stale(row) for row in rows]) else []
    return [*COLUMNS[:-1], *ages, COLUMNS[-1]]


COLUMNS = [
    Column("NODE", lambda gpu: gpu["node"]),
    Column("CLUSTER", lambda gpu: gpu["cluster"], wide=True),
    Column("GPU", lambda gpu: str(gpu["gpu"]), right=True),
    Column("MODEL", lambda gpu: gpu["gpu_model"] or "-"),
    Column("BUSY", lambda gpu: figure_text(gpu["busy_pct"], "%"), right=True),
    Column("MEMORY", memory_use_text, right=True),
    Column("POWER", lambda gpu: figure_text(gpu["power_w"], " W"), right=True),
    Column("TEMP", lambda gpu: figure_text(gpu["temperature_c"], " C"), right=True),
    Column("JOBS", lambda gpu: ", ".join(_job_on(job) for job in gpu["jobs"]) or "-"),
]


REPORT: "Report[GpusReply]" = Report(
    "gpus",
    GPUS,
    build,
    _columns,
    rows="gpus",
    help="Show each GPU: how busy and warm it is, its memory, and the jobs on it.",
    notes=_notes,
    wakes=False,
)
