"""`yard doctor`, `GET /doctor`: what keeps a job to what it asked for on this machine, kind by kind."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuyard.reports.report import Report
from gpuyard.reports.table import Row, Table
from gpuyard.tables import Column
from gpuyard.wire.endpoints import DOCTOR

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings
    from gpuyard.wire.replies.fleet import DoctorReply


def build(readings: "Readings", _values: Mapping[str, Any], _sight: "Sight") -> Table:
    """What the engine found when it started."""
    found = readings.protections()
    return Table([{"kind": each.kind, "enforced": each.enforced, "by": each.by} for each in found])


def _notes(reply: Row) -> Sequence[str]:
    return () if reply["rows"] else ("jobs run on other machines, which fence them: see `yard slurm doctor`",)


REPORT: "Report[DoctorReply]" = Report(
    "doctor",
    DOCTOR,
    build,
    [
        Column("REQUEST", lambda row: row["kind"]),
        Column("ENFORCED", lambda row: row["enforced"]),
        Column("BY", lambda row: row["by"], wraps=True),
    ],
    help="Show what holds a job on this machine to its own GPUs, memory, cores and files.",
    more_help="With `fence: strict` in yard.yaml the yard refuses jobs where it cannot enforce that.",
    notes=_notes,
    wakes=False,
)
