"""`decide(state, policy, now_ms) -> Plan`: the one scheduler, live and in simulation.

The ladder, from what disturbs nobody to what does: room that is free, room behind a promise (backfill), a guarantee
taken back (reclaim), a lower class preempted. The state is drafted on and left as it was.
"""

from gpuyard.core.passes import Pass, free_room
from gpuyard.core.policy import Backfill, Policy
from gpuyard.core.preempt import make_room
from gpuyard.core.records import JobRecord
from gpuyard.core.state import State
from gpuyard.model import Earmark, Plan, ReasonCode, Start, Stop
from gpuyard.model.plans import NOTHING
from gpuyard.model.units import NO_LIMIT_MS

_new = tuple.__new__

_PREEMPTIONS_TRIED_MAX = 4
"""How many blocked jobs of one pass may look for victims."""

_RESERVATION = ReasonCode.RESERVATION
_DIFFERS = frozenset({ReasonCode.QUOTA_AHEAD, ReasonCode.BUDGET})
"""Refusals that depend on how long the job runs: others that ask for the same may get another answer."""

_ONE = bytes([ReasonCode.STARTED])

_FORCE_MAY_HELP = frozenset(
    {ReasonCode.ROOM, ReasonCode.RESERVATION, ReasonCode.LIMIT, ReasonCode.HELD_BACK}
)


def decide(state: State, policy: Policy, now_ms: int) -> Plan:
    """What to start, stop and keep free, from this state."""
    if state.queue.order is not policy.order:
        state.reindex(policy.order)
    waiting = state.queue.count
    if not waiting:
        return NOTHING
    if waiting == 1 and not state.earmarks:
        # Nobody to be fair to and nothing to draft: most moments of a cluster that keeps up are like this.
        record = state.queue.only()
        tenants = state.tenants
        if not tenants.holding and (not tenants.guarded[record.leaf] or not policy.spec.quotas):
            found = free_room(state, policy, record)
            if found is not None:
                job_id = record.id
                start = _new(Start, (job_id, record.attempt + 1, found))
                return _new(Plan, ((start,), (), (), (), (job_id,), _ONE, 1))
    current = Pass(state, policy, now_ms)
    try:
        return _run(current, waiting)
    finally:
        current.undo()


def _run(current: Pass, waiting: int) -> Plan:
    state, policy, now_ms = current.state, current.policy, current.now_ms
    starts: list[Start] = []
    stops: list[Stop] = []
    earmarks: list[Earmark] = []
    examined: list[int] = []
    codes = bytearray()
    if state.earmarks:
        _start_earmarked(current, starts)
    begun = {start.job_id for start in starts}
    backfill = policy.backfill.begin(current)
    walk = state.queue.walk(policy.spec.depth_per_tenant)
    tries = _PREEMPTIONS_TRIED_MAX if policy.rules else 0
    depth = policy.spec.backfill_depth
    while depth > 0:
        record = walk.next()
        if record is None:
            break
        examined.append(record.id)
        if record.earmark is not None:
            codes.append(ReasonCode.STARTED if record.id in begun else ReasonCode.EARMARK)
            walk.blocked(record, NO_LIMIT_MS)
            continue
        found = backfill.place(record)
        if type(found) is tuple:
            starts.append(Start(record.id, record.attempt + 1, found))
            codes.append(ReasonCode.STARTED)
            if len(examined) == waiting:
                break
            _draft(current, record, found, backfill)
            walk.started(record)
            continue
        code: ReasonCode = found  # type: ignore[assignment]
        if tries and code in _FORCE_MAY_HELP:
            tries -= 1
            room = make_room(current, record)
            if room is not None:
                stops += room[0]
                current.stopping.update(stop.job_id for stop in room[0])
                earmark = Earmark(record.id, room[1], now_ms + _patience_ms(state, room[0]))
                earmarks.append(earmark)
                current.draft_take(earmark.grants)
                codes.append(ReasonCode.EARMARK)
                walk.blocked(record, NO_LIMIT_MS)
                continue
        codes.append(code)
        depth -= 1
        if not backfill.blocked(record, code):
            break
        if code is _RESERVATION:
            walk.blocked(record, backfill.window_ms)
        else:
            walk.blocked(record, NO_LIMIT_MS if code in _DIFFERS else 0)
    return Plan(
        tuple(starts),
        tuple(stops),
        tuple(earmarks),
        tuple(current.reservations),
        tuple(examined),
        bytes(codes),
        waiting,
    )


def _draft(current: Pass, record: JobRecord, grants: tuple, backfill: Backfill) -> None:  # type: ignore[type-arg]
    current.draft_start(record, grants)
    if current.walls:
        current.spend_wall(record)
    backfill.started(record, grants)


def _patience_ms(state: State, stops: tuple[Stop, ...]) -> int:
    """An earmark outlasts the longest grace of those it waits for."""
    grace_ms = max(state.running[stop.job_id].klass.grace_ms for stop in stops)
    return grace_ms + state.settings.earmark_ms


def _start_earmarked(current: Pass, starts: list[Start]) -> None:
    """Start the jobs whose slices have become free."""
    state = current.state
    for job_id in sorted(state.earmarks):
        record = state.earmarks[job_id]
        assert record.earmark is not None
        grants = record.earmark.grants
        if state.nodes.overdrawn(grants) or not all(state.nodes.schedulable(g.node) for g in grants):
            continue
        model = state.nodes.kinds[state.nodes.kind[grants[0].node]].model
        if (
            current.policy.spec.quotas
            and state.tenants.refusal(record.leaf, model, record.shape.gpu_milli, record.limit_ms) is not None
        ):
            continue
        starts.append(Start(job_id, record.attempt + 1, grants))
        # Its room is taken already, by the earmark: give that back first, and take it again on undoing.
        state.nodes.give(grants)
        current.on_undo(state.nodes.take, grants)
        current.draft_start(record, grants)
