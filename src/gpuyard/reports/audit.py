"""`yard audit`, `GET /audit`: what people did. The log is the audit trail; this reads it backwards."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuyard.reports.report import Flag, Report
from gpuyard.reports.table import Table, clock
from gpuyard.tables import Column
from gpuyard.wire.endpoints import AUDIT

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings
    from gpuyard.wire.replies.people import AuditReply


def build(readings: "Readings", values: Mapping[str, Any], _sight: "Sight") -> Table:
    """Lines of the log that name a person."""
    lines, more = readings.audit(values["user"], values["cursor"], values["limit"])
    return Table(lines, more=more)


REPORT: "Report[AuditReply]" = Report(
    "audit",
    AUDIT,
    build,
    [
        Column("EVENT", lambda line: str(line["seq"]), right=True),
        Column("WHEN", lambda line: clock(line["at_ms"])),
        Column("WHO", lambda line: line["who"] or "-"),
        Column("WHAT", lambda line: line["what"]),
        Column("TENANT", lambda line: line["tenant"] or "-"),
        Column("ABOUT", lambda line: line["about"]),
    ],
    rows="lines",
    help="Show what people did, newest first: submissions, requests about jobs, nodes, tokens, "
    "configurations.",
    more_help="Only administrators may see the audit trail.",
    flags=[
        Flag("user", ("-u", "--user"), "Show only what this user did."),
        Flag("limit", help="Show at most N entries.", default=50),
    ],
)
