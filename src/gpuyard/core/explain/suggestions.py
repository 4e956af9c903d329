"""What would let a waiting job start now: tried, not guessed.

Each trial uses the same placement and the same quotas as the pass, with one thing changed: a shorter time limit, fewer
GPUs, tasks spread over more nodes, any GPU model, any pool. `why` tries each once more, on a copy of everything.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from gpuyard.core.explain.room_reasons import model_name
from gpuyard.core.fleet.placing import placer, share_best_fit, whole_best_fit
from gpuyard.core.fleet.ways import Shapes
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import count_text, span
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.schedule.policy import Backfill
from gpuyard.model import Ask, AskFor, Grant, LimitTime, ReasonCode, Whole
from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS, NO_LIMIT_MS, SECOND_MS

_LIMITS_TRIED_MAX = 8

_PLACE = placer(whole_best_fit, share_best_fit)
"""Whether something fits does not depend on the placement's preference, and this placement remembers nothing."""

_ABOUT_SIZE = frozenset(
    {ReasonCode.ROOM, ReasonCode.LIMIT, ReasonCode.BORROW, ReasonCode.HELD_BACK, ReasonCode.NEVER_FITS}
)


class Help(NamedTuple):
    """A change to the job with which it would start now."""

    text: str
    flags: str
    """How to ask for it: options of `yard submit`, and the key of a job file where there is no option."""
    lift: AskFor | LimitTime

    def __str__(self) -> str:
        return f"{self.text} ({self.flags})"


def helps(
    current: Pass, backfill: Backfill, record: JobRecord, found: tuple[Grant, ...] | ReasonCode
) -> tuple[Help, ...]:
    """Changes to the job with which it could start now."""
    told = []
    if found in (ReasonCode.RESERVATION, ReasonCode.QUOTA_AHEAD):
        limit_ms = _shorter(current, backfill, record)
        if limit_ms:
            text = f"with a time limit of {span(limit_ms)} it would start now"
            if limit_ms >= NO_LIMIT_MS // 2:
                # The job that was promised the room waits for a job without a time limit: any limit will do.
                limit_ms, text = DAY_MS, "with a time limit it would start now"
            told.append(Help(text, f"--time {_time(limit_ms)}", LimitTime(record.id, limit_ms)))
    if found in _ABOUT_SIZE:
        # First the same elsewhere, then less of it.
        tried = (_elsewhere(current, record), _spread(record), _fewer(record))
        for changes in tried:
            for help_ in changes:
                assert isinstance(help_.lift, AskFor)
                grants = _fits(current, backfill, record, help_.lift.ask)
                if grants is not None:
                    model = model_name(current.state, current.state.nodes.home[grants[0].node].model)
                    told.append(
                        help_._replace(
                            text=help_.text.format(model=model), flags=help_.flags.format(model=model)
                        )
                    )
                    break
    return tuple(told)


def _spread(record: JobRecord) -> Iterator[Help]:
    """As many GPUs in smaller tasks on more nodes, the largest tasks first."""
    ask = record.job.spec.ask
    if not isinstance(ask.gpus, Whole):
        return
    total, each = ask.gpus.count * ask.tasks, ask.gpus.count
    was = f"{ask.tasks} x {each} GPUs" if ask.tasks > 1 else f"{count_text(each, 'GPU')} on one node"
    for size in range(each, 0, -1):
        tasks = total // size
        if total % size or tasks < 2 or (size == each and ask.nodes_max >= tasks):
            continue
        parts = tasks // ask.tasks or 1
        smaller = replace(
            ask,
            gpus=Whole(size),
            tasks=tasks,
            nodes_max=tasks,
            nodes_min=0,
            cpu_milli=-(-ask.cpu_milli // parts),
            memory_mib=-(-ask.memory_mib // parts),
        )
        text = f"{tasks} x {size} on up to {tasks} nodes instead of {was} would start now"
        flags = f"--tasks {tasks} --gpus {size}, and `nodes_max: {tasks}` in its YAML"
        yield Help(text, flags, AskFor(record.id, smaller))


def _fewer(record: JobRecord) -> Iterator[Help]:
    """Fewer GPUs, as many as possible; for a gang, fewer tasks."""
    ask = record.job.spec.ask
    if not isinstance(ask.gpus, Whole):
        return
    if ask.tasks > 1:
        for tasks in range(ask.tasks - 1, 0, -1):
            text = f"with {count_text(tasks, 'task')} instead of {ask.tasks} it would start now"
            yield Help(text, f"--tasks {tasks}", AskFor(record.id, replace(ask, tasks=tasks)))
    else:
        for count in range(ask.gpus.count - 1, 0, -1):
            text = f"with {count_text(count, 'GPU')} instead of {ask.gpus.count} it would start now"
            yield Help(text, f"--gpus {count}", AskFor(record.id, replace(ask, gpus=Whole(count))))


def _elsewhere(current: Pass, record: JobRecord) -> Iterator[Help]:
    """Another GPU model, another pool, or both."""
    ask = record.job.spec.ask
    if ask.models:
        text, flags = "on {model} it would start now", "--gpu-model {model}"
        for model in current.state.models:
            if model and model not in ask.models:
                yield Help(text, flags, AskFor(record.id, replace(ask, models=(model,))))
    if ask.pools:
        for pool in sorted(current.state.nodes.by_pool):
            if pool not in ask.pools:
                other = replace(ask, pools=(pool,))
                yield Help(
                    f"in pool {pool} it would start now",
                    f"`pools: [{pool}]` in its YAML",
                    AskFor(record.id, other),
                )


def _time(ms: int) -> str:
    """A time limit as `yard submit` takes it."""
    for size, unit in ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "m")):
        if ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms // SECOND_MS}s"


def _shorter(current: Pass, backfill: Backfill, record: JobRecord) -> int:
    """The longest time limit with which it would end before the room is promised to another job; 0: none."""
    limit_ms, estimate_ms = record.limit_ms, record.estimate_ms
    current.settle_walls()
    ends = {r.at_ms - current.now_ms for r in current.reservations} | {
        wall.at_ms - current.now_ms for wall in current.walls.values()
    }
    for within_ms in sorted([end for end in ends if SECOND_MS <= end < estimate_ms], reverse=True)[
        :_LIMITS_TRIED_MAX
    ]:
        # To the second, as users set limits.
        shorter_ms = within_ms // SECOND_MS * SECOND_MS
        try:
            record.limit_ms = record.estimate_ms = shorter_ms
            if type(backfill.place(record)) is tuple:
                return shorter_ms
        finally:
            record.limit_ms, record.estimate_ms = limit_ms, estimate_ms
    return 0


def _fits(current: Pass, backfill: Backfill, record: JobRecord, ask: Ask) -> tuple[Grant, ...] | None:
    """Room for a different ask of the same job, without changing what is remembered of asks."""
    nodes, tenants = current.state.nodes, current.state.tenants
    shape = Shapes().of(ask, nodes, current.state.weights)
    milli, holds = shape.gpu_milli, backfill.holds()
    nodes.shift(holds, -1)
    try:
        for way in shape.ways:
            if current.policy.spec.quotas and (
                tenants.refusal(record.party, way.model, milli, record.limit_ms) is not None
                or tenants.held_back_refusal(record.party, way.model, milli, nodes.up_milli)
            ):
                continue
            grants = _PLACE(nodes, shape, way, way.pools)
            if grants is not None:
                return grants
    finally:
        nodes.shift(holds, 1)
    return None
