"""Why a job waits: all reasons, with numbers, from the same pass that decides.

A pass stops at the first thing that forbids a start, because that is all it needs. A user needs all of them, how far
each is from being lifted, and when the job could start. That is worked out here, on demand, for one job.
"""

from dataclasses import dataclass

from gpuyard.core.estimate.estimate import estimate
from gpuyard.core.estimate.forced_start import find_forced_start
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.core.explain.line_reasons import (
    earmark_reasons,
    fallback_reason,
    line_reasons,
    reservation_reasons,
    set_aside_reasons,
    victims_reason,
)
from gpuyard.core.explain.quota_reasons import quota_reasons
from gpuyard.core.explain.room_reasons import room_reasons
from gpuyard.core.explain.suggestions import Help, find_helps
from gpuyard.core.jobs.queue import count_ahead, list_ids_in_turn
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import names_text
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.schedule.policy import Backfill, Policy
from gpuyard.core.schedule.probe import probe_turn
from gpuyard.core.state.state import State
from gpuyard.model import AttemptState, Grant, JobState, Plan, Reason, ReasonCode
from gpuyard.model.units import ENDLESS_MS
from gpuyard.quantities import span_words

BY_WEIGHT = (
    ReasonCode.UNSUPPORTED,
    ReasonCode.NEVER_FITS,
    ReasonCode.WALL,
    ReasonCode.JOB_TOO_LARGE,
    ReasonCode.NO_TIME_LIMIT,
    ReasonCode.HELD,
    ReasonCode.DEPENDENCY,
    ReasonCode.BEGIN,
    ReasonCode.EARMARK,
    ReasonCode.LIMIT,
    ReasonCode.BORROW,
    ReasonCode.RUNNING_JOBS,
    ReasonCode.PER_USER,
    ReasonCode.BUDGET,
    ReasonCode.HELD_BACK,
    ReasonCode.QUOTA_AHEAD,
    ReasonCode.ROOM,
    ReasonCode.RESERVATION,
    ReasonCode.HEAD_BLOCKED,
    ReasonCode.AHEAD,
    ReasonCode.NOT_EXAMINED,
)
"""First what can never change, last what is only a matter of the job's turn."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known about one live job."""

    job_id: int
    label: str
    state: JobState
    ahead: int
    """Jobs before it in the policy's order; 0 for the first job and for a job that is not in the queue."""
    waiting: int
    """How many jobs are in the queue."""
    reasons: tuple[Reason, ...]
    """All reasons, the weightiest first. Empty: the job starts now, or has started."""
    start_ms: int | None
    """When it starts if running jobs end as expected and no other job comes in between; None: unknown."""
    how: str
    """How that time was found."""
    helps: tuple[Help, ...] = ()
    """What would let it start now; each was tried."""
    implied: tuple[Reason, ...] = ()
    """What else is true, but is lifted together with the reasons and so is no blocker by itself."""
    judged: bool = False
    """Whether each reason has its lift, and all lifts were tried together and with each one left out."""
    left_out: int = 0
    """Waiting jobs that were left out of the judgement, because there are too many to try things with all of them."""


def explain(state: State, policy: Policy, job_id: int, now_ms: int) -> Explanation | None:
    """All reasons why a job waits; None if there is no live job of that id."""
    record = state.jobs.get(job_id)
    if record is None:
        return None
    label, waiting = record.job.label, state.queue.count
    if record.state is not JobState.PENDING:
        how = _running(state, record, now_ms)
        return Explanation(job_id, label, record.state, 0, waiting, (), record.started_ms, how)
    turn = _Turn(record)
    plan = probe_turn(state, policy, now_ms, record, turn.look)
    before = _before(state, policy, record) if job_id not in state.deferred else 0
    if any(start.job_id == job_id for start in plan.starts):
        return Explanation(job_id, label, record.state, before, waiting, (), now_ms, "it starts now")
    reasons = _reasons(state, policy, now_ms, turn, plan, before)
    start_ms, how = estimate(state, policy, now_ms, record)
    promised_ms = _promised(state, record, plan, now_ms)
    if promised_ms is not None and promised_ms != start_ms:
        start_ms, how = promised_ms, "so the plan foresees, if what runs ends no later than promised"
    by_force = (
        None if promised_ms is not None and plan.stops else find_forced_start(state, policy, now_ms, record)
    )
    if by_force is not None and (start_ms is None or by_force.at_ms < start_ms):
        start_ms, how = by_force
    return Explanation(job_id, label, record.state, before, waiting, reasons, start_ms, how, turn.helps)


def _before(state: State, policy: Policy, record: JobRecord) -> int:
    """How many jobs have their turns before it."""
    if state.tenants.softened and policy.spec.quotas:
        return list_ids_in_turn(state.queue).index(record.id)
    return count_ahead(state.queue, record)


def _promised(state: State, record: JobRecord, plan: Plan, now_ms: int) -> int | None:
    """What the plan itself foresees: the end of the jobs to be stopped for this one, or a promise."""
    graces = [state.jobs[stop.job_id].klass.grace_ms for stop in plan.stops if stop.for_job == record.id]
    if graces:
        return now_ms + max(graces)
    at = [r.at_ms for r in plan.reservations if r.job_id == record.id and r.at_ms - now_ms < ENDLESS_MS]
    return at[0] if at else None


class _Turn:
    """What was found at the job's turn."""

    def __init__(self, record: JobRecord) -> None:
        self.record = record
        self.found: tuple[Grant, ...] | ReasonCode = ReasonCode.NOT_EXAMINED
        self.reasons: list[Reason] = []
        self.helps: tuple[Help, ...] = ()

    def look(self, current: Pass, backfill: Backfill) -> None:
        """Collect the reasons from the pass."""
        record = self.record
        if record.earmark is not None:
            self.reasons = earmark_reasons(current, record)
            return
        rules = current.policy.rules
        may_force = any([rule.applies(current.state, record, current.now_ms) for rule in rules])
        self.reasons = [
            *quota_reasons(current, record, may_force),
            *room_reasons(current, record, may_force),
        ]
        # The pass asks this again at the job's turn; asking twice only changes what is remembered of refusals.
        self.found = backfill.place(record)
        if self.found is ReasonCode.RESERVATION:
            self.reasons += reservation_reasons(current, record)
        if type(self.found) is not tuple:
            self.helps = find_helps(current, backfill, record, self.found)


def _reasons(
    state: State, policy: Policy, now_ms: int, turn: _Turn, plan: Plan, before: int
) -> tuple[Reason, ...]:
    """All reasons, each once, by weight."""
    record = turn.record
    reasons = [] if type(turn.found) is tuple else list(turn.reasons)
    impossible = impossible_reason(state, record.job.spec, record.limit_ms) if not record.shape.ways else None
    if impossible is not None:
        reasons.append(impossible)
    reasons += set_aside_reasons(state, record, now_ms)
    reasons += victims_reason(state, record, plan)
    if not reasons and isinstance(turn.found, ReasonCode) and turn.found is not ReasonCode.NOT_EXAMINED:
        reasons.append(fallback_reason(turn.found))
    if record.id not in plan.examined and record.id not in state.deferred:
        reasons += line_reasons(state, policy, record, plan, before, needed=not reasons)
    unique = list(dict.fromkeys(reasons))
    return tuple(sorted(unique, key=lambda reason: BY_WEIGHT.index(reason.code)))


def _running(state: State, record: JobRecord, now_ms: int) -> str:
    """What a job that holds GPUs is doing."""
    where = names_text([state.nodes.node[grant.node].name for grant in record.grants])
    text = f"it has run for {span_words(now_ms - record.started_ms)} on {where}"
    if record.phase is AttemptState.SUSPENDED:
        return f"it has been suspended for {span_words(now_ms - record.suspended_ms)} and keeps its GPUs on {where}"
    if record.phase is AttemptState.UNKNOWN:
        return f"the engine does not know it; it keeps its GPUs on {where} until that is settled"
    if record.phase is AttemptState.STOPPING:
        cause = record.cause.value if record.cause else "asked to"
        other = state.jobs.get(record.for_job)
        for_whom = f", to make room for job {other.job.label}" if other else ""
        return f"{text} and is stopping ({cause}{for_whom})"
    if record.phase is AttemptState.STARTING:
        text = f"it has been starting for {span_words(now_ms - record.started_ms)} on {where}"
    left_ms = record.end_ms - now_ms
    if left_ms >= ENDLESS_MS:
        return f"{text}, without a time limit"
    return f"{text}, promised to end within {span_words(max(0, left_ms))}"
