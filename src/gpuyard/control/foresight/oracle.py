"""What lies ahead of one job, worked out on a state of its own, in a process of its own: the yard goes on meanwhile."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpuyard.control.replica.thought import Own
from gpuyard.control.wording import help_flags, help_text, remedies_text
from gpuyard.core import State, apply, decide
from gpuyard.core.estimate.after import stuck
from gpuyard.core.estimate.estimate import estimate
from gpuyard.core.explain.explain import explain
from gpuyard.core.explain.long_line import is_long, shorten
from gpuyard.core.explain.quota_reasons import without_names
from gpuyard.core.fleet.bits import positions
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.policy import Policy
from gpuyard.model import Event, JobState
from gpuyard.sim.forecast import RUNS, Past, forecast
from gpuyard.sim.pastjobs import LEVELS, Arrivals, PastJob, RunTimes

LONG_RUNS = 10
"""Runs forward with a part of a long line: they tell less, and more of them would not tell more."""


@dataclass(frozen=True, slots=True)
class Question:
    """A job that is there or is to be, and what is known of the past."""

    now_ms: int
    job_id: int
    past: tuple[PastJob, ...]
    seed: int
    budget_s: float
    events: tuple[Event, ...] = ()
    """What is to happen first: the submission of a job that is only thought of."""
    all_tenants: bool = True
    """Whether the answer may name every tenant."""


@dataclass(slots=True)
class Foresight:
    """What was found."""

    state: str
    started_ms: int = 0
    runs: int = 0
    cut_off: bool = False
    """Not even one run forward came to its end within the budget."""
    waits_ms: list[int] = field(default_factory=list)
    """Of the runs in which it started."""
    left_out: int = 0
    """Jobs that wait and were left out of the runs forward, because they are too many; so were those still to come."""
    left_out_ahead: int = 0
    """Those of them that are ahead of it: it starts later than in the runs."""
    bound_ms: int | None = None
    """When it starts if everything that runs takes its whole time limit."""
    how: str = ""
    level: str = ""
    history_jobs: int = 0
    run_ms: int = -1
    """How long it is expected to run; -1: not known."""
    limit_ms: int = 0
    gpu_milli: int = 0
    model: str = ""
    """The GPU model it would get, as far as that can be told."""
    nodes: list[dict[str, Any]] = field(default_factory=list)
    """Where it would start now; empty: it would not."""
    reasons: list[dict[str, str]] = field(default_factory=list)
    helps: list[str] = field(default_factory=list)


def foresee(
    own: Own, question: Question, clock_s: Callable[[], float] = time.process_time
) -> Foresight | None:
    """Answer a question, within its budget; None: the job is gone."""
    started_s = clock_s()
    # A job that waits for an ended one learns of it at its arrival; a later one waits for no other.
    state, policy = own.state, own.policy
    for event in question.events:
        apply(state, event)
    now_ms = max(question.now_ms, state.now_ms)
    record = state.jobs.get(question.job_id)
    if record is None:
        return None
    found = _about(state, record)
    if record.state is not JobState.PENDING:
        found.started_ms = record.started_ms
        return found
    past = _past(state, question.past, now_ms)
    spec, milli, limit_ms = record.job.spec, record.shape.gpu_milli, record.limit_ms
    found.run_ms, level = past.run_times.middle(spec, milli, limit_ms)
    found.level, found.history_jobs = LEVELS[level], past.run_times.count
    found.bound_ms, found.how = estimate(state, policy, now_ms, record)
    _explained(found, state, policy, now_ms, record, question.all_tenants)
    if record.held or not record.shape.ways or stuck(state, record):
        # No run forward would release it.
        return found
    state.ends = {}
    cut = shorten(state, record)
    found.left_out, found.left_out_ahead = cut.left_out, cut.ahead

    def enough() -> bool:
        return clock_s() - started_s > question.budget_s

    most = LONG_RUNS if cut.left_out else RUNS
    runs = forecast(state, policy, now_ms, [record.id], past, question.seed, runs=most, enough=enough)
    found.runs, found.waits_ms, found.cut_off = runs.runs, runs.waits_ms[record.id], not runs.runs
    return found


def _about(state: State, record: JobRecord) -> Foresight:
    ways = sorted(record.shape.ways, key=lambda way: (way.rate, way.index))
    names = {number: name for name, number in state.models.items()}
    return Foresight(
        record.state.value,
        limit_ms=record.limit_ms,
        gpu_milli=record.shape.gpu_milli,
        model=names[ways[0].model] if ways else "",
    )


def _past(state: State, ended: tuple[PastJob, ...], now_ms: int) -> Past:
    """What there is to draw from. For a queue that is too long to run forward, no new jobs are drawn either."""
    if is_long(state):
        return Past(RunTimes(ended), Arrivals((), now_ms))
    return Past.of((*ended, *_live(state)), now_ms)


def _live(state: State) -> list[PastJob]:
    """Live jobs as part of the past: they came, and how long they run is not known yet."""
    return [
        PastJob(r.job.submitted_ms, r.job.spec, r.shape.gpu_milli, r.limit_ms, -1)
        for r in state.jobs.values()
        if not r.job.spec.elsewhere
    ]


def _explained(
    found: Foresight, state: State, policy: Policy, now_ms: int, record: JobRecord, all_tenants: bool
) -> None:
    """Where it would start now, or everything that is in its way."""
    plan = decide(state, policy, now_ms)
    for start in plan.starts:
        if start.job_id == record.id:
            home = state.nodes
            found.nodes = [
                {"node": home.node[grant.node].name, "gpus": list(positions[grant.gpus])}
                for grant in start.grants
            ]
            found.model = home.node[start.grants[0].node].gpu_model if found.gpu_milli else ""
            return
    why = explain(state, policy, record.id, now_ms)
    if why is not None:
        reasons = why.reasons if all_tenants else [without_names(reason) for reason in why.reasons]
        found.reasons = [
            {"by": r.by, "text": r.text, "lifted_by": remedies_text(r.lifted_by)} for r in reasons
        ]
        found.helps = [f"{help_text(each)} ({help_flags(each)})" for each in why.helps]
