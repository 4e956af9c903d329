"""Making room by force: choose the victims that let a job fit and lose the least work.

1. Candidates are the jobs that a rule allows to stop and that are past their minimum run time; nodes are sorted by the
work that is lost when they are emptied far enough (`victims`). 2. Draft victims away node by node until the job fits.
3. Spare each victim that turns out not to be needed, the most expensive first. So every remaining victim is needed, and
the job that they make room for is earmarked in the same plan.
"""

from gpuyard.core.fleet.mig_placing import note_before_force
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.schedule.running_jobs import find_running
from gpuyard.core.schedule.victims import Candidate, VictimOrder
from gpuyard.model import Grant, Stop
from gpuyard.model.units import MILLI


def make_room(current: Pass, record: JobRecord) -> tuple[tuple[Stop, ...], tuple[Grant, ...]] | None:
    """Victims and the room they make, or None."""
    nodes = current.state.nodes
    current.settle_kept_quota()
    current.look_ahead(1)
    try:
        with nodes.drafting(note_before_force(nodes) if record.shape.profile else None):
            return _make_room(current, record)
    finally:
        current.look_ahead(-1)


def _make_room(current: Pass, record: JobRecord) -> tuple[tuple[Stop, ...], tuple[Grant, ...]] | None:
    state, now_ms = current.state, current.now_ms
    rules = [rule for rule in current.policy.rules if rule.applies(state, record, now_ms)]
    if not rules:
        return None
    jobs = find_running(state, now_ms)
    current.retry_ms = min(current.retry_ms, jobs.next_unprotected_ms(state, now_ms))
    order = VictimOrder(current, record, rules, jobs)
    if _in_vain(current, record, order):
        return None
    drafted: list[Candidate] = []
    grants: tuple[Grant, ...] | None = None
    # Twice as many nodes as the job needs; if their candidates are not enough, four times as many more, and so on.
    count = 2 * max([1, *[way.full_nodes for way in record.shape.ways]])
    try:
        while grants is None and (candidates := _more(current, order, drafted, count)):
            count *= 4
            for candidate in candidates:
                victim = candidate.victim
                # Earlier victims may have brought this tenant down to its guarantee.
                if not candidate.may_stop(victim):
                    if order.kept_for_good(victim):
                        break
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
            current.draft_resume(candidate.victim)
    if grants is None or not drafted:
        return None
    stops = tuple(
        Stop(each.id, each.victim.attempt, each.cause, record.id)
        for each in sorted(drafted, key=lambda candidate: candidate.id)
    )
    return stops, grants


def _more(current: Pass, order: VictimOrder, drafted: list[Candidate], count: int) -> list[Candidate]:
    """The next candidates. Which jobs may be stopped is judged with all victims in place."""
    so_far = list(drafted)
    while drafted:
        current.draft_resume(drafted.pop().victim)
    found = order.more(count)
    for candidate in so_far:
        current.draft_stop(candidate.victim)
        drafted.append(candidate)
    return found


def _in_vain(current: Pass, record: JobRecord, order: VictimOrder) -> bool:
    """Whether no victims could make the job fit: it lacks quota that no candidate uses, or too few nodes could be
    emptied. A quick check: False may still mean that there is no way."""
    tenants, nodes, shape = current.state.tenants, current.state.nodes, record.shape
    groups = order.reached()
    for way in shape.ways:
        refusal = None
        if current.policy.spec.quotas:
            micro = current.state.micro_by(shape, way, current.now_ms)
            milli, limit_ms = shape.gpu_milli, record.limit_ms
            refusal = tenants.refusal(record.party, way.model, milli, limit_ms, shape.measure, micro)
        if refusal is not None and not any([refusal[1] in tenants.chain[group.party] for group in groups]):
            continue
        if way.full_nodes > 1 and way.node_gpus and way.node_gpus * MILLI == order.wanted_milli:
            kind = nodes.kinds[way.kind]
            there = sum([bucket.bit_count() for bucket in kind.buckets[way.node_gpus :]])
            if there + order.emptied_max(way.kind) < way.full_nodes:
                continue
        return False
    return True


def _spare(
    current: Pass, record: JobRecord, drafted: list[Candidate], grants: tuple[Grant, ...]
) -> tuple[Grant, ...]:
    """Put back the victims that are not needed, the most expensive first."""
    for candidate in sorted(drafted, key=lambda each: (-each.destroyed, each.id)):
        current.draft_resume(candidate.victim)
        without = current.fits_by_force(record)
        if without is not None:
            drafted.remove(candidate)
            grants = without
        else:
            current.draft_stop(candidate.victim)
    return grants
