"""Lifts, read by someone else: what each of them means for the log, and what is decided then.

The core tries lifts out with its own reading of them. Here they are read once more, from the words of `model.lifts`
alone, and applied to other copies of state and books. What is decided there is judged by those books.
"""

import json
from copy import deepcopy
from dataclasses import replace

from gpuyard.core import Explanation, State, apply, decide
from gpuyard.core.state.dump import dump, load
from gpuyard.model import (
    AddNodes,
    AskFor,
    AttemptEnded,
    BeginNow,
    Budget,
    ConfigSet,
    EndJobs,
    Event,
    ForeignGone,
    GpusTaken,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobSubmitted,
    LeaveLine,
    LendMore,
    Lift,
    LimitTime,
    NodeAdded,
    NodeUncordoned,
    NodeUp,
    OpenNode,
    OpenPools,
    Outcome,
    Plan,
    Quota,
    RaiseAttempts,
    RaiseBorrow,
    RaiseBudget,
    RaiseClassJobs,
    RaiseClassLimit,
    RaiseCores,
    RaiseLimit,
    RaiseMemory,
    RaiseNamedBudget,
    RaisePerJob,
    RaisePerUser,
    RaiseRunningJobs,
    ReleaseHold,
    Requested,
    Settings,
    Tenant,
    Ticked,
    Verb,
    WithoutAfter,
)
from harness.reference.books import Books
from harness.reference.invariants import check_plan
from harness.yard import Yard

SETTINGS = (
    RaiseLimit,
    RaiseBorrow,
    RaisePerUser,
    RaiseAttempts,
    RaisePerJob,
    RaiseRunningJobs,
    RaiseClassJobs,
    RaiseClassLimit,
    RaiseCores,
    RaiseMemory,
    RaiseNamedBudget,
    RaiseBudget,
    LendMore,
    OpenPools,
)
OF_JOB = (BeginNow, WithoutAfter, AskFor, LimitTime)


class World:
    """A copy of a yard in which things come about that have not."""

    def __init__(self, yard: Yard, job_id: int) -> None:
        self.state: State = load(json.loads(json.dumps(dump(yard.state))))
        self.books: Books = deepcopy(yard.books)
        self._keeps_books = bool(yard.books.seq)
        self.policy = yard.policy
        self.now_ms = yard.now_ms
        self.job_id = job_id
        wake_ms = self.state.wake_ms()
        if wake_ms is not None and wake_ms <= self.now_ms:
            self.apply(Ticked(self.now_ms))

    def apply(self, event: Event) -> None:
        """Enter an event in both."""
        apply(self.state, event)
        if self._keeps_books and not isinstance(event, GpusTaken):
            # The books of the judge know nobody outside the yard.
            self.books.fold(event)

    def plan(self) -> Plan:
        """What is decided."""
        self.books.now_ms = self.now_ms
        return decide(self.state, self.policy, self.now_ms)

    def starts(self, plan: Plan) -> bool:
        """Whether the job starts."""
        return self.job_id in [start.job_id for start in plan.starts]

    # -- lifts -----------------------------------------------------------------------------------------------------

    def lift(self, lifts: list[Lift]) -> None:
        """Let all of these come about: settings, fleet, jobs, and then the job itself."""
        changed = self.state.settings
        for lift in lifts:
            if isinstance(lift, SETTINGS):
                changed = with_quota(changed, lift)
        if changed != self.state.settings:
            self.apply(ConfigSet(self.now_ms, changed))
        for lift in lifts:
            self._one(lift)
        self._job(lifts)

    def _one(self, lift: Lift) -> None:
        at_ms, state = self.now_ms, self.state
        match lift:
            case OpenNode():
                if state.nodes.down[lift.node]:
                    self.apply(NodeUp(at_ms, lift.node))
                if state.nodes.cordoned[lift.node]:
                    self.apply(NodeUncordoned(at_ms, lift.node))
            case ForeignGone():
                self.apply(GpusTaken(at_ms, lift.node, 0, ""))
            case AddNodes():
                for _ in range(lift.count):
                    name = f"added-{len(state.nodes.node)}"
                    self.apply(NodeAdded(at_ms, replace(lift.like, name=name)))
            case EndJobs():
                for job_id in lift.job_ids:
                    self.apply(AttemptEnded(at_ms, job_id, state.jobs[job_id].attempt, Outcome.COMPLETED))
            case LeaveLine():
                for job_id in lift.job_ids:
                    self.apply(JobCancelled(at_ms, job_id))

    def _job(self, lifts: list[Lift]) -> None:
        at_ms, record = self.now_ms, self.state.jobs[self.job_id]
        released = any(isinstance(lift, ReleaseHold) for lift in lifts)
        if any(isinstance(lift, OF_JOB) for lift in lifts):
            job = record.job._replace(id=self.state.last_job_id + 1, begin_ms=record.begin_ms)
            spec = job.spec if record.doomed else replace(job.spec, after=tuple(record.pending))
            for lift in lifts:
                if isinstance(lift, BeginNow):
                    job = job._replace(begin_ms=0)
                elif isinstance(lift, LimitTime):
                    job = job._replace(limit_ms=lift.limit_ms)
                elif isinstance(lift, AskFor):
                    spec = replace(spec, ask=lift.ask)
                elif isinstance(lift, WithoutAfter):
                    spec = replace(spec, after=tuple(a for a in spec.after if a.job_id not in lift.others))
            self.apply(JobCancelled(at_ms, self.job_id))
            self.job_id = job.id
            self.apply(JobSubmitted(at_ms, job._replace(spec=spec)))
            if record.held and not released:
                self.apply(JobHeld(at_ms, self.job_id))
            if record.boost:
                # Whoever moved it to the top would move it there again.
                self.apply(Requested(at_ms, self.job_id, Verb.TOP, record.moved_by))
        elif released:
            self.apply(JobReleased(at_ms, self.job_id))


def with_quota(settings: Settings, lift: Lift) -> Settings:
    """Settings with one thing changed."""
    if isinstance(lift, OpenPools):
        kept = {place: wall for place, wall in settings.walls.items() if place not in lift.pools}
        return replace(settings, walls=kept)
    if isinstance(lift, RaiseAttempts):
        return replace(settings, attempts_per_user=lift.to)
    if isinstance(lift, RaiseNamedBudget):
        budgets = [
            replace(rule, gpu_ms=lift.to) if rule.name == lift.budget else rule for rule in settings.budgets
        ]
        return replace(settings, budgets=tuple(budgets))
    tenants = {tenant.path: tenant for tenant in settings.tenants}
    paths = lift.tenants if isinstance(lift, LendMore) else (lift.tenant,)  # type: ignore[union-attr]
    for path in paths:
        tenant = tenants.get(path, Tenant(path))
        quota = tenant.quota
        match lift:
            case RaiseLimit():
                quota = without(quota, "limit", lift.model)
                quota = replace(quota, limit={**quota.limit, lift.model: lift.to_milli})
            case RaiseBorrow():
                quota = without(quota, "borrow", lift.model)
                quota = replace(quota, borrow={**quota.borrow, lift.model: lift.to_milli})
            case RaisePerUser():
                quota = replace(quota, max_gpus_per_user=lift.to_milli)
            case RaisePerJob():
                quota = replace(quota, max_gpus_per_job=lift.to_milli)
            case RaiseRunningJobs():
                quota = replace(quota, max_running_jobs=lift.to)
            case RaiseClassLimit():
                given = quota.classes[lift.klass]
                quota = replace(
                    quota, classes={**quota.classes, lift.klass: replace(given, milli=lift.to_milli)}
                )
            case RaiseClassJobs():
                given = quota.classes[lift.klass]
                quota = replace(quota, classes={**quota.classes, lift.klass: replace(given, running=lift.to)})
            case RaiseCores():
                quota = replace(quota, max_cpu_milli=lift.to_milli)
            case RaiseMemory():
                quota = replace(quota, max_memory_mib=lift.to_mib)
            case LendMore():
                lent = {name: milli for name, milli in quota.lend.items() if name != lift.model}
                quota = replace(without(quota, "lend", lift.model), lend=lent)
            case RaiseBudget():
                assert tenant.budget is not None
                tenant = replace(tenant, budget=Budget(lift.to_gpu_ms, tenant.budget.window_ms))
        tenants[path] = replace(tenant, quota=quota)
    return replace(settings, tenants=tuple(tenants.values()))


def without(quota: Quota, kind: str, model: str) -> Quota:
    """The same without a percentage."""
    parts = {each: dict(found) for each, found in quota.percentages.items()}
    parts.get(kind, {}).pop(model, None)
    return replace(quota, percentages=parts)


def judge(yard: Yard, told: Explanation, *, books: bool = True) -> None:
    """All lifts let a job start; all but one do not. Every plan made on the way is checked against the books."""
    assert told.reasons == () or told.judged, "no way was found to let it start"
    assert None not in [reason.lift for reason in told.reasons]
    for left_out in (None, *told.reasons):
        world = World(yard, told.job_id)
        world.lift([r.lift for r in told.reasons if r is not left_out and r.lift is not None])
        plan = world.plan()
        if books:
            check_plan(world.books, world.policy.spec, plan, world.now_ms)
        if left_out is None:
            assert world.starts(plan), f"all is lifted, and it does not start: {plan}"
        else:
            assert not world.starts(plan), f"it starts although this is not lifted: {left_out}"
