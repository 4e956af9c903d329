"""`GET /usage`: GPU and core time that attempts held between two moments, and what each cluster had.

For `sreport`, which shows it in Slurm's columns. What it costs is `yard cost`, which goes by the books.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from gpuyard.reports.report import Report
from gpuyard.reports.table import Table
from gpuyard.tables import Column
from gpuyard.wire.endpoints import Action, Endpoint, query

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings
    from gpuyard.control.views.held_time import Hour

DAYS_MAX = 400


class UsageLine(TypedDict):
    """Attempts of one size of one user in one tenant on one cluster."""

    cluster: str
    tenant: str
    user: str
    gpu_milli: int
    """Thousandths of a GPU that each attempt held."""
    cpu_milli: int
    runs: int
    gpu_ms: int
    """GPU time in milliseconds, of all of them."""
    cpu_ms: int


class UsedResource(TypedDict):
    """What a cluster had of GPUs or cores, in milliseconds of one of them, and where it went."""

    count: int
    allocated_ms: int
    down_ms: int
    idle_ms: int
    planned_ms: int
    """Idle while jobs waited that could have started; for cores alone, as Slurm counts."""
    over_ms: int
    """What jobs waited for beyond what was idle."""


class UsedCluster(TypedDict):
    """A cluster."""

    cluster: str
    gpus: UsedResource
    cpus: UsedResource


class UsageReply(TypedDict):
    """What attempts of each tenant and user held, and what clusters had."""

    lines: list[UsageLine]
    clusters: list[UsedCluster]
    from_ms: int
    until_ms: int


USAGE = Endpoint(
    "GET",
    "/usage",
    Action.SEE_TENANTS,
    UsageReply,
    "GPU and core time that attempts held, and what clusters had",
    tag="lists",
    parameters=(
        query("from_ms", "From this moment on, in milliseconds since 1970.", "integer"),
        query("until_ms", "Until this moment, in milliseconds since 1970. Default: now.", "integer"),
    ),
    problems=(422,),
)


def build(readings: "Readings", values: Mapping[str, Any], sight: "Sight") -> Table:
    """The summed attempts of the tenants that you see; everybody sees what clusters had."""
    from gpuyard.control.views.held_time import CORES, GPUS, read_held  # noqa: PLC0415
    from gpuyard.errors import BadInput  # noqa: PLC0415
    from gpuyard.model.units import DAY_MS, SECOND_MS  # noqa: PLC0415

    now_s = readings.now_ms // SECOND_MS
    until_s = now_s if values["until_ms"] is None else values["until_ms"] // SECOND_MS
    from_s = until_s if values["from_ms"] is None else values["from_ms"] // SECOND_MS
    if from_s >= until_s:
        raise BadInput("the first moment is not before the last one", "Give a start before the end.")
    if (until_s - from_s) * SECOND_MS > DAYS_MAX * DAY_MS:
        raise BadInput(f"these are more than {DAYS_MAX} days", "Ask for a year at a time.")
    found = read_held(readings.store, readings.model, from_s, until_s, now_s)
    sums: dict[tuple[str, str, str, int, int], list[int]] = {}
    for run in found.runs:
        if sight.sees(run.tenant):
            total = sums.setdefault((run.cluster, run.tenant, run.user, *run.milli), [0, 0, 0])
            total[0] += 1
            for of in (GPUS, CORES):
                total[1 + of] += run.milli[of] * (run.until_s - run.from_s)
    names = ("cluster", "tenant", "user", "gpu_milli", "cpu_milli", "runs", "gpu_ms", "cpu_ms")
    lines = [dict(zip(names, (*about, *total), strict=True)) for about, total in sorted(sums.items())]
    clusters = [
        {"cluster": name, "gpus": _resource(hours, GPUS), "cpus": _resource(hours, CORES)}
        for name, hours in sorted(found.hours.items())
    ]
    head = {"clusters": clusters, "from_ms": from_s * SECOND_MS, "until_ms": until_s * SECOND_MS}
    return Table(lines, head)


def _resource(hours: "list[Hour]", of: int) -> UsedResource:
    """Hour by hour, as slurmdbd does it: what is over in one hour is no room in the next."""
    parts = [sum(each) for each in zip(*[hour.divided(of) for hour in hours], strict=True)]
    counts = [-(-hour.had[of] // 3_600_000) for hour in hours if hour.had[of]]
    return {
        "count": sum(counts) // len(counts) if counts else 0,
        "allocated_ms": parts[0],
        "down_ms": parts[1],
        "idle_ms": parts[2],
        "planned_ms": parts[3],
        "over_ms": parts[4],
    }


COLUMNS = [
    Column("CLUSTER", lambda row: row["cluster"]),
    Column("TENANT", lambda row: row["tenant"]),
    Column("USER", lambda row: row["user"]),
    Column("RUNS", lambda row: str(row["runs"]), right=True),
    Column("GPU-HOURS", lambda row: f"{row['gpu_ms'] / 3_600_000:,.2f}", right=True),
    Column("CORE-HOURS", lambda row: f"{row['cpu_ms'] / 3_600_000:,.2f}", right=True),
]
REPORT: "Report[UsageReply]" = Report(
    "usage",
    USAGE,
    build,
    COLUMNS,
    rows="lines",
    help="Show GPU and core time that attempts held.",
    wakes=False,
)
