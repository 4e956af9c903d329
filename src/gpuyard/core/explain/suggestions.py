"""What would let a waiting job start now: tried, not guessed.

Each trial uses the same placement and the same quotas as the pass, with one thing changed: a shorter time limit, fewer
GPUs, tasks spread over more nodes or further apart, any GPU model, any pool. `why` tries each once more, on a copy of
everything.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from gpuyard.core.fleet.placing import place_anyhow
from gpuyard.core.fleet.ways import Shapes
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.schedule.policy import Backfill
from gpuyard.model import Ask, AskFor, Grant, Level, LimitTime, ReasonCode, Whole
from gpuyard.model.units import DAY_MS, ENDLESS_MS, SECOND_MS

_LIMITS_TRIED_MAX = 8
_LONGEST_MS = ENDLESS_MS - SECOND_MS
"""The longest limit that is one."""

_ABOUT_SIZE = frozenset(
    {ReasonCode.ROOM, ReasonCode.LIMIT, ReasonCode.BORROW, ReasonCode.HELD_BACK, ReasonCode.NEVER_FITS}
)


class Help(NamedTuple):
    """A change to the job with which it would start now: another time limit, or another ask than it has."""

    lift: AskFor | LimitTime
    was: Ask
    any_limit: bool = False
    """Any time limit would do, because the job that was promised the room waits for a job without one."""


def find_helps(
    current: Pass, backfill: Backfill, record: JobRecord, found: tuple[Grant, ...] | ReasonCode
) -> tuple[Help, ...]:
    """Changes to the job with which it could start now."""
    told, ask = [], record.job.spec.ask
    if found in (ReasonCode.RESERVATION, ReasonCode.QUOTA_AHEAD):
        limit_ms = _shorter(current, backfill, record)
        if limit_ms:
            any_limit = limit_ms >= _LONGEST_MS
            told.append(Help(LimitTime(record.id, DAY_MS if any_limit else limit_ms), ask, any_limit))
    if found in _ABOUT_SIZE:
        # First the same elsewhere, then less of it.
        for changes in (_further(record.shape.ask), _elsewhere(current, ask), _spread(ask), _fewer(ask)):
            other = next((each for each in changes if _fits(current, backfill, record, each)), None)
            if other is not None:
                told.append(Help(AskFor(record.id, other), ask))
    return tuple(told)


def _further(ask: Ask) -> Iterator[Ask]:
    """GPUs and nodes that are not as near to each other: of several NUMA domains, in a rack, on a fabric, anywhere."""
    if ask.one_domain:
        yield replace(ask, one_domain=False)
    if ask.level is None or not ask.level_required or ask.tasks == 1:
        return
    for level in [*Level][[*Level].index(ask.level) + 1 :]:
        yield replace(ask, level=level, level_ms=0)
    yield replace(ask, level_required=False, level_ms=0)


def _spread(ask: Ask) -> Iterator[Ask]:
    """As many GPUs in smaller tasks on more nodes, the largest tasks first."""
    if not isinstance(ask.gpus, Whole):
        return
    total, each = ask.gpus.count * ask.tasks, ask.gpus.count
    for size in range(each, 0, -1):
        tasks = total // size
        if total % size or tasks < 2 or (size == each and ask.nodes_max >= tasks):
            continue
        parts = tasks // ask.tasks or 1
        yield replace(
            ask,
            gpus=Whole(size),
            tasks=tasks,
            nodes_max=tasks,
            nodes_min=0,
            cpu_milli=-(-ask.cpu_milli // parts),
            memory_mib=-(-ask.memory_mib // parts),
        )


def _fewer(ask: Ask) -> Iterator[Ask]:
    """Fewer GPUs, as many as possible; for a gang, fewer tasks."""
    if not isinstance(ask.gpus, Whole):
        return
    if ask.tasks > 1:
        for tasks in range(ask.tasks - 1, 0, -1):
            yield replace(ask, tasks=tasks)
    else:
        for count in range(ask.gpus.count - 1, 0, -1):
            yield replace(ask, gpus=Whole(count))


def _elsewhere(current: Pass, ask: Ask) -> Iterator[Ask]:
    """Another GPU model, or another pool."""
    if ask.models:
        for model in current.state.models:
            if model and model not in ask.models:
                yield replace(ask, models=(model,))
    if ask.pools:
        for pool in sorted(current.state.nodes.by_pool):
            if pool not in ask.pools:
                yield replace(ask, pools=(pool,))


def _shorter(current: Pass, backfill: Backfill, record: JobRecord) -> int:
    """The longest time limit with which it would end before the room is promised to another job; 0: none."""
    limit_ms, estimate_ms = record.limit_ms, record.estimate_ms
    current.settle_kept_quota()
    ends = {r.at_ms - current.now_ms for r in current.reservations} | {
        kept.at_ms - current.now_ms for kept in current.kept_quota.values()
    }
    for within_ms in sorted([end for end in ends if SECOND_MS <= end <= estimate_ms], reverse=True)[
        :_LIMITS_TRIED_MAX
    ]:
        # To the second, as users set limits.
        shorter_ms = min(within_ms, _LONGEST_MS) // SECOND_MS * SECOND_MS
        try:
            record.limit_ms = record.estimate_ms = shorter_ms
            if type(backfill.place(record)) is tuple:
                return shorter_ms
        finally:
            record.limit_ms, record.estimate_ms = limit_ms, estimate_ms
    return 0


def _fits(current: Pass, backfill: Backfill, record: JobRecord, ask: Ask) -> bool:
    """Whether there is room for a different ask of the same job, without changing what is remembered of asks."""
    nodes, tenants = current.state.nodes, current.state.tenants
    shape = Shapes(current.state.settings.walls).behind(
        ask, record.shape.closed, nodes, current.state.weights
    )
    milli, holds = shape.gpu_milli, backfill.holds()
    nodes.shift(holds, -1)
    try:
        for way in shape.ways:
            if current.policy.spec.quotas and (
                tenants.refusal(
                    record.party,
                    way.model,
                    milli,
                    record.limit_ms,
                    shape.measure,
                    current.state.micro_by(shape, way, current.now_ms),
                )
                is not None
                or tenants.held_back_refusal(record.party, way.model, milli, nodes.up_milli)
            ):
                continue
            if place_anyhow(nodes, shape, way, way.pools) is not None:
                return True
    finally:
        nodes.shift(holds, 1)
    return False
