"""`yard duties`, `GET /duties`: what a server does by itself, again and again, and how that goes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from gpuyard.quantities import span
from gpuyard.reports.report import Report
from gpuyard.reports.table import Row, Table, clock
from gpuyard.tables import Column
from gpuyard.wire.endpoints import Action, Endpoint

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.duties.duty import RunningDuty
    from gpuyard.control.readings import Readings


class DutyLine(TypedDict):
    """One duty, as the server that is asked knows it."""

    name: str
    leader: Annotated[bool, "Whether the server that leads does it alone; else each server does."]
    here: Annotated[bool, "Whether this server does it now."]
    every_s: Annotated[float, "About how long after a round the next one comes."]
    last_ms: Annotated[int | None, "When its last round ended here; null: there was none."]
    took_s: Annotated[float | None, "How long that round took."]
    good_ms: Annotated[int | None, "When its last good round ended here; null: there was none."]
    runs: Annotated[int, "Rounds since this server began."]
    failures: Annotated[int, "Those of them that failed."]
    why: Annotated[str, "Why the last round failed; empty: it did not."]


class DutiesReply(TypedDict):
    """All duties of a server, in the order of their start."""

    duties: list[DutyLine]
    leads: Annotated[bool, "Whether this server leads."]


DUTIES = Endpoint(
    "GET",
    "/duties",
    Action.SEE_ALL,
    DutiesReply,
    "What the server that is asked does by itself, and how that goes",
    tag="store",
)


def build(readings: "Readings", _values: Mapping[str, Any], _sight: "Sight") -> Table:
    """Every duty with its last round, and why that failed."""
    now_ms = readings.now_ms
    return Table([_row(each, now_ms) for each in readings.duties], {"leads": readings.leads})


def _row(each: "RunningDuty", now_ms: int) -> Row:
    duty, record = each.duty, each.record
    age_s, good_s = each.ages_s()
    return {
        "name": duty.name,
        "leader": duty.leader,
        "here": each.here,
        "every_s": duty.every_s,
        "last_ms": None if age_s is None else now_ms - round(1000 * age_s),
        "took_s": None if age_s is None else round(record.took_s, 3),
        "good_ms": None if good_s is None else now_ms - round(1000 * good_s),
        "runs": record.runs,
        "failures": record.failures,
        "why": each.why,
    }


def _where(row: Row) -> str:
    return "each server" if not row["leader"] else "leader" if row["here"] else "leader, elsewhere"


def _every(row: Row) -> str:
    return span(round(1000 * row["every_s"])) if row["every_s"] >= 1 else f"{row['every_s']:g}s"


def _notes(reply: Row) -> Sequence[str]:
    return () if reply["leads"] else ("this server does not lead: duties of the leader are done elsewhere",)


REPORT: "Report[DutiesReply]" = Report(
    "duties",
    DUTIES,
    build,
    [
        Column("DUTY", lambda row: row["name"]),
        Column("WHERE", _where),
        Column("EVERY", _every, right=True),
        Column("LAST", lambda row: clock(row["last_ms"])),
        Column("TOOK", lambda row: "-" if row["took_s"] is None else f"{row['took_s']:g}s", right=True),
        Column("GOOD", lambda row: clock(row["good_ms"]), wide=True),
        Column("ROUNDS", lambda row: str(row["runs"]), right=True, wide=True),
        Column("FAILED", lambda row: str(row["failures"]), right=True),
        Column("WHY", lambda row: row["why"], wraps=True),
    ],
    rows="duties",
    help="Show what the server does by itself, when it last did it, and what fails.",
    notes=_notes,
    wakes=False,
)
