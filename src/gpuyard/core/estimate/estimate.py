"""When a waiting job will start, if all running jobs end when expected.

The jobs ahead of it are booked in the policy's order, and then the job itself. That is what `conservative` promises.
Other policies keep room for the first job alone and let others overtake that such bookings would hold up. With these
the estimate is no promise: a job often starts sooner, and a job behind it that overtakes may push it back.
"""

from typing import NamedTuple

from gpuyard.core.estimate.dependencies_met import DependenciesMet, Times, find_ready, stuck_reason
from gpuyard.core.estimate.pinned_slice import find_handover, is_pinned_somewhere
from gpuyard.core.estimate.uncut_gpu import find_uncut_start
from gpuyard.core.fleet.nodes import NEVER_MS
from gpuyard.core.jobs.queue import count_ahead, walk_in_order
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import count_text, names_text
from gpuyard.core.schedule.decide import rehearse
from gpuyard.core.schedule.policy import Policy
from gpuyard.core.schedule.profile import FleetProfile, Slot, freed_ms
from gpuyard.core.state.state import State
from gpuyard.model import JobState, ReasonCode
from gpuyard.model.units import ENDLESS_MS, NO_LIMIT_MS
from gpuyard.quantities import span_words

AHEAD_MAX = 200
"""How many of the jobs ahead are taken into account."""


class Estimate(NamedTuple):
    """A time, and how it was found."""

    at_ms: int | None
    how: str


def estimate(state: State, policy: Policy, now_ms: int, record: JobRecord) -> Estimate:
    """When a job will start (or did), and how that was found."""
    if record.state is not JobState.PENDING:
        return Estimate(record.started_ms, f"it started {span_words(now_ms - record.started_ms)} ago")
    if record.held:
        return Estimate(None, "it is on hold, and nobody has said for how long")
    if record.earmark is not None:
        # An overdue attempt is expected to end right away.
        at_ms = max(freed_ms(state, record, now_ms), now_ms + 1)
        return Estimate(at_ms, "its room is kept for it and will be free then")
    if state.queue.order is not policy.order:
        state.reindex(policy.order)
    never = stuck_reason(state, record) or unforeseen(state, policy, record)
    if never:
        return Estimate(None, never)
    found = _booked(state, policy, now_ms, record)
    return found if found.at_ms is None else Estimate(max(found.at_ms, record.begin_ms), found.how)


def unforeseen(state: State, policy: Policy, record: JobRecord) -> str | None:
    """What keeps a job from starting that no expected end will change; None: nothing."""
    if not record.shape.ways:
        return "never: no node could hold it"
    if not policy.spec.quotas:
        return None
    tenants, milli = state.tenants, record.shape.gpu_milli
    micro = state.micro_least(record.shape, state.now_ms)
    refusal = tenants.lasting_refusal(record.party, milli, record.limit_ms, micro)
    if refusal is not None:
        name = tenants.path[refusal[1]] or "everyone"
        spend = tenants.spend[refusal[1]]
        if refusal[0] is not ReasonCode.BUDGET or spend is None:
            return f"never: {name} does not allow jobs of this size"
        if record.limit_ms >= NO_LIMIT_MS:
            has = "has a budget" if spend.rule is None else "is a budget"
            return f"never: {name} {has}, and the job has no time limit"
        whose = f"of {name}" if spend.rule is None else name
        if spend.rate(milli, micro) * record.limit_ms > spend.amount:
            return f"never: the job may take more than the whole budget {whose}"
        return f"it waits for the budget {whose}"
    found = ""
    for way in record.shape.ways:
        if tenants.held_back_for_good(record.party, way.model, milli, state.nodes.up_milli):
            found = found or "others hold back so much that it does not fit beside that, whatever ends"
        else:
            return None
    return found


def _booked(state: State, policy: Policy, now_ms: int, record: JobRecord) -> Estimate:
    """Book the jobs ahead, then the job."""
    profile = FleetProfile(state, policy, now_ms)
    strict = policy.backfill.name == "none"
    from_ms = now_ms
    bookings: list[tuple[JobRecord, Slot]] = []
    waits = record.id not in state.deferred
    seen = 0
    before: list[JobRecord] = []
    untold: JobRecord | None = None
    for other in walk_in_order(state.queue):
        if other is record or seen == AHEAD_MAX:
            break
        seen += 1
        if other.earmark is not None or unforeseen(state, policy, other) is not None:
            continue
        before.append(other)
        slot = profile.earliest(other, from_ms)
        if slot is not None:
            profile.book(other, slot)
            bookings.append((other, slot))
            if strict:
                from_ms = max(from_ms, slot.at_ms)
        else:
            untold = untold or other
    others = _waited_for(state, policy, now_ms, record, profile, bookings)
    if others.at_ms is None:
        return Estimate(None, others.how)
    # A job that is not in the queue yet does not start at this moment.
    # So far ahead nothing holds room but jobs without a time limit: room that is free then stays free.
    begin_ms = min(record.begin_ms, now_ms + ENDLESS_MS - 1)
    from_ms = max(from_ms, begin_ms, others.at_ms, now_ms + (not waits))
    slot = profile.earliest(record, from_ms)
    if slot is not None and slot.at_ms <= now_ms and not _starts(state, policy, now_ms, record):
        # The jobs ahead are served differently than they are booked here: nothing changes before some job ends.
        from_ms = _change_ms(state, now_ms, bookings)
        slot = profile.earliest(record, from_ms) if from_ms < NEVER_MS else None
    total = count_ahead(state.queue, record) if waits else state.queue.count
    if slot is None and seen == total and is_pinned_somewhere(state, record):
        # In strict order each job ahead blocks all others, so the start of each of them must be known.
        booked = {other.id for other, _slot in bookings}
        known = [o.id in booked or o.shape.profile == record.shape.profile for o in before]
        return _pinned(state, now_ms, from_ms, record, before if all(known) or not strict else None)
    if strict and untold is not None:
        how = f"it waits for job {untold.job.label}, ahead of it, and when that starts cannot be told"
        return Estimate(None, how)
    if slot is None:
        return _uncut(state, profile, now_ms, from_ms, record)
    if slot.at_ms - now_ms >= ENDLESS_MS:
        endless, several = _endless(state, now_ms, slot, bookings)
        if not endless:
            return Estimate(None, "its room is promised to jobs without a time limit")
        return Estimate(None, f"it waits for {endless}, which {'have' if several else 'has'} no time limit")
    first = others.how if slot.at_ms == others.at_ms else ""
    when = first or _when(state, now_ms, slot, bookings)
    return Estimate(
        slot.at_ms, "; ".join(filter(None, [when, _after(seen, total, waits=waits, first=first)]))
    )


def _uncut(state: State, profile: FleetProfile, now_ms: int, from_ms: int, record: JobRecord) -> Estimate:
    """When a GPU that is cut now can take a share that finds room nowhere else."""
    found = find_uncut_start(state, profile.quotas, now_ms, from_ms, record)
    if found is None or found.at_ms >= NEVER_MS:
        return Estimate(None, "what it asks for does not come free by anything that runs ending")
    jobs, several = _jobs(state, set(found.job_ids))
    if found.at_ms - now_ms >= ENDLESS_MS:
        endless = {i for i in found.job_ids if state.jobs[i].end_ms - now_ms >= ENDLESS_MS}
        jobs, several = _jobs(state, endless or set(found.job_ids))
        return Estimate(None, f"it waits for {jobs}, which {'have' if several else 'has'} no time limit")
    end = "end" if several else "ends"
    return Estimate(found.at_ms, f"when {jobs} {end} as promised, if nobody cuts more from that GPU before")


def _starts(state: State, policy: Policy, now_ms: int, record: JobRecord) -> bool:
    """Whether the job starts now."""
    # Not `decide`, which would cache its answer.
    plan = rehearse(state, policy, now_ms, lambda: None)
    return any([start.job_id == record.id for start in plan.starts])


def _change_ms(state: State, now_ms: int, bookings: list[tuple[JobRecord, Slot]]) -> int:
    """When the next job is expected to end or to start; `NEVER_MS`: none is."""
    times = [max(record.end_ms, now_ms + 1) for record in state.running.values()]
    times += [slot.at_ms for _record, slot in bookings if slot.at_ms > now_ms]
    return min(times, default=NEVER_MS)


def _pinned(
    state: State, now_ms: int, from_ms: int, record: JobRecord, before: list[JobRecord] | None
) -> Estimate:
    """When the job gets its slice of a pinned GPU, if it finds room nowhere else."""
    found = None if before is None else find_handover(state, now_ms, record, before)
    if found is None:
        return Estimate(None, "slices of its size are on pinned GPUs; when they are free cannot be told")
    label = state.jobs[found.job_id].job.label if found.job_id else ""
    if found.at_ms - now_ms >= ENDLESS_MS:
        return Estimate(None, f"it waits for a slice that job {label} has, which has no time limit")
    if found.job_id and found.at_ms >= from_ms:
        return Estimate(found.at_ms, f"when job {label} hands on its slice of a pinned GPU as promised")
    return Estimate(max(from_ms, found.at_ms), "a slice of a pinned GPU is free for it then")


def _waited_for(
    state: State,
    policy: Policy,
    now_ms: int,
    record: JobRecord,
    profile: FleetProfile,
    bookings: list[tuple[JobRecord, Slot]],
) -> DependenciesMet:
    """When the job's dependencies are met; waiting jobs among them are booked for that."""
    if not record.pending:
        return DependenciesMet(now_ms, "")

    def book(other: JobRecord, from_ms: int) -> Times | None:
        if unforeseen(state, policy, other) is not None:
            return None
        slot = profile.earliest(other, from_ms)
        if slot is None:
            return None
        profile.book(other, slot)
        bookings.append((other, slot))
        return Times(slot.at_ms, slot.at_ms + other.estimate_ms)

    booked = {other.id: Times(slot.at_ms, slot.at_ms + other.estimate_ms) for other, slot in bookings}
    return find_ready(state, now_ms, record, booked, book)


def _when(state: State, now_ms: int, slot: Slot, bookings: list[tuple[JobRecord, Slot]]) -> str:
    if slot.at_ms <= now_ms:
        return "there is room for it now"
    ending, several = _ending(state, slot, bookings)
    if not ending:
        return "at its begin time, when there is room"
    return f"when {ending} {'end' if several else 'ends'} as promised"


def _after(seen: int, total: int, *, waits: bool, first: str) -> str:
    """How many jobs it was booked behind. A job that is not in the queue yet may come before some of them."""
    if seen < total:
        return f"only the first {seen} of {count_text(total, 'job')} ahead are counted, so it may be later"
    if not total or first:
        return ""
    jobs = count_text(total, "job")
    return f"after {jobs} ahead of it" if waits else f"at the latest, behind {jobs} in line now"


def _ending(state: State, slot: Slot, bookings: list[tuple[JobRecord, Slot]]) -> tuple[str, bool]:
    """The jobs that end at that time and make the room, running or booked on the same nodes; and whether several."""
    where = {grant.node for grant in slot.grants}
    found = {
        job_id
        for number in where
        for job_id, (end_ms, _grant) in state.nodes.attempts_on[number].items()
        if end_ms == slot.at_ms
    }
    for other, booked in bookings:
        if booked.at_ms + other.estimate_ms == slot.at_ms and any(g.node in where for g in booked.grants):
            found.add(other.id)
    for other in state.earmarks.values():
        if freed_ms(state, other, state.now_ms) + other.estimate_ms == slot.at_ms:
            found.add(other.id)
    if not found:
        # It waits for quota, not for room.
        found = {r.id for r in state.running.values() if r.end_ms == slot.at_ms}
    return _jobs(state, found)


def _endless(
    state: State, now_ms: int, slot: Slot, bookings: list[tuple[JobRecord, Slot]]
) -> tuple[str, bool]:
    """The jobs without a time limit that it waits for, running or booked on its nodes; and whether several."""
    far_ms = now_ms + ENDLESS_MS
    where = {grant.node for grant in slot.grants}
    found = {
        job_id
        for number in where
        for job_id, (end_ms, _grant) in state.nodes.attempts_on[number].items()
        if far_ms <= end_ms <= slot.at_ms
    }
    for other, booked in bookings:
        ends_ms = booked.at_ms + other.estimate_ms
        if other.estimate_ms >= ENDLESS_MS and ends_ms <= slot.at_ms:
            found |= {other.id} if any(g.node in where for g in booked.grants) else set()
    # Otherwise it waits for quota, not for room.
    return _jobs(state, found or {r.id for r in state.running.values() if far_ms <= r.end_ms <= slot.at_ms})


def _jobs(state: State, found: set[int]) -> tuple[str, bool]:
    labels = [state.jobs[job_id].job.label for job_id in sorted(found)]
    several = len(labels) > 1
    return f"job{'s' if several else ''} {names_text(labels)}" if labels else "", several
