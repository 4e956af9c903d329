"""Who in line is in a job's way, once it has the quota and the room: found in the plan that is made then."""

from gpuyard.core.admission import ask_text
from gpuyard.core.lifting import Trial
from gpuyard.core.line import in_order
from gpuyard.core.words import count_text, names_text, span
from gpuyard.model import EndJobs, LeaveLine, Plan, Reason, ReasonCode
from gpuyard.model.units import NO_LIMIT_MS

_FOR_QUOTA = frozenset({ReasonCode.LIMIT, ReasonCode.BORROW, ReasonCode.RUNNING_JOBS})
_NARROW_ROUNDS = 3
"""So often those are taken that the plan names. After that all who were looked at, all ahead, and all who wait."""


def in_line(trial: Trial, number: int) -> list[Reason]:
    """Those who are in the way in line: the `number`th time that someone is."""
    plan = trial.decide()
    own = [stop.job_id for stop in plan.stops if stop.for_job == trial.job_id]
    if own:
        labels = names_text([trial.state.jobs[job_id].job.label for job_id in own])
        text = f"job{'s' if len(own) > 1 else ''} {labels} {'are' if len(own) > 1 else 'is'} to be stopped for it"
        lifted_by = "the engine's word that they have stopped"
        lift = EndJobs(tuple(sorted(own)))
        return [Reason(ReasonCode.EARMARK, "preemption", text, False, lifted_by, lift)]
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
    return [_reason(trial, plan, code, job_ids)]


def _named(trial: Trial, plan: Plan) -> tuple[ReasonCode, list[int]]:
    """Whom the plan itself names as being in the way, and how."""
    state, job_id = trial.state, trial.job_id
    codes = {each: ReasonCode(code) for each, code in zip(plan.examined, plan.codes, strict=True)}
    said = codes.get(job_id, ReasonCode.NOT_EXAMINED)
    promised = [r.job_id for r in plan.reservations if r.job_id != job_id]
    if said is ReasonCode.RESERVATION and promised:
        return said, promised
    if said is ReasonCode.QUOTA_AHEAD:
        mine = set(state.tenants.chain[trial.record.leaf])
        alike = [e for e in codes if e != job_id and mine & set(state.tenants.chain[state.jobs[e].leaf])]
        waits = [each for each in alike if codes[each] in _FOR_QUOTA]
        if waits:
            return said, waits
    if said is ReasonCode.NOT_EXAMINED and trial.policy.backfill.name == "none" and plan.examined:
        last = plan.examined[-1]
        if codes[last] in (ReasonCode.ROOM, ReasonCode.RESERVATION):
            return ReasonCode.HEAD_BLOCKED, [last]
    # They start first, or room is made for them: what is left after that does not do.
    served = [start.job_id for start in plan.starts] + [earmark.job_id for earmark in plan.earmarks]
    kept = list(state.earmarks)
    return ReasonCode.AHEAD, served or kept


def _ahead(trial: Trial) -> list[int]:
    """All who are before it in line."""
    found = []
    for other in in_order(trial.state.queue):
        if other.id == trial.job_id:
            break
        found.append(other.id)
    return found


def _reason(trial: Trial, plan: Plan, code: ReasonCode, job_ids: list[int]) -> Reason:
    state, now_ms, record = trial.state, trial.now_ms, trial.record
    labels = names_text([state.jobs[job_id].job.label for job_id in job_ids])
    jobs = f"job{'s' if len(job_ids) > 1 else ''} {labels}"
    lift = LeaveLine(tuple(job_ids))
    if code is ReasonCode.RESERVATION:
        first = min([r for r in plan.reservations if r.job_id in job_ids], key=lambda r: (r.at_ms, r.job_id))
        asks, due = ask_text(state.jobs[first.job_id].shape), span(max(0, first.at_ms - now_ms))
        runs = (
            "has no time limit"
            if record.estimate_ms >= NO_LIMIT_MS
            else f"may run {span(record.estimate_ms)}"
        )
        whom = f"job {labels} is promised {asks} in {due}"
        if len(job_ids) > 1:
            label = state.jobs[first.job_id].job.label
            whom = f"{len(job_ids)} jobs are promised theirs, first job {label}: {asks} in {due}"
        text = f"what it could use is promised: {whom}, and this job {runs}"
        return Reason(code, "backfill", text, False, f"a shorter time limit, or the start of {jobs}", lift)
    if code is ReasonCode.QUOTA_AHEAD:
        text = f"{jobs}, ahead of it, {_verb(job_ids, 'waits', 'wait')} for quota that this one would use"
        return Reason(code, "order", text, False, f"{jobs} starting, or a shorter time limit", lift)
    if code is ReasonCode.HEAD_BLOCKED:
        text = (
            f"{jobs} {_verb(job_ids, 'is', 'are')} ahead of it and {_verb(job_ids, 'waits', 'wait')} for room; "
            f"policy {trial.policy.spec.name} lets nobody overtake"
        )
        return Reason(code, "order", text, False, f"the start of {jobs}", lift)
    text = (
        f"{count_text(len(job_ids), 'job')} {_verb(job_ids, 'comes', 'come')} before it and "
        f"{_verb(job_ids, 'takes', 'take')} what there is: {labels}"
    )
    return Reason(code, "order", text, False, f"the start of {jobs}", lift)


def _verb(job_ids: list[int], one: str, several: str) -> str:
    return one if len(job_ids) == 1 else several
