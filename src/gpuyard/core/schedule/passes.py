"""One pass over the queue: drafts on the state, all of which are undone at the end.

The parts of a policy work through a `Pass`. It knows what has been drafted, so that a second start sees the room the
first one took, and it puts everything back at the end, whatever happens.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import merge
from typing import Protocol

from gpuyard.core.fleet.nodes import NEVER_MS
from gpuyard.core.fleet.placing import Placer, Ranker, find_ways
from gpuyard.core.fleet.shapes import Shape, Way
from gpuyard.core.jobs.order import Order
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.quota.tenants import UNMEASURED, Measure
from gpuyard.core.schedule.running_jobs import find_running
from gpuyard.core.state.state import State
from gpuyard.model import Grant, PolicySpec, ReasonCode, Reservation, Stop, StopCause
from gpuyard.model.units import NO_LIMIT_MS

_KEEPS_QUOTA = frozenset({ReasonCode.LIMIT, ReasonCode.BORROW, ReasonCode.RUNNING_JOBS, ReasonCode.PER_USER})
"""Refusals that end when another job of the same tenant or user ends: a waiting job is not overtaken for ever."""


_HELD_BACK = ReasonCode.HELD_BACK


class Rule(Protocol):
    """A right to take room from running jobs."""

    name: str
    cause: StopCause

    def applies(self, state: State, record: JobRecord, now_ms: int) -> bool:
        """Quick test: might this job take room from any job at all?"""
        ...

    def within(self, state: State, record: JobRecord, now_ms: int) -> int:
        """The largest ask, in milli-GPU, up to which `applies` says yes to jobs of the same tenant, class and GPU
        models; -1: it says no to all of them.
        """
        ...

    def rights(self, state: State, record: JobRecord, now_ms: int) -> Callable[[JobRecord], bool]:
        """The test whether the job may stop a victim. Called for each, after the earlier victims are drafted away."""
        ...

    def reaches(self, state: State, record: JobRecord) -> Callable[[int, int], bool]:
        """The quick test whether it might stop any victim of a tenant with a priority.

        Where it says no, it says no for as long as victims are drafted away.
        """
        ...


@dataclass(frozen=True, slots=True)
class PolicyParts:
    """The parts of a policy that a pass works with. The backfill is not one of them: it works with a pass."""

    spec: PolicySpec
    order: Order
    place: Placer
    rank: Ranker | None
    """The order in which ways are tried, if the placement has one; None: cheapest first."""
    rules: tuple[Rule, ...]


class QuotaReservation:
    """An earlier job of a tenant waits for quota: later jobs may overtake it only if they do not delay it.

    The time of its start is worked out on first use: most jobs behind it lack the same quota, so it is rarely needed.
    """

    __slots__ = (
        "at_ms",
        "for_job",
        "model",
        "number",
        "spare_jobs",
        "spare_measure",
        "spare_milli",
        "waiting",
    )

    def __init__(self, number: int, model: int, waiting: JobRecord) -> None:
        self.number = number
        """The tenant that lacks quota."""
        self.model = model
        self.waiting: JobRecord | None = waiting
        """The waiting job; None once the time is worked out."""
        self.for_job = waiting.id
        self.at_ms = self.spare_milli = self.spare_jobs = 0
        self.spare_measure: Measure = UNMEASURED

    def set(self, at_ms: int, spare_milli: int, spare_jobs: int, spare_measure: Measure) -> None:
        """Store the result."""
        self.waiting = None
        self.at_ms = at_ms
        """When enough of the quota will be free."""
        self.spare_milli = spare_milli
        """The quota that will be free then beyond what the job needs."""
        self.spare_jobs = spare_jobs
        self.spare_measure = spare_measure
        """Cores and memory; without bounds where nobody measures them."""

    def spares(self, shape: Shape) -> bool:
        """Whether the quota is enough for one more job beside the waiting one."""
        (cpu_milli, memory_mib), spare = shape.measure, self.spare_measure
        return (
            shape.gpu_milli <= self.spare_milli
            and self.spare_jobs > 0
            and cpu_milli <= spare[0]
            and memory_mib <= spare[1]
        )

    def spend(self, shape: Shape) -> None:
        """A job uses some of what is spare."""
        (cpu_milli, memory_mib), spare = shape.measure, self.spare_measure
        self.spare_milli -= shape.gpu_milli
        self.spare_jobs -= 1
        self.spare_measure = spare[0] - cpu_milli, spare[1] - memory_mib


def find_evicted(state: State, now_ms: int) -> tuple[Stop, ...]:
    """Attempts that have to leave now, for a taint of a node."""
    return tuple(
        [
            Stop(record.id, record.attempt, StopCause.TAINT, 0)
            for due_ms, record in state.find_leaving()
            if due_ms <= now_ms
        ]
    )


class Pass:
    """The drafts and findings of one decision."""

    __slots__ = (
        "_quotas",
        "_undo",
        "ahead_ms",
        "aside",
        "drafted",
        "evicted",
        "found",
        "kept",
        "kept_quota",
        "no_room",
        "now_ms",
        "policy",
        "reservations",
        "retry_ms",
        "rules",
        "started",
        "state",
        "stopping",
    )

    def __init__(self, state: State, policy: PolicyParts, now_ms: int) -> None:
        self.state = state
        self.policy = policy
        self.now_ms = now_ms
        self.drafted = False
        """Whether the state carries drafts: then findings hold for this pass only."""
        self.found: tuple[Way, tuple[Grant, ...]] | None = None
        """Room that was just found, until it is asked for or something is drafted: it is not searched for again."""
        self.no_room: set[int] = set()
        """Ways without room under the drafts."""
        self.reservations: list[Reservation] = []
        self.started: list[JobRecord] = []
        """The jobs drafted to start, in this order."""
        self.kept_quota: dict[int, QuotaReservation] = {}
        self.kept: list[tuple[JobRecord, tuple[Grant, ...]]] = []
        """Jobs for which room is kept, by earlier plans and by this one."""
        self.evicted = find_evicted(state, now_ms) if state.evicts else ()
        """Attempts that taints of their nodes stop."""
        self.stopping: set[int] = {stop.job_id for stop in self.evicted} if self.evicted else set()
        """These, and the victims chosen in this pass."""
        self.retry_ms = NEVER_MS
        """When the plan could change by time alone: a victim loses protection, or a job would outlast kept quota."""
        self.ahead_ms = 0
        """How long a job may run that was last refused because it would delay one that waits for quota."""
        self.aside: set[int] = set()
        """Jobs whose cost is set aside because they are promised room."""
        self._undo: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self._quotas = policy.spec.quotas
        self.rules = policy.spec.quotas and (state.tenants.ruled or state.tenants.holding)
        """Whether any quota applies to any job."""
        if state.earmarks:
            self.kept += [(r, r.earmark.grants) for r in state.earmarks.values() if r.earmark]

    # -- drafts ------------------------------------------------------------------------------------------------

    def draft_start(self, record: JobRecord, grants: tuple[Grant, ...]) -> None:
        """Act as if the job had started."""
        self.drafted, self.found = True, None
        self.state.hold(record, grants, self.now_ms)
        self._undo.append((self.state.unhold, (record, self.now_ms)))
        self.started.append(record)

    @contextmanager
    def as_if_started(self, record: JobRecord, grants: tuple[Grant, ...]) -> Iterator[None]:
        """Act as if the job had started while a question is asked that drafts nothing."""
        self.draft_start(record, grants)
        try:
            yield
        finally:
            self.started.pop()
            function, arguments = self._undo.pop()
            function(*arguments)

    def draft_take(self, grants: tuple[Grant, ...]) -> None:
        """Act as if this room were taken."""
        self.drafted, self.found = True, None
        self.state.nodes.take(grants)
        self._undo.append((self.state.nodes.give, (grants,)))

    def on_undo(self, function: Callable[..., None], *arguments: object) -> None:
        """Register something else to put back at the end."""
        self.drafted, self.found = True, None
        self._undo.append((function, arguments))

    def undo(self) -> None:
        """Put everything back, in reverse order."""
        while self._undo:
            function, arguments = self._undo.pop()
            function(*arguments)

    def draft_stop(self, victim: JobRecord) -> None:
        """Act as if an attempt were gone. The caller calls `draft_resume` before any other draft."""
        self.state.nodes.give(victim.grants)
        self._move_tenant(victim, -1)

    def draft_resume(self, victim: JobRecord) -> None:
        """The exact inverse of `draft_stop`."""
        self.state.nodes.take(victim.grants)
        self._move_tenant(victim, 1)

    def look_ahead(self, sign: int) -> None:
        """Move tenants to where they will be once all stops are confirmed and all earmarks used (1), or back (-1).

        Rights to take room by force are judged by that: room that is being freed cannot be taken twice, and room that
        is kept for a job already counts as used by its tenant.
        """
        state, tenants = self.state, self.state.tenants
        for victim in state.leaving.values():
            self._move_tenant(victim, -sign)
        for job_id in self.stopping:
            self._move_tenant(state.running[job_id], -sign)
        for record, grants in self.kept:
            if not record.grants:
                shape, model = record.shape, state.nodes.kind_of[grants[0].node].model
                tenants.move(record.party, model, shape.gpu_milli, 0, self.now_ms, sign, shape.measure)
                if tenants.budgeted and record.id not in self.aside:
                    self.commit(record, sign)

    def _move_tenant(self, victim: JobRecord, sign: int) -> None:
        tenants, milli = self.state.tenants, victim.shape.gpu_milli
        usage, stranded = victim.usage, self.state.stranded_milli(victim)
        tenants.move(victim.party, usage.model, milli, usage.rate, self.now_ms, sign, usage.measure, stranded)
        if tenants.budgeted:
            tenants.commit(victim.party, milli, self.state.micro_of(victim), sign * victim.limit_ms)

    def set_aside(self, record: JobRecord) -> None:
        """A job is promised room: later jobs of this pass may not spend what it may come to cost."""
        if self.state.tenants.budgeted and record.id not in self.aside:
            self.aside.add(record.id)
            self.commit(record, 1)
            self._undo.append((self.commit, (record, -1)))

    def commit(self, record: JobRecord, sign: int) -> None:
        """Count what a waiting job may come to cost, by its cheapest way, or count it no longer (-1)."""
        state, shape = self.state, record.shape
        micro = state.micro_least(shape, self.now_ms)
        state.tenants.commit(record.party, shape.gpu_milli, micro, sign * record.limit_ms)

    # -- finding room ------------------------------------------------------------------------------------------

    def find(self, record: JobRecord) -> tuple[Grant, ...] | ReasonCode:
        """Room for a job now, or why there is none."""
        state, policy = self.state, self.policy
        shape, nodes, no_room = record.shape, state.nodes, state.no_room
        generation = nodes.room_generation
        refused: ReasonCode | None = None
        found, self.found = self.found, None
        guarded = self.rules and (state.tenants.guarded[record.party] or state.tenants.holding)
        rank = policy.rank
        ways = shape.ways if rank is None else rank(nodes, shape)
        for way in find_ways(nodes, shape, rank) if shape.tiers else ways:
            if guarded:
                code = self._quota_refusal(record, way)
                if code is _HELD_BACK and not self._has_room(shape, way):
                    # There is no free room that another tenant could hold back.
                    continue
                if code is not None:
                    refused = refused or code
                    continue
            index = way.index
            if no_room.get(index) == generation or index in self.no_room:
                continue
            grants, kind = None, nodes.kinds[way.kind]
            if found is not None and found[0] is way:
                grants = found[1]
            elif way.node_gpus <= (kind.most if kind.most >= 0 else kind.most_free()):
                grants = policy.place(nodes, shape, way, way.pools)
            if grants is not None:
                if refused is not None:
                    # The job starts on a GPU model for which it has quota, so it no longer waits for the other one.
                    self.drop_kept_quota(record)
                return grants
            if self.drafted:
                self.no_room.add(index)
            else:
                no_room[index] = generation
        if refused is not None:
            return refused
        if not shape.ways:
            if shape.walled:
                return ReasonCode.WALL
            return ReasonCode.NEVER_FITS if shape.supported else ReasonCode.UNSUPPORTED
        return ReasonCode.ROOM

    def ruled(self, record: JobRecord) -> bool:
        """Whether any quota applies to a job."""
        tenants = self.state.tenants
        return self.rules and (tenants.guarded[record.party] or tenants.holding)

    def any_room(self, shape: Shape) -> bool:
        """Whether there is room, regardless of quotas."""
        for way in shape.ways:  # noqa: SIM110 (mostly there is one: a generator costs more than the question)
            if self._has_room(shape, way):
                return True
        return False

    def _has_room(self, shape: Shape, way: Way) -> bool:
        state, generation = self.state, self.state.nodes.room_generation
        if state.no_room.get(way.index) == generation or way.index in self.no_room:
            return False
        kind = state.nodes.kinds[way.kind]
        if way.node_gpus <= (kind.most if kind.most >= 0 else kind.most_free()):
            grants = self.policy.place(state.nodes, shape, way, way.pools)
            if grants is not None:
                self.found = (way, grants)
                return True
        if self.drafted:
            self.no_room.add(way.index)
        else:
            state.no_room[way.index] = generation
        return False

    def refused(self, record: JobRecord, way: Way) -> bool:
        """Whether a quota forbids this way."""
        return self._quotas and self._quota_refusal(record, way) is not None

    def refused_for_good(self, record: JobRecord) -> bool:
        """Whether a budget or a limit per job forbids the start, whichever jobs end."""
        tenants, shape = self.state.tenants, record.shape
        micro = self.state.micro_least(shape, self.now_ms)
        limit_ms = record.limit_ms
        return self.rules and (
            tenants.lasting_refusal(record.party, shape.gpu_milli, limit_ms, micro) is not None
        )

    def fits_by_force(self, record: JobRecord) -> tuple[Grant, ...] | None:
        """Room for a job while victims are drafted away: ignores remembered lack of room, respects quotas."""
        nodes, shape = self.state.nodes, record.shape
        for way in find_ways(nodes, shape, self.policy.rank):
            if self._quotas and self._quota_refusal(record, way, builds=False) is not None:
                continue
            kind = nodes.kinds[way.kind]
            if way.full_nodes > 1 and way.node_gpus and kind.too_few(way.node_gpus, way.full_nodes):
                continue
            grants = self.policy.place(nodes, shape, way, way.pools)
            if grants is not None:
                return grants
        return None

    def _quota_refusal(self, record: JobRecord, way: Way, *, builds: bool = True) -> ReasonCode | None:
        """The quota that forbids a start. A job that lacks quota gets a quota reservation, unless `builds` is False."""
        state = self.state
        tenants = state.tenants
        milli = record.shape.gpu_milli
        limit_ms = record.limit_ms
        model = way.model
        micro = state.micro_by(record.shape, way, self.now_ms) if tenants.priced else 0
        refusal = tenants.refusal(record.party, model, milli, limit_ms, record.shape.measure, micro)
        if refusal is not None:
            code, number = refusal
            if code is ReasonCode.BUDGET and limit_ms >= NO_LIMIT_MS:
                return ReasonCode.NO_TIME_LIMIT
            if builds and code in _KEEPS_QUOTA and number not in self.kept_quota:
                self.kept_quota[number] = QuotaReservation(number, model, record)
            return code
        if tenants.holding and tenants.held_back_refusal(record.party, model, milli, state.nodes.up_milli):
            return ReasonCode.HELD_BACK
        if self.kept_quota:
            return self._overtakes(record)
        return None

    # -- quota reservations ------------------------------------------------------------------------------------

    def settle_kept_quota(self) -> None:
        """Work out all reservations now, from the real state: the caller is about to move tenants for a what-if."""
        for kept in self.kept_quota.values():
            if kept.waiting is not None:
                self._settle(kept, kept.waiting)

    def _settle(self, kept: QuotaReservation, waiting: JobRecord) -> None:
        """Work out when the tenant will have the quota, from the expected ends of its running jobs."""
        tenants, milli = self.state.tenants, waiting.shape.gpu_milli
        number, column = kept.number, 1 + kept.model
        used, limit, ceiling = tenants.used[number], tenants.limit[number], tenants.ceiling[number]
        # What is left for other jobs beside this one: below 0, as long as it lacks some.
        total, alike = [min(limit[w], ceiling[w]) - used[w] - milli for w in (0, column)]
        more_jobs = tenants.max_running[number] - tenants.running[number]
        measured, asked = tenants.measured, waiting.shape.measure
        cpus, memory = [
            most - now - own
            for most, now, own in zip(tenants.most[number], tenants.measure[number], asked, strict=True)
        ]
        at_ms = self.now_ms + NO_LIMIT_MS
        below = find_running(self.state, self.now_ms).ends_below(self.state, number)
        running = self.state.running
        for end_ms, job_id, given_milli in merge(*below.values()):
            ended = running[job_id]
            total += given_milli
            if ended.model == kept.model:
                alike += given_milli
            more_jobs += 1
            if measured:
                cpus, memory = cpus + ended.shape.measure[0], memory + ended.shape.measure[1]
                if cpus < 0 or memory < 0:
                    continue
            if total >= 0 and alike >= 0 and more_jobs > 0:
                at_ms = end_ms
                break
        kept.set(at_ms, min(total, alike), more_jobs - 1, (cpus, memory) if measured else UNMEASURED)

    def _overtakes(self, record: JobRecord) -> ReasonCode | None:
        kept_quota = self.kept_quota
        for number in self.state.tenants.chain[record.party]:
            kept = kept_quota.get(number)
            # A job's own reservation does not block it: neither on another GPU model nor by force.
            if kept is None or kept.for_job == record.id:
                continue
            if self.delays(record, kept):
                strict = self.policy.spec.backfill == "none"
                self.ahead_ms = -1 if strict else kept.at_ms - self.now_ms
                return ReasonCode.QUOTA_AHEAD
            if not kept.spares(record.shape):
                # Started now, the job ends in time; started after this moment, it would not.
                self.retry_ms = min(self.retry_ms, kept.at_ms - record.estimate_ms + 1)
        return None

    def delays(self, record: JobRecord, kept: QuotaReservation) -> bool:
        """Whether the job that waits for quota would wait longer if this job started now."""
        if kept.waiting is not None:
            self._settle(kept, kept.waiting)
        if self.policy.spec.backfill == "none":
            return True
        return not kept.spares(record.shape) and self.now_ms + record.estimate_ms > kept.at_ms

    def quota_ms(self, record: JobRecord) -> int | None:
        """When a job that lacks quota will have it; None: it has no quota reservation."""
        own = [kept for kept in self.kept_quota.values() if kept.for_job == record.id]
        for kept in own:
            if kept.waiting is not None:
                self._settle(kept, kept.waiting)
        return max([kept.at_ms for kept in own], default=None)

    def drop_kept_quota(self, record: JobRecord) -> None:
        """Remove the quota reservations of a job that no longer waits for quota."""
        self.kept_quota = {n: kept for n, kept in self.kept_quota.items() if kept.for_job != record.id}

    def spend_kept_quota(self, record: JobRecord) -> None:
        """A job that overtakes a quota reservation and outlasts it uses up its spare quota."""
        for number in self.state.tenants.chain[record.party]:
            kept = self.kept_quota.get(number)
            if kept is None:
                continue
            if kept.waiting is not None:
                self._settle(kept, kept.waiting)
            if self.now_ms + record.estimate_ms > kept.at_ms:
                kept.spend(record.shape)
