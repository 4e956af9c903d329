"""The jobs in the queue that block a job which has quota and room, found in the plan that is then made."""

from collections.abc import Iterable

from gpuyard.core.explain.admission import ask_text
from gpuyard.core.explain.remedies import ask_less_time
from gpuyard.core.explain.what_if import Trial
from gpuyard.core.jobs.queue import walk_in_order
from gpuyard.core.phrases import choose_verb, count_text, names_text
from gpuyard.core.state.state import State
from gpuyard.model import Cure, EndJobs, LeaveLine, Plan, Reason, ReasonCode, Remedy
from gpuyard.model.units import ENDLESS_MS, NO_LIMIT_MS
from gpuyard.quantities import span_words

_FOR_QUOTA = frozenset({ReasonCode.LIMIT, ReasonCode.BORROW, ReasonCode.RUNNING_JOBS, ReasonCode.PER_USER})
_NARROW_ROUNDS = 3
"""How often only the jobs that the plan names are taken. After that: all examined jobs, all ahead, all waiting."""


def blocking_reasons(trial: Trial, number: int) -> list[Reason]:
    """The jobs in the queue that are in the way, on the `number`th try."""
    plan = trial.decide()
    own = [stop.job_id for stop in plan.stops if stop.for_job == trial.job_id]
    if own:
        return [victims_reason(trial.state, own)]
    code, job_ids = _named(trial, plan) if number < _NARROW_ROUNDS else (ReasonCode.AHEAD, [])
    if not job_ids and number <= _NARROW_ROUNDS:
        job_ids = [job_id for job_id in plan.examined if job_id != trial.job_id]
    if not job_ids and number <= _NARROW_ROUNDS + 1:
        job_ids = _ahead(trial)
    if not job_ids:
        job_ids = [job_id for job_id, r in trial.state.jobs.items() if r.phase is None]
    job_ids = sorted({job_id for job_id in job_ids if job_id != trial.job_id})
    if not job_ids:
        return []
    return [line_reason(trial, plan, code, job_ids)]


def victims_reason(state: State, job_ids: Iterable[int]) -> Reason:
    """The reason that jobs are to be stopped for it."""
    stops = sorted(job_ids)
    labels = names_text([state.jobs[job_id].job.label for job_id in stops])
    text = f"{_jobs(stops, labels)} {choose_verb(stops, 'is', 'are')} to be stopped for it"
    lifted_by = (Remedy(Cure.JOBS_STOPPED),)
    return Reason(ReasonCode.EARMARK, "preemption", text, False, lifted_by, EndJobs(tuple(stops)))


def _named(trial: Trial, plan: Plan) -> tuple[ReasonCode, list[int]]:
    """The jobs that the plan itself names as blockers, and how they block."""
    state, job_id = trial.state, trial.job_id
    codes = {each: ReasonCode(code) for each, code in zip(plan.examined, plan.codes, strict=True)}
    said = codes.get(job_id, ReasonCode.NOT_EXAMINED)
    promised = [r.job_id for r in plan.reservations if r.job_id != job_id]
    if said in (ReasonCode.RESERVATION, ReasonCode.NOT_EXAMINED) and promised and not plan.starts:
        # A job that was not examined has the same ask as one that was refused because of these promises.
        return ReasonCode.RESERVATION, promised
    if said is ReasonCode.QUOTA_AHEAD:
        mine = set(state.tenants.chain[trial.record.party])
        alike = [e for e in codes if e != job_id and mine & set(state.tenants.chain[state.jobs[e].party])]
        waits = [each for each in alike if codes[each] in _FOR_QUOTA]
        if waits:
            return said, waits
    if said is ReasonCode.NOT_EXAMINED and trial.policy.backfill.name == "none" and plan.examined:
        last = plan.examined[-1]
        if codes[last] in (ReasonCode.ROOM, ReasonCode.RESERVATION):
            return ReasonCode.HEAD_BLOCKED, [last]
    # They start first, or room is made for them: what is left after that is not enough.
    served = [start.job_id for start in plan.starts] + [earmark.job_id for earmark in plan.earmarks]
    kept = list(state.earmarks)
    return ReasonCode.AHEAD, served or kept


def _ahead(trial: Trial) -> list[int]:
    """All jobs before it in the queue."""
    found = []
    for other in walk_in_order(trial.state.queue):
        if other.id == trial.job_id:
            break
        found.append(other.id)
    return found


def line_reason(trial: Trial, plan: Plan, code: ReasonCode, job_ids: list[int]) -> Reason:
    """The reason that certain waiting jobs block it."""
    state, now_ms, record = trial.state, trial.now_ms, trial.record
    names = tuple([state.jobs[job_id].job.label for job_id in job_ids])
    labels = names_text(names)
    jobs, started = _jobs(job_ids, labels), Remedy(Cure.JOBS_START, names)
    lift, shorter = LeaveLine(tuple(job_ids)), ask_less_time(record)
    if code is ReasonCode.RESERVATION:
        runs = (
            "has no time limit"
            if record.estimate_ms >= NO_LIMIT_MS
            else f"may run {span_words(record.estimate_ms)}"
        )
        text = f"what it could use is promised to {_promised(state, plan, job_ids, jobs, now_ms)}, and this job {runs}"
        return Reason(code, "backfill", text, False, (shorter, started), lift)
    if code is ReasonCode.QUOTA_AHEAD:
        text = (
            f"{jobs}, ahead of it, {choose_verb(job_ids, 'waits', 'wait')} for quota that this one would use"
        )
        return Reason(code, "order", text, False, (started, shorter), lift)
    if code is ReasonCode.HEAD_BLOCKED:
        text = (
            f"{jobs} {choose_verb(job_ids, 'is', 'are')} ahead of it and "
            f"{choose_verb(job_ids, 'waits', 'wait')} for room; policy {trial.policy.spec.name} lets nobody overtake"
        )
        return Reason(code, "order", text, False, (started,), lift)
    text = (
        f"{count_text(len(job_ids), 'job')} {choose_verb(job_ids, 'comes', 'come')} before it and "
        f"{choose_verb(job_ids, 'takes', 'take')} what there is: {labels}"
    )
    return Reason(code, "order", text, False, (started,), lift)


def _promised(state: State, plan: Plan, job_ids: list[int], jobs: str, now_ms: int) -> str:
    """The jobs to which room is promised; for the first of them, what and when."""
    due = [(r.at_ms, r.job_id) for r in plan.reservations if r.job_id in job_ids]
    if not due:
        return jobs
    at_ms, first = min(due)
    other = state.jobs[first]
    what = ask_text(other.shape)
    if at_ms - now_ms < ENDLESS_MS:
        what += f" in {span_words(max(0, at_ms - now_ms))}"
    return f"{jobs} ({what})" if len(job_ids) == 1 else f"{jobs} (first job {other.job.label}: {what})"


def _jobs(job_ids: list[int], labels: str) -> str:
    return f"job{'s' if len(job_ids) > 1 else ''} {labels}"
