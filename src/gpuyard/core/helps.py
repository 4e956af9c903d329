"""What would let a waiting job start now: tried out, not guessed.

Each trial asks the same placement and the same quotas as the pass, with one thing changed: a shorter time limit, fewer
GPUs, any GPU model.
"""

from dataclasses import replace

from gpuyard.core.passes import Pass
from gpuyard.core.placing import placer, share_best_fit, whole_best_fit
from gpuyard.core.policy import Backfill
from gpuyard.core.records import JobRecord
from gpuyard.core.room_reasons import model_name
from gpuyard.core.shapes import Shapes
from gpuyard.core.words import count_text, span
from gpuyard.model import Ask, Grant, ReasonCode, Whole
from gpuyard.model.units import SECOND_MS

_LIMITS_TRIED_MAX = 8

_PLACE = placer(whole_best_fit, share_best_fit)
"""Where something fits does not depend on what a placement likes best, and this one remembers nothing."""

_ABOUT_SIZE = frozenset(
    {ReasonCode.ROOM, ReasonCode.RESERVATION, ReasonCode.LIMIT, ReasonCode.BORROW, ReasonCode.HELD_BACK}
)


def helps(
    current: Pass, backfill: Backfill, record: JobRecord, found: tuple[Grant, ...] | ReasonCode
) -> tuple[str, ...]:
    """Changes to the job with which it could start now."""
    told = []
    if found in (ReasonCode.RESERVATION, ReasonCode.QUOTA_AHEAD):
        limit_ms = _shorter(current, backfill, record)
        if limit_ms:
            told.append(f"with a time limit of {span(limit_ms)} it could start now")
    ask = record.job.spec.ask
    if found in _ABOUT_SIZE and found is not ReasonCode.RESERVATION:
        if isinstance(ask.gpus, Whole) and ask.tasks == 1:
            for count in range(ask.gpus.count - 1, 0, -1):
                if _fits(current, backfill, record, replace(ask, gpus=Whole(count))) is not None:
                    fewer = count_text(count, "GPU")
                    told.append(f"with {fewer} instead of {ask.gpus.count} it could start now")
                    break
        if ask.models:
            grants = _fits(current, backfill, record, replace(ask, models=()))
            if grants is not None:
                kind = current.state.nodes.home[grants[0].node]
                told.append(f"on {model_name(current.state, kind.model)} it could start now")
    return tuple(told)


def _shorter(current: Pass, backfill: Backfill, record: JobRecord) -> int:
    """The longest time limit with which it would be over before someone is promised the room; 0: none."""
    limit_ms, estimate_ms = record.limit_ms, record.estimate_ms
    current.settle_walls()
    ends = {r.at_ms - current.now_ms for r in current.reservations} | {
        wall.at_ms - current.now_ms for wall in current.walls.values()
    }
    for within_ms in sorted([end for end in ends if SECOND_MS <= end < estimate_ms], reverse=True)[
        :_LIMITS_TRIED_MAX
    ]:
        # To the second, as people set limits.
        shorter_ms = within_ms // SECOND_MS * SECOND_MS
        try:
            record.limit_ms = record.estimate_ms = shorter_ms
            if type(backfill.place(record)) is tuple:
                return shorter_ms
        finally:
            record.limit_ms, record.estimate_ms = limit_ms, estimate_ms
    return 0


def _fits(current: Pass, backfill: Backfill, record: JobRecord, ask: Ask) -> tuple[Grant, ...] | None:
    """Room for another ask of the same job, without touching what is known of asks."""
    nodes, tenants = current.state.nodes, current.state.tenants
    shape = Shapes().of(ask, nodes, current.state.weights)
    milli, holds = shape.gpu_milli, backfill.holds()
    nodes.shift(holds, -1)
    try:
        for way in shape.ways:
            if current.policy.spec.quotas and (
                tenants.refusal(record.leaf, way.model, milli, record.limit_ms) is not None
                or tenants.held_back_refusal(record.leaf, way.model, milli, nodes.up_milli)
            ):
                continue
            grants = _PLACE(nodes, shape, way, way.pools)
            if grants is not None:
                return grants
    finally:
        nodes.shift(holds, 1)
    return None
