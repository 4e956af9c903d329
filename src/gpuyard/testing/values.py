"""Small values with defaults for everything that a test does not care about."""

from collections.abc import Iterable
from dataclasses import replace
from json import loads

from gpuyard.control.projections.following import Projection, Rows, expand_event
from gpuyard.model import Ask, Event, GpuRequest, JobClass, Milli, Node, Quota, Tenant, Whole
from gpuyard.model.serialise import Plain


def node(name: str = "n0", gpus: int = 8, model: str = "H100", **fields: object) -> Node:
    """A node with plenty of cores and memory."""
    plain = Node(name, "main", "pool", model if gpus else "", gpus, 64_000, 1 << 20)
    return replace(plain, **fields)  # type: ignore[arg-type]


def nodes(count: int, gpus: int = 8, model: str = "H100", **fields: object) -> list[Node]:
    """`count` equal nodes."""
    return [node(f"{model.lower()}-{i}", gpus, model, **fields) for i in range(count)]


def ask(gpus: int | GpuRequest = 1, tasks: int = 1, **fields: object) -> Ask:
    """Whole GPUs by number, or any other request."""
    request = Whole(gpus) if isinstance(gpus, int) else gpus
    return Ask(request, tasks, **fields)  # type: ignore[arg-type]


def share(milli: int, count: int = 1, **fields: object) -> Ask:
    """A part of a GPU."""
    return Ask(Milli(count, milli), **fields)  # type: ignore[arg-type]


def quota(**fields: object) -> Quota:
    """A quota in whole GPUs: `guarantee=8`, or `limit={"H100": 4}`."""

    def milli(value: object) -> object:
        if isinstance(value, dict):
            return {name: gpus * 1000 for name, gpus in value.items()}
        return {"total": value * 1000} if isinstance(value, int) else value

    plain = {"max_gpus_per_job", "max_gpus_per_user", "max_running_jobs", "max_cpu_milli", "max_memory_mib"}
    return Quota(**{name: value if name in plain else milli(value) for name, value in fields.items()})  # type: ignore[arg-type]


def tenant(path: str, weight: int = 1, **fields: object) -> Tenant:
    """A tenant with a quota in whole GPUs."""
    budget = fields.pop("budget", None)
    return Tenant(path, weight, quota(**fields), budget)  # type: ignore[arg-type]


URGENT = JobClass("urgent", priority=10, preemptible=False, min_run_ms=0, grace_ms=1000)
BATCH = JobClass("batch", min_run_ms=0, grace_ms=1000)


def projected(projection: Projection, events: Iterable[Event]) -> dict[str, Plain]:
    """The rows that a projection makes of a log, by key."""
    rows = Rows()
    for seq, event in enumerate(events, start=1):
        for fact in expand_event(event):
            projection.fold(rows, seq, fact)
    projection.flush(rows)
    return {key: loads(value) for key, value in sorted(rows.known.items()) if value is not None}
