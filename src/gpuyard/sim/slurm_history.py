"""A site's history as a trace: what each job held, for as long as it ran, from the time when it could have started.

Each try is a job of the trace: a requeued job held its GPUs twice. A job that may not start yet (held, waiting for
another, a begin time, or just requeued) counts from its eligible time in Slurm: before that it could not have started.
Jobs that never ran and, unless requested, jobs without GPUs are left out and counted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuyard.engines.slurm.site.accounting import JobRow
from gpuyard.errors import BadInput
from gpuyard.model import JobSpec
from gpuyard.sim.trace import Trace
from gpuyard.sim.traces.builder import Builder
from gpuyard.sim.traces.cells import RowError, name, parse_tenant
from gpuyard.sim.traces.sacct import ask_of


@dataclass(slots=True)
class History:
    """A trace, the row behind each of its jobs, and what was left out."""

    trace: Trace
    rows: list[JobRow] = field(default_factory=list)
    """In the order of the trace."""
    never_ran: int = 0
    without_gpus: int = 0
    later: int = 0
    """Jobs that could not have started when they were submitted."""
    again: int = 0
    """Further tries of jobs that had been tried before."""
    running: int = 0
    """Jobs that have not ended: they count with their run time so far."""
    broken: list[str] = field(default_factory=list)


def make_history(
    rows: Sequence[JobRow],
    place: Callable[[JobRow], str],
    models: Mapping[str, str],
    *,
    classes: Mapping[str, str] | None = None,
    cpu_jobs: bool = False,
) -> History:
    """The trace of these rows.

    `place` gives the tenant of a job; `models` maps the models of the forms to names, `classes` maps QOS names.
    """
    builder = Builder("sacct")
    builder.epoch_ms = 0
    kept: list[tuple[int, int, JobRow]] = []
    found = History(Trace("slurm"))
    seen: set[str] = set()
    for row in sorted(rows, key=lambda each: (each.submit_ms, each.id, each.start_ms)):
        if not row.ran:
            found.never_ran += 1
            continue
        if not row.held.gpus and not cpu_jobs:
            found.without_gpus += 1
            continue
        try:
            spec = _spec(row, place, models, classes or {})
        except RowError as wrong:
            found.broken.append(f"job {row.label}: {wrong}")
            continue
        ready_ms = min(row.start_ms, max(row.submit_ms, row.eligible_ms))
        found.later += ready_ms > row.submit_ms
        found.again += row.label in seen
        seen.add(row.label)
        found.running += row.live
        run_ms = row.elapsed_ms if row.live else max(0, row.end_ms - row.start_ms - row.suspended_ms)
        builder.add(builder.index(spec), ready_ms, run_ms, row.limit_ms)
        kept.append((ready_ms, len(kept), row))
    if not kept:
        raise BadInput(
            f"the history has no job to replay: {found.never_ran} never ran, {found.without_gpus} had no GPUs",
            "Ask for more days with --since, or keep jobs without GPUs with --keep-cpu-jobs.",
        )
    found.trace = builder.finish("slurm")
    found.rows = [row for _, _, row in sorted(kept, key=lambda each: each[:2])]
    return found


def _spec(
    row: JobRow, place: Callable[[JobRow], str], models: Mapping[str, str], classes: Mapping[str, str]
) -> JobSpec:
    if not row.held.gpus and row.held.shared:
        raise RowError("shares GPUs (gres/shard, gres/mps), and how much of one is not told")
    asked = tuple(dict.fromkeys(models.get(model, model) for model in row.asked.models))
    klass = name(classes.get(row.qos, row.qos), "QOS")
    return JobSpec(parse_tenant(place(row), "Account/User"), ask_of(row.held, asked), klass=klass)
