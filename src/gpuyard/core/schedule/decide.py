"""`decide(state, policy, now_ms) -> Plan`: the one scheduler, live and in simulation.

The ladder, from the least disruptive step to the most: use free room, use room behind a promise (backfill), take back
a guarantee (reclaim), preempt a lower class. The pass drafts on the state and leaves it as it was.

The long way is `_Decision.run` on a state without memory: every waiting job is examined in order. Short cuts give the
same plan sooner. `CheckedYard.decide` of the tests compares every plan with a whole pass (`rehearse`), with one on the
state rebuilt from its dump, and with the reference judge. The machines of `tests/property` run it for every preset.

| short cut | taken when | code | test in tests/unit/core/test_short_cuts.py |
|---|---|---|---|
| the only job | one job waits, with room and quota | `_alone` | `test_the_only_waiting_job_starts_without_a_pass` |
| full cluster | no waiting job might have room | `WaitQueue.sift` | `test_a_full_cluster_is_seen_at_once` |
| first job blocked | it waits for room and has no right to any | `_Decision.past` | `test_jobs_that_might_fit_…` |
| by force | behind it, only a job that may force room | `_sift` | `test_a_job_that_may_force_its_room_…` |
| room found | room was just looked for | `Pass.found` | `test_room_is_searched_for_once…` |
| idle plan | nothing changed since a pass decided nothing | `IdlePlan.stands` | `test_a_plan_that_decided_nothing_…` |
| idle arrival | a new job is known not to start | `fold.submit` | `test_an_arrival_that_cannot_start_…` |
| no room | a way had none, and no room came since | `State.no_room` | `test_a_way_without_room_is_remembered_…` |
| stream | a job that gets the same answer was blocked | `Walk.blocked` | `test_one_job_of_a_stream_answers_for_all` |
| behind quota | a job of its stream would delay another | `_Decision._ahead` | `test_one_refusal_behind_quota_…` |
| too long | no job of a stream ends in time | `Lane.step` | `test_a_stream_without_a_short_job_…` |
| settled | the first job for room has its promise | `_Decision._hopeless` | `test_jobs_behind_a_promise_…` |
| soonest nodes | a job is promised room | `in_time` | `test_a_promise_looks_at_few_nodes`, and test_running_jobs.py |
| few times | a promise, and guarantees held back | `unheld_from_ms` | `test_a_promise_looks_at_few_times`, the same |
| cheapest nodes | room is made by force | `VictimOrder` | `test_the_cheapest_victims_…`, and test_victims.py |
| in vain | no victim would help: quota, or too few nodes | `preempt._in_vain` | `test_no_victim_is_tried_…` |
"""

from collections.abc import Callable, Sequence

from gpuyard.core.fleet.nodes import NEVER_MS
from gpuyard.core.fleet.placing import find_ways
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.jobs.walk import FairGroup, Row, Walk
from gpuyard.core.schedule.passes import Pass, find_evicted
from gpuyard.core.schedule.policy import Backfill, BackfillFactory, Policy
from gpuyard.core.schedule.preempt import make_room
from gpuyard.core.state.idle_plan import IdlePlan
from gpuyard.core.state.state import State
from gpuyard.model import Earmark, Plan, ReasonCode, Start, Stop
from gpuyard.model.plans import NOTHING
from gpuyard.model.units import NO_LIMIT_MS

_new = tuple.__new__

Sifted = tuple[JobRecord, Sequence[list[Row]] | Sequence[FairGroup]]
"""The first job and the streams behind it that may start."""

_PREEMPTIONS_TRIED_MAX = 4
"""How many blocked jobs of one pass may look for victims."""

_STARTED, _EARMARK, _RESERVATION = ReasonCode.STARTED, ReasonCode.EARMARK, ReasonCode.RESERVATION
_ROOM, _QUOTA_AHEAD = ReasonCode.ROOM, ReasonCode.QUOTA_AHEAD

_DIFFERS = frozenset({ReasonCode.QUOTA_AHEAD, ReasonCode.BUDGET, ReasonCode.NO_TIME_LIMIT})
"""Refusals that depend on how long the job runs: another job with the same ask may get a different answer."""
_DIFFERS_IN_TIME = _DIFFERS | {ReasonCode.ROOM}
"""The same, for a backfill that promises every job a time."""

_ONE = bytes([_STARTED])
_NO_ROOM = bytes([_ROOM])

_FORCE_MAY_HELP = frozenset({ReasonCode.ROOM, ReasonCode.LIMIT, ReasonCode.PER_USER, ReasonCode.HELD_BACK})


def decide(state: State, policy: Policy, now_ms: int) -> Plan:
    """What to start, stop and keep free, from this state."""
    queue = state.queue
    if queue.order is not policy.order:
        state.reindex(policy.order)
        queue = state.queue
    if state.evicts and find_evicted(state, now_ms):
        # Rare, and no short cut knows of it.
        return rehearse(state, policy, now_ms, lambda: None)
    waiting = queue.count
    if waiting == 1 and not state.earmarks:
        # No other job to be fair to and nothing to draft: the usual case on a cluster that keeps up.
        plan = _alone(state, policy, queue.alone or queue.only(), now_ms)
        if plan is not None:
            return plan
    elif not waiting:
        return NOTHING
    idle_plan = state.idle_plan
    if idle_plan is not None and idle_plan.stands(state.change_seq, policy, now_ms):
        return idle_plan.plan._replace(waiting=waiting)
    sifted = None
    if waiting > 1 and _room_decides(state, policy):
        sifted = _sift(state, policy, now_ms)
        if sifted is not None and not sifted[1]:
            # The cluster is full, as a busy one is after every third event: no job has room.
            plan = _new(Plan, ((), (), (), (), (sifted[0].id,), _NO_ROOM, waiting))
            applies = [rule.applies for rule in policy.rules]
            state.idle_plan = IdlePlan(
                state.change_seq, policy, applies, plan, NEVER_MS, NEVER_MS, set(), set(), True
            )
            return plan
    current = Pass(state, policy, now_ms)
    try:
        decision = _Decision(current, policy.backfill, waiting)
        if sifted is not None:
            plan = decision.past(*sifted)
        else:
            plan = decision.run()
    finally:
        current.undo()
    # A backfill that promises every job a time must promise one to the next arrival too.
    if not plan.empty or policy.backfill.promises_all:
        state.idle_plan = None
    else:
        promised_ms = plan.reservations[0].at_ms if plan.reservations else NEVER_MS
        # Time alone can change the answer: victims lose their protection, and a job would outlast kept quota.
        until_ms = min(promised_ms, current.retry_ms)
        state.idle_plan = IdlePlan(
            state.change_seq,
            policy,
            decision.applies,
            plan,
            until_ms,
            promised_ms,
            decision.refused,
            decision.looked,
            decision.settled,
        )
    return plan


def _alone(state: State, policy: Policy, record: JobRecord, now_ms: int) -> Plan | None:
    """The plan for the only waiting job, if it has room and quota. Ways without room are remembered."""
    tenants, party = state.tenants, record.party
    if tenants.at_once and tenants.holding:
        return None
    guarded = tenants.at_once and policy.spec.quotas and tenants.guarded[party]
    nodes, no_room, shape = state.nodes, state.no_room, record.shape
    generation = nodes.room_generation
    rank = policy.rank
    # Written out where it is asked most: without a preference, a call would cost more than the question.
    ways = shape.ways if rank is None else rank(nodes, shape)
    for way in find_ways(nodes, shape, rank) if shape.tiers else ways:
        if guarded:
            micro = state.micro_by(shape, way, now_ms) if tenants.priced else 0
            if tenants.refusal(party, way.model, shape.gpu_milli, record.limit_ms, shape.measure, micro):
                return None
        if no_room.get(way.index) != generation:
            grants = policy.place(nodes, shape, way, way.pools)
            if grants is not None:
                job_id = record.id
                start = _new(Start, (job_id, record.attempt + 1, grants))
                return _new(Plan, ((start,), (), (), (), (job_id,), _ONE, 1))
            no_room[way.index] = generation
    return None


def _room_decides(state: State, policy: Policy) -> bool:
    """Whether a first job without room is all that keeps the others back: it can be promised a time for sure, no job
    has room set aside, and no quota or budget goes by other jobs' turns.
    """
    nodes, tenants = state.nodes, state.tenants
    if nodes.reserved_grants or nodes.closed_count or nodes.pins or nodes.slices_used or nodes.whole_reserve:
        return False
    if policy.backfill.promises_all or state.earmarks:
        return False
    return not (policy.spec.quotas and (tenants.holding or tenants.budgeted))


def _sift(state: State, policy: Policy, now_ms: int) -> Sifted | None:
    """The first job, if it waits for room and can do nothing about it, and the streams that may yet start."""
    within: Callable[[JobRecord], int] | None = None
    if policy.rules:

        def within(record: JobRecord) -> int:
            most = -1
            for rule in policy.rules:
                reach = rule.within(state, record, now_ms)
                if reach > most:
                    most = reach
            return most

    found = state.queue.sift(state.nodes.room_generation, state.most_free(), state.hopeless, within)
    if found is None:
        return None
    first = found[0]
    shape, tenants = first.shape, state.tenants
    if not shape.ways:
        return None
    if policy.spec.quotas and tenants.guarded[first.party]:
        for way in shape.ways:
            if tenants.refusal(first.party, way.model, shape.gpu_milli, first.limit_ms, shape.measure):
                # It waits for quota.
                return None
    return found


def rehearse(state: State, policy: Policy, now_ms: int, look: Callable[[], None]) -> Plan:
    """A whole pass, as `decide` makes it; `look` is called before the pass is undone."""
    current = Pass(state, policy, now_ms)
    try:
        plan = _Decision(current, policy.backfill, state.queue.count).run()
        look()
    finally:
        current.undo()
    return plan


class _Decision:
    """A pass and what it has decided so far."""

    __slots__ = (
        "_ahead",
        "_backfill",
        "_behind",
        "_codes",
        "_current",
        "_earmarks",
        "_examined",
        "_last",
        "_no_room",
        "_softens",
        "_starts",
        "_stops",
        "_tries",
        "_turned",
        "_waiting",
        "applies",
        "looked",
        "refused",
        "settled",
    )

    def __init__(self, current: Pass, backfill: BackfillFactory, waiting: int) -> None:
        self._current = current
        self._backfill = backfill
        self._waiting = waiting
        self._starts: list[Start] = []
        self._stops: list[Stop] = []
        self._earmarks: list[Earmark] = []
        self._examined: list[int] = []
        self._codes: list[int] = []
        self._ahead: dict[tuple[int, int, int], int] = {}
        """Streams of jobs that wait for quota behind others: how long one may run that does not. Until a draft."""
        self._no_room: dict[int, bool] = {}
        """Whether an ask has no hope of room, for the asks that were checked."""
        self._softens = self._last = False
        """Whether a budget sends jobs to the end, and whether their turn has come."""
        self._behind: set[tuple[int, tuple[int, int, int], tuple[int, ...]]] = set()
        """Streams of jobs that come last, because a soft budget of theirs is spent."""
        self._turned: set[int] = set()
        """Jobs that had their turn before that."""
        self._tries = _PREEMPTIONS_TRIED_MAX if current.policy.rules else 0
        self.applies = [rule.applies for rule in current.policy.rules]
        self.refused: set[tuple[int, int, int]] = set()
        """Streams refused because their start would delay a promise."""
        self.looked: set[tuple[int, int, int]] = set()
        """Streams with each job examined by itself, because the answers differ."""
        self.settled = False
        """Whether jobs without room no longer change the plan."""

    def run(self) -> Plan:
        """Go through the queue."""
        current = self._current
        state, policy = current.state, current.policy
        if state.earmarks:
            _start_earmarked(current, self._starts)
        backfill = self._backfill.begin(current)
        self._softens = policy.spec.quotas and bool(state.tenants.softened)
        walk = state.queue.walk(policy.spec.depth_per_tenant)
        left = self._go(walk, backfill, policy.spec.backfill_depth)
        if self._behind and left:
            # Their budgets are spent or set aside: what they take, nobody within budget had a use for.
            walk = state.queue.walk(policy.spec.depth_per_tenant)
            if self.settled:
                walk.drop(self._hopeless)
            self._last = True
            self._go(walk, backfill, left)
        return self._plan()

    def past(self, first: JobRecord, hopeful: Sequence[list[Row]] | Sequence[FairGroup]) -> Plan:
        """The same, when the first job is known to have no room; `hopeful` are the jobs that might have some."""
        current = self._current
        spec = current.policy.spec
        backfill = self._backfill.begin(current)
        self._examined.append(first.id)
        self._codes.append(_ROOM)
        self.settled = True
        if backfill.blocked(first, _ROOM):
            walk = current.state.queue.walk_past(first, hopeful, spec.depth_per_tenant)
            self._go(walk, backfill, spec.backfill_depth - 1)
        return self._plan()

    def _go(self, walk: Walk, backfill: Backfill, depth: int) -> int:
        """Examine one job after the other until `depth` of them were blocked; how many more may be."""
        current = self._current
        examined, codes, starts = self._examined, self._codes, self._starts
        while depth > 0:
            record = walk.next()
            if record is None:
                break
            if self._softens and self._other_turn(walk, record):
                continue
            examined.append(record.id)
            if record.earmark is not None:
                codes.append(_STARTED if any(s.job_id == record.id for s in starts) else _EARMARK)
                self.looked.add(record.stream)
                walk.blocked(record, NO_LIMIT_MS)
                continue
            if record.estimate_ms > self._ahead.get(record.stream, NEVER_MS):
                # Nothing has changed since the answer to another job of its stream.
                codes.append(_QUOTA_AHEAD)
                depth -= 1
                walk.blocked(record, NO_LIMIT_MS)
                continue
            if self.settled and current.rules and current.ruled(record) and self._roomless(record):
                examined.pop()
                walk.skip(record)
                continue
            found = backfill.place(record)
            if type(found) is tuple:
                self._ahead.clear()
                starts.append(_new(Start, (record.id, record.attempt + 1, found)))
                codes.append(_STARTED)
                walk.started(record)
                if walk.done() and (self._last or not self._behind):
                    break
                current.draft_start(record, found)
                if current.kept_quota:
                    current.spend_kept_quota(record)
                continue
            code: ReasonCode = found  # type: ignore[assignment]
            may_force = code in _FORCE_MAY_HELP and self._may_force(record)
            if may_force and self._force(record, backfill):
                codes.append(_EARMARK)
                walk.blocked(record, NO_LIMIT_MS)
                continue
            if self.settled and code is _ROOM and not may_force:
                # The next pass knows this and drops the job at once, so this pass does not show it either.
                examined.pop()
                walk.skip(record)
                continue
            codes.append(code)
            depth -= 1
            if not backfill.blocked(record, code):
                self.settled = True
                return 0
            self._note_refusal(walk, record, code, backfill)
            if backfill.settled and not self.settled:
                # The first job that waits for room is dealt with. Of the rest, only jobs that might fit still matter.
                self.settled = True
                self._ahead.clear()
                walk.drop(self._hopeless)
        return depth

    def _note_refusal(self, walk: Walk, record: JobRecord, code: ReasonCode, backfill: Backfill) -> None:
        """Go past a job that was refused, and as far as the others of its stream get the same answer."""
        if code is _RESERVATION:
            self.refused.add(record.stream)
            walk.blocked(record, backfill.window_ms)
            return
        each = code in (_DIFFERS_IN_TIME if self._backfill.promises_all else _DIFFERS)
        if each:
            self.looked.add(record.stream)
            if code is _QUOTA_AHEAD and len(record.shape.ways) == 1:
                current = self._current
                if not current.state.tenants.budgeted:
                    self._ahead[record.stream] = current.ahead_ms
        walk.blocked(record, NO_LIMIT_MS if each else 0)

    def _other_turn(self, walk: Walk, record: JobRecord) -> bool:
        """Whether it is not this job's turn: jobs over a soft budget come last, and the others only before them."""
        key = (record.leaf, record.stream, record.group)
        if self._last:
            if key not in self._behind:
                walk.skip(record)
                return True
            if record.id in self._turned:
                walk.started(record)
                return True
            return False
        if record.earmark is None and self._current.state.tenants.overspent(record.party):
            self._behind.add(key)
            walk.skip(record)
            return True
        self._turned.add(record.id)
        return False

    def _hopeless(self, record: JobRecord) -> bool:
        if record.earmark is not None:
            # Its room is already set aside and only has to become free.
            return False
        shape = record.shape
        known = self._no_room.get(shape.index)
        if known is None:
            # A pass only takes room, so an ask without room stays without; an ask that had room is examined anyway.
            known = self._no_room[shape.index] = self._current.state.hopeless(shape)
        return known and not self._may_force(record)

    def _roomless(self, record: JobRecord) -> bool:
        """Like `_hopeless`, but by searching for room."""
        return not self._current.any_room(record.shape) and not self._may_force(record)

    def _may_force(self, record: JobRecord) -> bool:
        """Whether some rule lets the job take room from other jobs."""
        if self._tries:
            state, now_ms = self._current.state, self._current.now_ms
            for applies in self.applies:
                if applies(state, record, now_ms):
                    return True
        return False

    def _force(self, record: JobRecord, backfill: Backfill) -> bool:
        """Make room for a job by stopping others. Room promised to jobs ahead of it stays theirs."""
        current, nodes = self._current, self._current.state.nodes
        self._ahead.clear()
        self._tries -= 1
        holds = backfill.holds()
        nodes.shift(holds, -1)
        room = make_room(current, record)
        nodes.shift(holds, 1)
        if room is None:
            return False
        stops, grants = room
        self._stops += stops
        current.stopping.update(stop.job_id for stop in stops)
        patience_ms = _patience_ms(current.state, stops)
        self._earmarks.append(Earmark(record.id, grants, current.now_ms + patience_ms))
        current.kept.append((record, grants))
        current.drop_kept_quota(record)
        current.draft_take(grants)
        current.set_aside(record)
        return True

    def _plan(self) -> Plan:
        return _new(
            Plan,
            (
                tuple(self._starts),
                (*self._current.evicted, *self._stops),
                tuple(self._earmarks),
                tuple(self._current.reservations),
                tuple(self._examined),
                bytes(self._codes),
                self._waiting,
            ),
        )


def _patience_ms(state: State, stops: tuple[Stop, ...]) -> int:
    """An earmark outlasts the longest grace period of the jobs that it waits for."""
    grace_ms = max(state.running[stop.job_id].klass.grace_ms for stop in stops)
    return grace_ms + state.settings.earmark_ms


def _over_quota(current: Pass, record: JobRecord, node: int) -> bool:
    state, shape = current.state, record.shape
    tenants, milli, kind = state.tenants, shape.gpu_milli, state.nodes.kind[node]
    model = state.nodes.kinds[kind].model
    micro = state.micro_by(shape, shape.way_on[kind], current.now_ms) if tenants.priced else 0
    return tenants.refusal(record.party, model, milli, record.limit_ms, shape.measure, micro) is not None or (
        tenants.held_back_refusal(record.party, model, milli, state.nodes.up_milli)
    )


def _start_earmarked(current: Pass, starts: list[Start]) -> None:
    """Start the jobs with an earmark on room that has become free."""
    state = current.state
    for job_id in sorted(state.earmarks):
        record = state.earmarks[job_id]
        assert record.earmark is not None
        grants = record.earmark.grants
        if state.nodes.overdrawn(grants) or any(state.nodes.closed[g.node] for g in grants):
            continue
        if current.policy.spec.quotas and _over_quota(current, record, grants[0].node):
            continue
        starts.append(Start(job_id, record.attempt + 1, grants))
        # The earmark already holds this room: give it back first, and let the undo take it again.
        state.nodes.give(grants)
        current.on_undo(state.nodes.take, grants)
        current.draft_start(record, grants)
    for job_id in sorted(state.earmarks):
        record = state.earmarks[job_id]
        if not record.grants:
            current.set_aside(record)
