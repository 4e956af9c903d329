"""What a change of the configuration would have done: the recorded days, simulated as they were and as they would be.

Both sides are simulated, with the same jobs on the present fleet, so that whatever the simulator does not know is
missing on both. What really happened is shown beside the first, as a check of the simulator itself.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuyard.core import State, apply
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import names_text
from gpuyard.errors import count_text
from gpuyard.job_sizes import SIZES, SizeRanges
from gpuyard.model import ConfigSet, Market, Node, Pool, Settings
from gpuyard.model.prices import hold_prices
from gpuyard.model.units import DAY_MS, MINUTE_MS
from gpuyard.policies import registry
from gpuyard.sim.preview_words import alone_text, preview_text, span_text
from gpuyard.sim.recorded_days import UNKNOWN, Recorded, make_recorded
from gpuyard.sim.result import Result
from gpuyard.sim.simulate import Lacks, Simulation
from gpuyard.sim.summary import align_columns, find_nearest_rank
from gpuyard.wire.replies.tenants import (
    CheckReply,
    ComparedSizeReply,
    ComparedTenantReply,
    ComparedWaits,
    PreviewFigures,
    PreviewReply,
)

FEW_JOBS = 50
"""With fewer jobs, chance says more than the policy."""
OFF_FACTOR = 2
"""A simulated wait that is off by more than this factor, and by more than a minute, gets a note."""

Progress = Callable[[str, int, int], None]
"""Called with the side being simulated, how many jobs have ended, and of how many."""

Wanted = Callable[[int], bool]
"""Whether a row of the trace is one of the jobs that are compared."""


@dataclass(frozen=True, slots=True)
class PreviewRequest:
    """The request for a preview."""

    state: State
    """The present yard: fleet, live jobs, settings."""
    settings: Settings
    """The settings that would be put in force."""
    changed: tuple[str, ...]
    """Tenants that the change names."""
    from_ms: int
    until_ms: int
    since_ms: int = 0
    """When the present settings came into force: earlier events are no check of the simulation."""
    shortened: bool = False
    """Whether more was recorded than can be simulated in a reasonable time."""
    sizes: SizeRanges = SIZES
    """Where jobs are parted by size."""


def run_preview(asked: PreviewRequest, rows: Iterable[Sequence[Any]], progress: Progress) -> PreviewReply:
    """Simulate both sides and return the differences, as plain JSON data."""
    state = asked.state
    rows = list(rows)
    # Days before the yard existed must not count as idle days.
    born_ms = min([row[2] for row in rows] + [r.job.submitted_ms for r in state.jobs.values()], default=0)
    asked = replace(asked, from_ms=min(max(asked.from_ms, born_ms), asked.until_ms - 1))
    history = make_recorded(rows, state, asked.from_ms, asked.until_ms)
    before_settings = state.settings
    pools, away = _fleet(state)
    lacks = dict(state.nodes.lacks)
    doomed = _never(state, asked)
    # The copy of the yard is no longer needed; each simulation builds its own, with a clock that begins at 0.
    day = asked.until_ms // DAY_MS
    sides = [
        _simulated(history, pools, hold_prices(settings, day), lacks, name, progress)
        for name, settings in (("as it is", before_settings), ("as it would be", asked.settings))
    ]
    tenants = _tenants(history, sides, asked.changed)
    spec_milli = [state.shape_of(spec.ask).gpu_milli for spec in history.trace.specs]
    jobs = sum(history.counted)
    found: PreviewFigures = {
        "from_ms": asked.from_ms,
        "until_ms": asked.until_ms,
        "jobs": jobs,
        "live": history.live,
        "all": {"tenant": "all", **_compared(history, sides, lambda _row: True)},
        "tenants": tenants,
        "sizes": _sizes(history, sides, [asked.sizes.name_of(milli) for milli in spec_milli], asked.sizes),
        "utilisation": [_utilisation(history, side) for side in sides],
        "preemptions": [side.preemptions for side in sides],
        "timeouts": [side.timeouts for side in sides],
        "never": [side.rejected for side in sides],
        "unfinished": [side.unfinished for side in sides],
        "check": _check(history, sides[0], asked.since_ms - asked.from_ms),
        "cpu_s": round(sum(side.cpu_s for side in sides), 3),
    }
    notes = _notes(asked, history, before_settings, found, away, doomed)
    return {**found, "sentence": preview_text(found), "notes": notes}


def _fleet(state: State) -> tuple[list[Pool], list[str]]:
    """Nodes that take jobs now, and the names of those that do not."""
    nodes: dict[tuple[str, str], list[Node]] = {}
    away = []
    for number, node in enumerate(state.nodes.node):
        if state.nodes.down[number] or state.nodes.cordoned[number]:
            away.append(node.name)
        else:
            nodes.setdefault((node.cluster, node.pool), []).append(node)
    return [
        Pool(pool, cluster, Market.RESERVED, tuple(each)) for (cluster, pool), each in nodes.items()
    ], away


def _never(state: State, asked: PreviewRequest) -> list[str]:
    """Labels of waiting jobs that could start now or later, but never under the new settings."""
    waiting = [record for record in state.jobs.values() if record.phase is None]
    could = [record for record in waiting if _could_start(state, record)]
    apply(state, ConfigSet(state.now_ms, asked.settings))
    return [record.job.label for record in could if not _could_start(state, record)]


def _could_start(state: State, record: JobRecord) -> bool:
    return impossible_reason(state, record.job.spec, record.limit_ms) is None


def _simulated(
    history: Recorded, pools: list[Pool], settings: Settings, lacks: Lacks, name: str, progress: Progress
) -> Result:
    policy = registry.build(settings.policy)
    simulation = Simulation(history.trace, pools, settings, policy, lacks=lacks)
    return align_columns(simulation.run(lambda done, jobs: progress(name, done, jobs)))


# -- figures ---------------------------------------------------------------------------------------------------------


def _tenants(history: Recorded, sides: list[Result], changed: tuple[str, ...]) -> list[ComparedTenantReply]:
    """Tenants at the top, and those further down that the change names."""
    tops = {
        path.partition("/")[0] for path, counts in zip(history.tenant, history.counted, strict=True) if counts
    }
    deeper = {path for path in changed if "/" in path}
    return [
        {"tenant": path, **_compared(history, sides, _below(path, history)), "changed": path in changed}
        for path in sorted({*tops, *deeper}, key=lambda path: path.split("/"))
    ]


def _below(path: str, history: Recorded) -> Wanted:
    tenants = history.tenant
    return lambda row: tenants[row] == path or tenants[row].startswith(f"{path}/")


def _sizes(
    history: Recorded, sides: list[Result], size_of_spec: list[str], sizes: SizeRanges
) -> list[ComparedSizeReply]:
    """By size of job, those of which any was recorded."""
    spec = history.trace.spec

    def of(name: str) -> Wanted:
        return lambda row: size_of_spec[spec[row]] == name

    found: list[ComparedSizeReply] = [
        {"size": name, **_compared(history, sides, of(name))} for name in sizes.names
    ]
    return [each for each in found if each["jobs"]]


def _compared(history: Recorded, sides: list[Result], wanted: Wanted) -> ComparedWaits:
    """Waits of some jobs, of those that ended on both sides. None: there is none."""
    both = set(sides[0].job_id) & set(sides[1].job_id)
    waits = [_waits(history, side, both, wanted) for side in sides]
    jobs = sum(counts and wanted(row) for row, counts in enumerate(history.counted))
    return {
        "jobs": jobs,
        "compared": len(waits[0]),
        "wait_median_ms": [find_nearest_rank(each, 50) if each else None for each in waits],
        "wait_mean_ms": [sum(each) // len(each) if each else None for each in waits],
        "wait_p95_ms": [find_nearest_rank(each, 95) if each else None for each in waits],
    }


def _waits(history: Recorded, side: Result, both: set[int], wanted: Wanted) -> list[int]:
    ended = zip(side.job_id, side.wait_ms, strict=False)
    return sorted(
        wait_ms
        for job_id, wait_ms in ended
        if job_id in both and history.counted[job_id - 1] and wanted(job_id - 1)
    )


def _utilisation(history: Recorded, side: Result) -> float | None:
    """GPU time used within the recorded days, as a part of what the fleet offered."""
    offered = side.capacity_milli * history.span_ms
    if offered <= 0:
        return None
    used = 0
    for job_id, wait_ms, jct_ms, milli in zip(
        side.job_id, side.wait_ms, side.jct_ms, side.gpu_milli, strict=False
    ):
        end_ms = history.trace.submit_ms[job_id - 1] + jct_ms
        start_ms = end_ms - (jct_ms - wait_ms)
        used += milli * max(0, min(end_ms, history.span_ms) - min(start_ms, history.span_ms))
    return round(used / offered, 6)


def _check(history: Recorded, side: Result, since_ms: int) -> CheckReply:
    """What really happened against its simulation, over jobs that started and were not tried again.

    Only jobs count that came after the present settings and before the first job that still waits.
    """
    until_ms = history.settled_ms
    pairs = [
        (history.waited_ms[job_id - 1], wait_ms)
        for job_id, wait_ms in zip(side.job_id, side.wait_ms, strict=False)
        if history.waited_ms[job_id - 1] != UNKNOWN
        and since_ms <= history.trace.submit_ms[job_id - 1] < until_ms
    ]
    count = len(pairs)
    return {
        "jobs": count,
        "really_mean_ms": sum(real for real, _ in pairs) // count if count else None,
        "simulated_mean_ms": sum(simulated for _, simulated in pairs) // count if count else None,
    }


# -- notes -----------------------------------------------------------------------------------------------------------


def _notes(
    asked: PreviewRequest,
    history: Recorded,
    before: Settings,
    found: PreviewFigures,
    away: list[str],
    doomed: list[str],
) -> list[str]:
    """What the figures do not say."""
    notes = []
    if doomed:
        jobs = (
            f"job {doomed[0]}, which waits,"
            if len(doomed) == 1
            else f"jobs {names_text(doomed)}, which wait,"
        )
        notes.append(f"{jobs} could never start under it")
    if found["jobs"] < FEW_JOBS:
        notes.append(f"it stands on {count_text(found['jobs'], 'job')}: too few to say much")
    if asked.shortened:
        notes.append("more was recorded than is simulated: only the latest part of it counts")
    ends = {
        "could never start": found["never"],
        "reach their time limit": found["timeouts"],
        "never end": found["unfinished"],
    }
    for text, (old, new) in ends.items():
        if new != old:
            notes.append(f"jobs that {text}: {old} → {new}")
    unknown = _strangers(history, asked.settings)
    if unknown:
        names = ", ".join(sorted(set(unknown))[:5])
        notes.append(
            f"{count_text(len(unknown), 'job')} of tenants that it does not have ({names}) "
            "count with weight 1; new ones would be refused"
        )
    if asked.since_ms > asked.from_ms:
        span = span_text(asked.until_ms - asked.since_ms).removeprefix("the last ")
        span = span if span[0].isdigit() else f"one {span}"
        notes.append(f"the present configuration is {span} old; it is simulated for the whole time")
    if away:
        notes.append(f"without nodes that are down or drained: {', '.join(away[:5])}")
    if any(tenant.budget for tenant in (*before.tenants, *asked.settings.tenants)) or asked.settings.budgets:
        notes.append("budgets begin unspent")
    check = found["check"]
    real, simulated = check["really_mean_ms"], check["simulated_mean_ms"]
    if real is not None and simulated is not None:
        text = (
            f"check: {count_text(check['jobs'], 'job')} really waited {alone_text(real)} on average, "
            f"{alone_text(simulated)} in the simulation"
        )
        low, high = sorted((real, simulated))
        if high > OFF_FACTOR * low and high - low > MINUTE_MS:
            text += ": the simulation is off, take the difference for a direction only"
        notes.append(text)
    return notes


def _strangers(history: Recorded, settings: Settings) -> list[str]:
    tops = {tenant.path.partition("/")[0] for tenant in settings.tenants}
    if not tops:
        return []
    found = [
        path.partition("/")[0] for path, counts in zip(history.tenant, history.counted, strict=True) if counts
    ]
    return [top for top in found if top not in tops]
