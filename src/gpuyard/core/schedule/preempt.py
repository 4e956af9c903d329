"""Making room by force: choose the victims that let a job fit and lose the least work.

1. Collect the jobs that a rule allows to stop and that are past their minimum run time. 2. Sort nodes by the work that
is lost when they are emptied far enough. 3. Draft victims away node by node until the job fits. 4. Spare each victim
that turns out not to be needed, the most expensive first. So every remaining victim is needed, and the job that they
make room for is earmarked in the same plan.
"""

from collections.abc import Callable
from operator import itemgetter

from gpuyard.core.fleet.mig_placing import by_force
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.passes import Pass, Rule
from gpuyard.model import AttemptState, Grant, Stop, StopCause
from gpuyard.model.units import MILLI

_DOUBLINGS_MAX = 10
"""A job preempted again and again is left alone for up to 2^10 times its minimum run time."""

_STARTING, _RUNNING, _SUSPENDED = AttemptState.STARTING, AttemptState.RUNNING, AttemptState.SUSPENDED

Right = Callable[[JobRecord], bool]
Candidate = tuple[int, int, JobRecord, Right, StopCause]
"""(work destroyed, id, victim, the right to stop it and its cause)."""


def protected_until_ms(victim: JobRecord) -> int:
    """The end of a victim's minimum run time, which doubles with each preemption so that two jobs cannot thrash."""
    return victim.started_ms + (victim.klass.min_run_ms << min(victim.preemptions, _DOUBLINGS_MAX))


def make_room(current: Pass, record: JobRecord) -> tuple[tuple[Stop, ...], tuple[Grant, ...]] | None:
    """Victims and the room they make, or None."""
    nodes = current.state.nodes
    current.settle_kept_quota()
    current.look_ahead(1)
    nodes.by_force = by_force(nodes) if record.shape.profile else None
    try:
        return _make_room(current, record)
    finally:
        nodes.by_force = None
        current.look_ahead(-1)


def _make_room(current: Pass, record: JobRecord) -> tuple[tuple[Stop, ...], tuple[Grant, ...]] | None:
    state, now_ms = current.state, current.now_ms
    rules = current.policy.rules
    rights = [
        (rule.rights(state, record, now_ms), rule) for rule in rules if rule.applies(state, record, now_ms)
    ]
    candidates = _candidates(current, rights)
    if not candidates:
        return None
    drafted: list[Candidate] = []
    grants: tuple[Grant, ...] | None = None
    try:
        for candidate in _in_order(current, record, candidates):
            victim, may_stop = candidate[2], candidate[3]
            # Earlier victims may have brought this tenant down to its guarantee.
            if not may_stop(victim):
                continue
            current.draft_stop(victim)
            drafted.append(candidate)
            grants = current.fits_by_force(record)
            if grants is not None:
                break
        if grants is not None:
            grants = _spare(current, record, drafted, grants)
    finally:
        for candidate in reversed(drafted):
            current.draft_resume(candidate[2])
    if grants is None or not drafted:
        return None
    stops = tuple(
        Stop(victim.id, victim.attempt, cause, record.id)
        for _cost, _id, victim, _may_stop, cause in sorted(drafted, key=lambda c: c[1])
    )
    return stops, grants


def _candidates(current: Pass, rights: list[tuple[Right, Rule]]) -> list[Candidate]:
    now_ms = current.now_ms
    found: list[Candidate] = []
    if not rights:
        return found
    stopping = current.stopping
    for victim in current.state.running.values():
        klass = victim.klass
        if not klass.preemptible or victim.id in stopping:
            continue
        protected_ms = victim.started_ms + klass.min_run_ms
        if victim.preemptions:
            protected_ms = protected_until_ms(victim)
        if protected_ms > now_ms:
            if protected_ms < current.retry_ms:
                current.retry_ms = protected_ms
            continue
        # A suspended job is stopped like any other; else it could hold room that was promised to others for ever.
        phase = victim.phase
        if phase is not _RUNNING and phase is not _STARTING and phase is not _SUSPENDED:
            continue
        for may_stop, rule in rights:
            if may_stop(victim):
                found.append((victim.destroyed_gpu_ms(now_ms), victim.id, victim, may_stop, rule.cause))
                break
    # Cost, then id: ids are unique, so the order is total.
    found.sort(key=itemgetter(0, 1))
    return found


def _in_order(current: Pass, record: JobRecord, candidates: list[Candidate]) -> list[Candidate]:
    """Cheapest nodes first; on a node the cheapest victims first; each victim once."""
    nodes = current.state.nodes
    kinds = {way.kind for way in record.shape.ways}
    most = max((way.tasks_per_node for way in record.shape.ways), default=1)
    wanted_milli = record.shape.gpus * record.shape.milli * most
    by_node: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        for grant in candidate[2].grants:
            if nodes.kind[grant.node] in kinds:
                by_node.setdefault(grant.node, []).append(candidate)
    ranked: list[tuple[int, int]] = []
    for number, there in by_node.items():
        free = nodes.free_mask[number].bit_count() * MILLI
        if number in nodes.partly_free:
            free = sum([left for left in nodes.gpu_free[number] if left > 0])
        cost = 0
        for destroyed, _id, victim, _may_stop, _cause in there:
            if free >= wanted_milli:
                break
            cost += destroyed
            for grant in victim.grants:
                if grant[0] == number:
                    free += grant[1].bit_count() * grant[2]
        if free < wanted_milli:
            # This node cannot be emptied far enough: a last resort, for jobs that spread over nodes.
            cost += 1 << 80
        ranked.append((cost, number))
    seen: set[int] = set()
    ordered: list[Candidate] = []
    for _cost, number in sorted(ranked):
        for candidate in by_node[number]:
            if candidate[1] not in seen:
                seen.add(candidate[1])
                ordered.append(candidate)
    return ordered


def _spare(
    current: Pass, record: JobRecord, drafted: list[Candidate], grants: tuple[Grant, ...]
) -> tuple[Grant, ...]:
    """Put back the victims that are not needed, the most expensive first."""
    for candidate in sorted(drafted, key=lambda c: (-c[0], c[1])):
        current.draft_resume(candidate[2])
        without = current.fits_by_force(record)
        if without is not None:
            drafted.remove(candidate)
            grants = without
        else:
            current.draft_stop(candidate[2])
    return grants
