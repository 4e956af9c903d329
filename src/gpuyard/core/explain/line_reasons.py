"""Reasons that concern a job's turn: holds and begin times, promises to other jobs, and the jobs ahead."""

from gpuyard.core.explain.admission import ask_text
from gpuyard.core.explain.quota_reasons import quota_reasons
from gpuyard.core.explain.remedies import ask_less_time
from gpuyard.core.explain.room_reasons import model_name
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import count_text, names_text
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.schedule.policy import Policy
from gpuyard.core.schedule.profile import freed_ms
from gpuyard.core.state.dependencies import find_awaited
from gpuyard.core.state.state import State
from gpuyard.model import (
    AfterKind,
    AttemptState,
    BeginNow,
    Cure,
    EndJobs,
    Job,
    Lift,
    Plan,
    Reason,
    ReasonCode,
    ReleaseHold,
    Remedy,
    WithoutAfter,
)
from gpuyard.model.units import ENDLESS_MS
from gpuyard.quantities import span_words

_AFTER = {
    AfterKind.STARTED: "start",
    AfterKind.ENDED: "end",
    AfterKind.COMPLETED: "complete",
    AfterKind.FAILED: "fail",
    AfterKind.ALONE: "end",
}
_FOR_ROOM = frozenset({ReasonCode.ROOM, ReasonCode.RESERVATION})


def set_aside_reasons(state: State, record: JobRecord, now_ms: int) -> list[Reason]:
    """Reasons of a job that is not in the queue: a hold, dependencies, a begin time."""
    found = []
    if record.held:
        lifted_by = (Remedy(Cure.RELEASE, (record.job.label,)),)
        lift: Lift = ReleaseHold(record.id)
        found.append(Reason(ReasonCode.HELD, "hold", "it is on hold", False, lifted_by, lift))
    if record.doomed:
        text = f"it can never start: {record.doomed}"
        lift = WithoutAfter(record.id, tuple([after.job_id for after in record.job.spec.after]))
        lifted_by = (Remedy(Cure.SUBMIT_AGAIN),)
        found.append(Reason(ReasonCode.DEPENDENCY, "dependency", text, False, lifted_by, lift))
    elif record.pending:
        found += _after_reasons(state, record)
    begin_ms = record.begin_ms
    if begin_ms > now_ms:
        text = f"it asked not to start for another {span_words(begin_ms - now_ms)}"
        if begin_ms > record.job.begin_ms:
            text = f"its last attempt failed; it is tried again in {span_words(begin_ms - now_ms)}"
        lifted_by = (Remedy(Cure.TIME),)
        found.append(Reason(ReasonCode.BEGIN, "begin time", text, False, lifted_by, BeginNow(record.id)))
    elif record.id in state.deferred and not (record.held or record.pending or record.doomed):
        text = "its begin time has come, and it is about to join the line"
        found.append(Reason(ReasonCode.BEGIN, "begin time", text, False, (Remedy(Cure.NEXT_TICK),)))
    return found


def _after_reasons(state: State, record: JobRecord) -> list[Reason]:
    """The jobs it waits for: one reason each, the tasks of an array as one; if one job is enough, all as one."""
    groups: dict[tuple[int, AfterKind], tuple[list[int], list[Job]]] = {}
    for after in record.pending:
        jobs = [other.job for other in find_awaited(state, record, after)]
        array_id = 0 if after.kind is AfterKind.ALONE else jobs[0].array_id or jobs[0].id
        ids, others = groups.setdefault((array_id, after.kind), ([], []))
        ids.append(after.job_id)
        others += jobs
    waits = [
        (ids, jobs[0].array_id, _waited(jobs, kind), _AFTER[kind])
        for (_array, kind), (ids, jobs) in groups.items()
    ]
    one = record.job.spec.after_one
    # Dependencies that can no longer be met would doom the job if they were left over.
    of_all = tuple([after.job_id for after in record.job.spec.after])
    if one and len(record.pending) > 1:
        every = " or ".join([f"{jobs} to {what}" for _ids, _array_id, jobs, what in waits])
        lift = WithoutAfter(record.id, of_all)
        text = f"it waits for {every}"
        lifted_by = (Remedy(Cure.DEPENDENCY),)
        return [Reason(ReasonCode.DEPENDENCY, "dependency", text, False, lifted_by, lift)]
    return [
        Reason(
            ReasonCode.DEPENDENCY,
            jobs,
            _text(record, array_id, jobs, what),
            False,
            (Remedy(Cure.DEPENDENCY, (jobs,)),),
            WithoutAfter(record.id, of_all if one else tuple(ids)),
        )
        for ids, array_id, jobs, what in waits
    ]


def _text(record: JobRecord, array_id: int, jobs: str, what: str) -> str:
    """What it waits for; or, for an earlier task of its own array, that as many tasks run as may."""
    if array_id and array_id == record.job.array_id:
        return f"as many tasks of its array run as may at a time; it comes after {jobs}"
    return f"it waits for {jobs} to {what}"


def _waited(jobs: list[Job], kind: AfterKind) -> str:
    """The jobs that are waited for, by their labels."""
    if len(jobs) == 1:
        return f"job {jobs[0].label}"
    if kind is AfterKind.ALONE:
        return f"{len(jobs)} earlier jobs of its name"
    return f"{len(jobs)} tasks of job {jobs[0].array_id}"


def earmark_reasons(current: Pass, record: JobRecord) -> list[Reason]:
    """Its room is being freed: by which jobs, until when it is kept, and what else keeps it from starting there."""
    state, now_ms, earmark = current.state, current.now_ms, record.earmark
    assert earmark is not None
    gpus = sum([grant.gpus.bit_count() for grant in earmark.grants])
    model = model_name(state, state.nodes.kind_of[earmark.grants[0].node].model)
    where = names_text([state.nodes.node[grant.node].name for grant in earmark.grants])
    kept = f"{gpus} x {model} on {where}" if gpus else f"room on {where}"
    stopping = [
        r for r in state.running.values() if r.phase is AttemptState.STOPPING and r.for_job == record.id
    ]
    left = span_words(max(0, earmark.expires_ms - now_ms))
    text = f"{kept} {'is' if gpus < 2 else 'are'} kept for it for another {left}"
    lifted_by = (Remedy(Cure.ROOM_FREED),)
    if stopping:
        labels = names_text([r.job.label for r in sorted(stopping, key=lambda r: r.id)])
        soon = span_words(max(0, freed_ms(state, record, now_ms) - now_ms))
        text += f": job{'s' if len(stopping) > 1 else ''} {labels} should have stopped in {soon}"
        lifted_by = (Remedy(Cure.JOBS_STOPPED),)
    reasons = [Reason(ReasonCode.EARMARK, "preemption", text, False, lifted_by)]
    closed = [state.nodes.node[g.node].name for g in earmark.grants if state.nodes.closed[g.node]]
    if closed:
        text = f"{names_text(closed)}, where its room is kept, {'takes' if len(closed) == 1 else 'take'} nothing new"
        reasons.append(
            Reason(ReasonCode.ROOM, "fleet", text, False, (Remedy(Cure.NODES_OPEN, tuple(closed)),))
        )
    return [*reasons, *quota_reasons(current, record, False)]


def reservation_reasons(current: Pass, record: JobRecord) -> list[Reason]:
    """There is room, but it is promised."""
    state, now_ms = current.state, current.now_ms
    endless = record.estimate_ms >= ENDLESS_MS
    inside = [
        r
        for r in current.reservations
        if r.job_id != record.id and (endless or r.at_ms < now_ms + record.estimate_ms)
    ]
    if not inside:
        return [fallback_reason(ReasonCode.RESERVATION)]
    first = min(inside, key=lambda r: (r.at_ms, r.job_id))
    other = state.jobs[first.job_id]
    label, asks = other.job.label, ask_text(other.shape)
    runs = "has no time limit" if endless else f"may run {span_words(record.estimate_ms)}"
    due = span_words(max(0, first.at_ms - now_ms))
    if len(inside) == 1:
        text = f"there is room now, but job {label} is promised {asks} in {due}, and this job {runs}"
    else:
        text = (
            f"there is room now, but {len(inside)} jobs are promised theirs while this one {runs}, "
            f"first job {label}: {asks} in {due}"
        )
    lifted_by = (ask_less_time(record), Remedy(Cure.JOBS_START, (label,)))
    return [Reason(ReasonCode.RESERVATION, "backfill", text, False, lifted_by)]


def victims_reason(state: State, record: JobRecord, plan: Plan) -> list[Reason]:
    """The jobs that are about to be stopped for it."""
    stops = [stop for stop in plan.stops if stop.for_job == record.id]
    if not stops:
        return []
    labels = names_text([state.jobs[stop.job_id].job.label for stop in stops])
    text = f"job{'s' if len(stops) > 1 else ''} {labels} {'are' if len(stops) > 1 else 'is'} to be stopped for it"
    lift = EndJobs(tuple(sorted([stop.job_id for stop in stops])))
    return [Reason(ReasonCode.EARMARK, "preemption", text, False, (Remedy(Cure.JOBS_STOPPED),), lift)]


def line_reasons(
    state: State, policy: Policy, record: JobRecord, plan: Plan, before: int, *, needed: bool
) -> list[Reason]:
    """Why the pass did not reach it: no job may overtake, enough jobs were examined, or a similar job was refused."""
    codes = [ReasonCode(code) for code in plan.codes]
    refused = [code for code in codes if code not in (ReasonCode.STARTED, ReasonCode.EARMARK)]
    if policy.backfill.name == "none" and refused and codes[-1] in _FOR_ROOM:
        label = state.jobs[plan.examined[-1]].job.label
        text = (
            f"job {label} is ahead of it and waits for room; policy {policy.spec.name} lets nobody overtake"
        )
        lifted_by = (Remedy(Cure.JOBS_START, (label,)),)
        return [Reason(ReasonCode.HEAD_BLOCKED, "order", text, False, lifted_by)]
    depth, of_tenant = policy.spec.backfill_depth, policy.spec.depth_per_tenant
    line = state.queue.line
    leaf = [j for j in plan.examined if line(state.jobs[j]) == line(record)]
    text = f"{count_text(before, 'job')} {'is' if before == 1 else 'are'} ahead of it; "
    if len(refused) >= depth:
        text += f"a pass looks at {depth} that cannot start"
    elif policy.order.fair and len(leaf) >= of_tenant:
        text += f"a pass looks at {of_tenant} of one tenant that cannot start"
    elif needed:
        text += "one of them asks for the same and cannot start"
    else:
        return []
    return [Reason(ReasonCode.NOT_EXAMINED, "order", text, False, (Remedy(Cure.AHEAD_START),))]


_TEXTS = {
    ReasonCode.ROOM: "there is no room for it",
    ReasonCode.RESERVATION: "there is room now, but it is promised to a job ahead of it",
    ReasonCode.QUOTA_AHEAD: "an earlier job of its tenant waits for quota, and this one would delay it",
}


def fallback_reason(code: ReasonCode) -> Reason:
    """A reason about which no more is known than its code."""
    text = _TEXTS.get(code, f"refused with {code.name}")
    return Reason(code, "decide", text, False, (Remedy(Cure.ANY_CHANGE),))
