"""`yard efficiency`, `GET /efficiency`: what jobs asked for against what they used, and the smaller ask.

A proposal has room above the most that was seen, because a job that asks for too little memory dies. What nobody
measured leads to no proposal.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from gpuyard.quantities import memory_size, percent_text, span, usd_text
from gpuyard.reports.report import Flag, Report
from gpuyard.reports.table import Row, Table
from gpuyard.tables import Column
from gpuyard.wire.endpoints import NAME, TENANT, USER, Action, Endpoint, query

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings
    from gpuyard.wire.replies.jobs import ListedJob

JOBS_MAX = 100
SEEN_MIN_MS = 20_000
"""A job that was watched for a shorter time has nothing proposed: it may not have shown what it needs."""
ROOM_PERCENT = 20
"""How much a proposal has above the most that was seen, of memory."""
_MEMORY_STEP_MIB = 128
_GPU_ROOM_PERCENT = 10
_SHARE_STEP = 50
_SHARE_MAX = 750
"""A larger share leaves the rest of the GPU to hardly any job."""
_CORE_SLACK_MILLI = 100
"""What a job may take beyond whole cores before one more is proposed: threads that hardly ever run."""
_LIMIT_STEP_S = 300


class EfficiencyRow(TypedDict):
    """One job: what it asked for, what it used of that, and a smaller ask. Null: unknown."""

    label: str
    name: str
    tenant: str
    user: str
    state: str
    ran_s: int
    seen_s: int
    """For how long it was watched."""
    gpus: str
    gpu_busy_pct: float | None
    """How busy it kept its GPUs on average, of what it holds of them."""
    gpu_estimated: bool
    """Whether that is an estimate: the GPU does not say which job computed."""
    gpu_memory_mib: int | None
    gpu_memory_held_mib: int | None
    cpus: float
    cpus_used: float | None
    cpus_peak: float | None
    memory_mib: int
    memory_used_mib: int | None
    time_limit_s: int | None
    smaller: dict[str, str]
    """Options for a submission that would have done: `gpus`, `cpus`, `memory`, `time`."""
    saved_gpu_hours: float
    saved_core_hours: float
    saved_usd: float | None
    """What the GPUs would have cost less; null: their price is not known."""


class EfficiencyReply(TypedDict):
    """Jobs, newest first."""

    jobs: list[EfficiencyRow]


EFFICIENCY = Endpoint(
    "GET",
    "/efficiency",
    Action.SEE_JOB,
    EfficiencyReply,
    "What jobs asked for, what they used, and a smaller ask that would have been enough",
    tag="lists",
    parameters=(
        query("job", "Only this job: 17, or 12_3 for a task of array 12.", maxLength=64),
        query("like", "Only ended jobs of the same user and name as this job.", maxLength=64),
        TENANT,
        USER,
        NAME,
        query("limit", "At most N jobs, newest first.", "integer", minimum=1, maximum=JOBS_MAX),
    ),
    problems=(404,),
)


def build(readings: "Readings", values: Mapping[str, Any], sight: "Sight") -> Table:
    """Jobs that ran, newest first, each with its last try."""
    from gpuyard.control.refusals import unknown_tenant  # noqa: PLC0415
    from gpuyard.control.replica.labels import parse_label  # noqa: PLC0415
    from gpuyard.control.views.queue_list import Filter  # noqa: PLC0415
    from gpuyard.control.views.views import ENDED_STATES, LIVE_STATES  # noqa: PLC0415
    from gpuyard.model import JobState  # noqa: PLC0415

    if values["job"]:
        # An array has no curves of its own; its tasks have.
        views: list[ListedJob] = [readings.views.brief(parse_label(values["job"]), sight)]
    else:
        ran = ENDED_STATES | LIVE_STATES - {JobState.PENDING.value}
        wanted = Filter(ran, values["tenant"], values["user"], values["name"], ran=True, sight=sight)
        if values["like"]:
            like = readings.views.job(parse_label(values["like"]), brief=True, sight=sight)
            wanted = Filter(ENDED_STATES, user=like["user"], name=like["name"], ran=True, sight=sight)
        # All of the newest jobs, many times more than are listed, may have been cancelled in line.
        views, _next = readings.views.jobs(wanted, None, values["limit"] or JOBS_MAX)
        if values["tenant"] and not views:
            # One that is gone may still have jobs.
            seen = [row["tenant"] for row in readings.configs.tenants(sight)]
            if values["tenant"] not in seen:
                raise unknown_tenant(values["tenant"], seen)
    return Table([_row(readings, view) for view in views if view["started_ms"]])


def _row(readings: "Readings", view: "ListedJob") -> EfficiencyRow:
    from gpuyard.telemetry.spans import compute_mean, find_largest, find_spans, sum_seen_ms  # noqa: PLC0415

    started_ms = view["started_ms"] or 0
    curves = {each["signal"]: each for each in readings.curves(view)["curves"]}
    found = {
        name: find_spans(each["times_ms"], each["values"], started_ms, counts=each["counts"])
        for name, each in curves.items()
    }
    usage = readings.usage(view)
    estimated = "gpu_busy" not in found and "gpu_busy_estimated" in found
    busy = found.get("gpu_busy_estimated" if estimated else "gpu_busy") or None
    share = curves["gpu_busy_estimated" if estimated else "gpu_busy"]["full"] or 1000 if busy else 1000
    cpu = found.get("cpu") or None
    ran_ms = (view["ended_ms"] or readings.now_ms) - started_ms
    peaks = [round(find_largest(found[name])) for name in ("memory", "memory_peak") if found.get(name)]
    peaks += [usage.memory_mib] if usage.memory_mib is not None else []
    gpu_memory = found.get("gpu_memory")
    row: EfficiencyRow = {
        "label": view["label"],
        "name": view["name"],
        "tenant": view["tenant"],
        "user": view["user"],
        "state": view["state"],
        "ran_s": ran_ms // 1000,
        "seen_s": max([sum_seen_ms(each) for each in found.values()], default=0) // 1000,
        "gpus": view["gpus_per_task"] if view["gpus"] else "",
        "gpu_busy_pct": round(100 * compute_mean(busy) / share, 1) if busy else None,
        "gpu_estimated": estimated,
        "gpu_memory_mib": round(find_largest(gpu_memory)) if gpu_memory else None,
        "gpu_memory_held_mib": readings.gpu_memory_mib(view) or None,
        "cpus": view["cpus"] * view["tasks"],
        "cpus_used": _cores(usage.cpu_ms, ran_ms) if usage.cpu_ms is not None else _mean(cpu),
        "cpus_peak": round(find_largest(cpu) / 1000, 2) if cpu else None,
        "memory_mib": view["memory_mib"] * view["tasks"],
        "memory_used_mib": max(peaks) if peaks else None,
        "time_limit_s": view["time_limit_s"],
        "smaller": {},
        "saved_gpu_hours": 0.0,
        "saved_core_hours": 0.0,
        "saved_usd": None,
    }
    if row["seen_s"] * 1000 >= SEEN_MIN_MS:
        _propose(row, view, round(find_largest(busy)) if busy else None, readings.gpu_sizes(view))
        _save(row, view, readings.price(view))
    return row


def _cores(cpu_ms: int, ran_ms: int) -> float | None:
    return round(cpu_ms / ran_ms, 2) if ran_ms else None


def _mean(cpu: Any) -> float | None:
    from gpuyard.telemetry.spans import compute_mean  # noqa: PLC0415

    return round(compute_mean(cpu) / 1000, 2) if cpu else None


def _propose(
    row: EfficiencyRow, view: "ListedJob", busy: int | None, sizes: Sequence[tuple[str, int, int]]
) -> None:
    """Fill in the smaller ask. `busy`: the most that the job kept a GPU busy, in parts of a thousand of it."""
    smaller, tasks = row["smaller"], view["tasks"]
    # What one of several GPUs could be done without is not known: the job may be written for so many.
    one = str(view["gpus_per_task"]) == "1"
    if one and busy is not None and row["gpu_memory_mib"] is not None and row["gpu_memory_held_mib"]:
        held = row["gpu_memory_held_mib"] // tasks
        need_mib = -(-row["gpu_memory_mib"] * (100 + _GPU_ROOM_PERCENT) // (100 * tasks))
        need = max(-(-busy * (100 + _GPU_ROOM_PERCENT) // 100), -(-1000 * need_mib // held))
        if ask := smaller_gpu(need, need_mib, busy, sizes):
            smaller["gpus"] = ask
    if view["cpus"] and row["cpus_peak"] is not None:
        cores = suggest_cores(row["cpus_peak"], tasks)
        if cores < view["cpus"]:
            smaller["cpus"] = str(cores)
    if view["memory_mib"] and row["memory_used_mib"] is not None:
        memory_mib = suggest_memory_mib(row["memory_used_mib"], tasks)
        if memory_mib < view["memory_mib"]:
            smaller["memory"] = f"{memory_mib}M"
    if view["time_limit_s"] and view["state"] == "COMPLETED":
        steps = -(-row["ran_s"] * 3 // (2 * _LIMIT_STEP_S))
        if max(1, steps) * _LIMIT_STEP_S <= view["time_limit_s"] // 2:
            smaller["time"] = f"{max(1, steps) * _LIMIT_STEP_S // 60}m"


def smaller_gpu(need: int, need_mib: int, busy: int, sizes: Sequence[tuple[str, int, int]]) -> str:
    """The smallest slice, else the smallest share, that does for a need in parts of a thousand of a GPU; empty: none.

    `sizes`: profiles of the GPU with their memory and their part of its compute.
    """
    fitting = [
        (part, memory_mib, name)
        for name, memory_mib, part in sizes
        if memory_mib >= need_mib and part * 100 >= busy * (100 + _GPU_ROOM_PERCENT) and part <= _SHARE_MAX
    ]
    if fitting:
        return min(fitting)[2]
    share = max(_SHARE_STEP, -(-need // _SHARE_STEP) * _SHARE_STEP)
    return f"{share / 1000:g}" if share <= _SHARE_MAX else ""


def suggest_cores(peak: float, tasks: int) -> int:
    """Whole cores of a task for the most cores that all tasks took."""
    milli = -(-round(1000 * peak) // tasks)
    return max(1, -(-(milli - _CORE_SLACK_MILLI) // 1000))


def suggest_memory_mib(peak_mib: int, tasks: int) -> int:
    """Memory of a task for the most that all tasks took."""
    wanted = -(-peak_mib * (100 + ROOM_PERCENT) // (100 * tasks))
    return max(1, -(-wanted // _MEMORY_STEP_MIB)) * _MEMORY_STEP_MIB


def _save(row: EfficiencyRow, view: "ListedJob", price_micro_usd_h: int) -> None:
    """What the smaller ask would have left to other jobs, over the time that it ran."""
    hours, smaller = row["ran_s"] / 3600, row["smaller"]
    if ask := smaller.get("gpus"):
        from gpuyard.core.fleet.mig_geometry import charge_of  # noqa: PLC0415

        part = charge_of(ask) / 1000 if "g." in ask else float(ask)
        row["saved_gpu_hours"] = round((1 - part) * view["tasks"] * hours, 4)
        if price_micro_usd_h:
            row["saved_usd"] = round(row["saved_gpu_hours"] * price_micro_usd_h / 1_000_000, 4)
    if ask := smaller.get("cpus"):
        row["saved_core_hours"] = round((view["cpus"] - int(ask)) * view["tasks"] * hours, 4)


def _of(used: str | None, asked: str) -> str:
    return f"{'-' if used is None else used} of {asked}" if asked else used or "-"


def _gpu(row: Row) -> str:
    if row["gpu_busy_pct"] is None:
        return "-"
    return f"{'~' if row['gpu_estimated'] else ''}{percent_text(row['gpu_busy_pct'])} of {row['gpus']}"


def _gpu_memory(row: Row) -> str:
    used, held = row["gpu_memory_mib"], row["gpu_memory_held_mib"]
    return "-" if not held else _of(None if used is None else memory_size(used), memory_size(held))


def _cpu(row: Row) -> str:
    used = row["cpus_used"]
    return _of(None if used is None else f"{used:.2g}", f"{row['cpus']:g}" if row["cpus"] else "")


def _memory(row: Row) -> str:
    used = row["memory_used_mib"]
    return _of(
        None if used is None else memory_size(used),
        memory_size(row["memory_mib"]) if row["memory_mib"] else "",
    )


def _time(row: Row) -> str:
    return _of(span(row["ran_s"] * 1000), span(row["time_limit_s"] * 1000) if row["time_limit_s"] else "")


def options(smaller: Mapping[str, str]) -> str:
    """A smaller ask as `yard submit` takes it."""
    return " ".join([f"--{name} {value}" for name, value in smaller.items()])


def _notes(reply: Row) -> list[str]:
    rows = reply["jobs"]
    saved = sum([row["saved_gpu_hours"] for row in rows])
    if not saved:
        return []
    dollars = [row["saved_usd"] for row in rows if row["saved_usd"] is not None]
    worth = f" ({usd_text(round(sum(dollars) * 1_000_000))})" if dollars else ""
    return [f"smaller asks would have left {saved:.3g} GPU-hours{worth} to other jobs"]


COLUMNS = [
    Column("JOB", lambda row: row["label"], right=True),
    Column("NAME", lambda row: row["name"]),
    Column("USER", lambda row: row["user"]),
    Column("TENANT", lambda row: row["tenant"], wide=True),
    Column("GPU", _gpu, right=True),
    Column("GPU MEMORY", _gpu_memory, right=True),
    Column("CORES", _cpu, right=True),
    Column("MEMORY", _memory, right=True),
    Column("TIME", _time, right=True),
    Column("SMALLER ASK", lambda row: options(row["smaller"]) or "-"),
    Column(
        "SAVES",
        lambda row: f"{row['saved_gpu_hours']:.3g} GPU-h" if row["saved_gpu_hours"] else "-",
        right=True,
    ),
]


REPORT: "Report[EfficiencyReply]" = Report(
    "efficiency",
    EFFICIENCY,
    build,
    COLUMNS,
    rows="jobs",
    help="Compare what jobs asked for with what they used, and show the smaller ask that would have "
    "been enough.",
    more_help="It shows one job, or the newest jobs of a tenant or a user. ~ marks an estimate, - a "
    "value that was not measured.",
    flags=[
        Flag("job", help="17, or 12_3 for a task of array 12. Default: the newest jobs.", operand=True),
        Flag("tenant", ("--tenant", "-t")),
        Flag("user", ("--user", "-u")),
        Flag("name", ("--name",)),
        Flag("limit", ("--limit", "-n"), default=20),
    ],
    notes=_notes,
)
