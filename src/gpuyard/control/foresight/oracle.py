"""What lies ahead of one job, worked out on a state of its own, in a process of its own: the yard goes on meanwhile."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpuyard.control.replica.questions import QuestionContext
from gpuyard.control.wording import help_flags, help_text, remedies_text
from gpuyard.core import State, apply, decide
from gpuyard.core.estimate.dependencies_met import stuck_reason
from gpuyard.core.estimate.estimate import estimate
from gpuyard.core.explain.budget_use import behind_text
from gpuyard.core.explain.explain import explain
from gpuyard.core.explain.long_line import LOOKED_AT_MAX, is_long, shorten
from gpuyard.core.explain.quota_reasons import mask_names
from gpuyard.core.fleet.bits import positions
from gpuyard.core.fleet.shapes import charge_milli
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import count_text
from gpuyard.core.schedule.policy import Policy
from gpuyard.model import Cure, Event, JobState, Remedy
from gpuyard.model.units import DAY_MS, HOUR_MS, MILLI, NO_LIMIT_MS
from gpuyard.quantities import span_words
from gpuyard.sim.calibration import ONE, SCORES_MIN
from gpuyard.sim.forecast import HORIZON_MS, RUNS, Past, forecast
from gpuyard.sim.pastjobs import LEVELS, Arrivals, PastJob, RunTimes
from gpuyard.wire.replies.jobs import CostReply, EtaReply, InTheWayReply, PlaceReply

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
    looked_at_max: int = LOOKED_AT_MAX
    """How many jobs that do not run are run forward; of a longer queue a part."""


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
    """The GPU model it would get, as far as that can be told; of a job without GPUs, that of the node."""
    price_micro_usd_h: int = 0
    """What an hour of such a GPU costs; 0: it is not known."""
    charged_milli: int = 0
    """The part of such GPUs that it is charged for: its own, or more if it takes more of a node's cores or memory."""
    nodes: list[PlaceReply] = field(default_factory=list)
    """Where it would start now; empty: it would not."""
    reasons: list[InTheWayReply] = field(default_factory=list)
    helps: list[str] = field(default_factory=list)


def foresee(
    own: QuestionContext, question: Question, clock_s: Callable[[], float] = time.process_time
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
    found = _about(state, record, now_ms // DAY_MS)
    if record.state is not JobState.PENDING:
        found.started_ms = record.started_ms
        return found
    past = _past(state, question, now_ms)
    spec, milli, limit_ms = record.job.spec, record.shape.gpu_milli, record.limit_ms
    found.run_ms, level = past.run_times.middle(spec, milli, limit_ms)
    found.level, found.history_jobs = LEVELS[level], past.run_times.count
    found.bound_ms, found.how = estimate(state, policy, now_ms, record)
    _explained(found, state, policy, now_ms, record, question.all_tenants)
    if record.held or not record.shape.ways or stuck_reason(state, record):
        # No run forward would release it.
        return found
    if record.begin_ms - now_ms > HORIZON_MS:
        # No run forward goes on for so long.
        return found
    state.ends = {}
    cut = shorten(state, record, question.looked_at_max)
    found.left_out, found.left_out_ahead = cut.left_out, cut.ahead

    def enough() -> bool:
        return clock_s() - started_s > question.budget_s

    most = LONG_RUNS if cut.left_out else RUNS
    runs = forecast(state, policy, now_ms, [record.id], past, question.seed, runs=most, enough=enough)
    found.runs, found.waits_ms, found.cut_off = runs.runs, runs.waits_ms[record.id], not runs.runs
    return found


def _about(state: State, record: JobRecord, day: int) -> Foresight:
    ways = sorted(record.shape.ways, key=lambda way: (way.rate, way.index))
    names = {number: name for name, number in state.models.items()}
    found = Foresight(record.state.value, limit_ms=record.limit_ms, gpu_milli=record.shape.gpu_milli)
    if ways:
        found.model = names[ways[0].model]
        found.price_micro_usd_h = state.dearest(ways[0], day)
        kind = state.nodes.kinds[ways[0].kind]
        found.charged_milli = charge_milli(record.shape, kind) * record.shape.tasks
    return found


def _past(state: State, question: Question, now_ms: int) -> Past:
    """What there is to draw from. For a queue that is too long to run forward, no new jobs are drawn either."""
    if is_long(state, question.looked_at_max):
        return Past(RunTimes(question.past), Arrivals((), now_ms))
    return Past.of((*question.past, *_live(state)), now_ms)


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
            home, day = state.nodes, now_ms // DAY_MS
            found.nodes = [
                {"node": home.node[grant.node].name, "gpus": list(positions[grant.gpus])}
                for grant in start.grants
            ]
            dearest = max(start.grants, key=lambda grant: (state.gpu_price(grant.node, day), -grant.node))
            found.model = home.node[dearest.node].gpu_model
            found.price_micro_usd_h = state.gpu_price(dearest.node, day)
            found.charged_milli = sum(
                [charge_milli(record.shape, home.kind_of[grant.node]) * grant.tasks for grant in start.grants]
            )
            return
    why = explain(state, policy, record.id, now_ms)
    if why is not None:
        reasons = why.reasons if all_tenants else [mask_names(reason) for reason in why.reasons]
        found.reasons = [
            {"by": r.by, "text": r.text, "lifted_by": remedies_text(r.lifted_by)} for r in reasons
        ]
        if policy.spec.quotas and (behind := behind_text(state, record, now_ms)):
            # Not in its way by itself, but what it comes after is not what the order of the queue says.
            lifted = remedies_text((Remedy(Cure.NEXT_WINDOW), Remedy(Cure.HIGHER_BUDGET)))
            found.reasons.append({"by": "", "text": f"it goes {behind}", "lifted_by": lifted})
        found.helps = [f"{help_text(each)} ({help_flags(each)})" for each in why.helps]


def answer_of(
    now_ms: int,
    state: str,
    found: Foresight | None = None,
    told: Mapping[int, int | None] | None = None,
    stretch: Mapping[int, int] | None = None,
    scores: int = 0,
    seed: int | None = None,
) -> EtaReply:
    """The fields that every estimate has; without one, those of a job that does not wait."""
    found = found or Foresight(state)
    told, stretch = told or {}, stretch or {}
    starts = {f"p{percent}": None if w is None else now_ms + w for percent, w in told.items()}
    # Without some of those ahead of it a run tells no more than how early it could be at best.
    late = bool(found.left_out_ahead and found.runs)
    return {
        "job": None,
        "task": None,
        "state": state,
        "now_ms": now_ms,
        "started_ms": None,
        "starts_by_ms": starts if any(at is not None for at in starts.values()) and not late else None,
        "not_before_ms": starts.get("p50") if late else None,
        "left_out_ahead": found.left_out_ahead,
        "never_of_runs": found.runs - len(found.waits_ms),
        "runs": found.runs,
        "bound_ms": found.bound_ms,
        "how": _how(found, now_ms, stretch, scores) if found.runs else _by_limits(found),
        "basis": {
            "history_jobs": found.history_jobs,
            "level": found.level,
            "stretch": {f"p{percent}": value / ONE for percent, value in stretch.items()},
            "past_estimates": scores,
        },
        "seed": seed,
    }


def how_of(state: str, started_ms: int | None, now_ms: int) -> str:
    """What is to be said of a job that does not wait."""
    if started_ms and state in ("RUNNING", "SUSPENDED"):
        return f"it started {span_words(now_ms - started_ms)} ago"
    if started_ms:
        return f"it has ended: {state}"
    return f"it has ended without starting: {state}"


def _by_limits(found: Foresight) -> str:
    """How it was reached where nothing was run forward, and why nothing was."""
    if not found.cut_off:
        return found.how
    ahead = "so long a queue" if found.left_out else "the time until then"
    return f"{found.how}; no more can be told: {ahead} takes too long to run forward even once"


def _how(found: Foresight, now_ms: int, stretch: Mapping[int, int], scores: int) -> str:
    """How an estimate was reached, in sentences."""
    if found.waits_ms and not found.waits_ms[-1] and len(found.waits_ms) == found.runs:
        return "there is room for it now"
    drawn = (
        f"run times drawn from {count_text(found.history_jobs, 'ended job')}"
        if found.history_jobs
        else "no job has ended yet, so every job is taken to run to its time limit, "
        "and one without for an hour and as long again as it has run"
    )
    parts = [f"{found.runs} runs forward from now under the yard's own policy, {drawn}"]
    if found.left_out_ahead:
        left = f"{found.left_out_ahead:,} of the jobs ahead of it"
        parts.append(f"{left} were left out, and all that are still to come, so it starts later than that")
    elif found.left_out:
        parts.append(f"without {found.left_out:,} of the jobs behind it, and without those still to come")
    if found.runs > len(found.waits_ms):
        parts.append(f"in {found.runs - len(found.waits_ms)} of them it does not start within 14 days")
    if scores >= SCORES_MIN:
        factor = stretch.get(90, ONE) / ONE
        parts.append(f"stretched x{factor:.2f} by what the last {scores} estimates were worth")
    if found.bound_ms is None:
        parts.append(f"by time limits alone it cannot be told: {found.how}")
    elif found.bound_ms > now_ms:
        parts.append(f"if everything took its whole time limit: in {span_words(found.bound_ms - now_ms)}")
    return "; ".join(parts)


def estimate_cost(found: Foresight, tasks: int) -> CostReply:
    """What it costs at most, and what is to be expected, in micro-dollars; None: it cannot be told."""

    def micro_usd(run_ms: int) -> int:
        return found.price_micro_usd_h * found.charged_milli * run_ms * tasks // (MILLI * HOUR_MS)

    limited = found.limit_ms < NO_LIMIT_MS
    free = not found.price_micro_usd_h * found.charged_milli
    return {
        "gpu_model": found.model or None,
        "price_micro_usd_h": found.price_micro_usd_h,
        "charged_gpus": found.charged_milli / MILLI,
        "at_most_micro_usd": 0 if free else micro_usd(found.limit_ms) if limited else None,
        "expected_micro_usd": 0 if free else None if found.run_ms < 0 else micro_usd(found.run_ms),
        "expected_run_ms": None if found.run_ms < 0 else found.run_ms,
        "expected_from": found.level,
    }
