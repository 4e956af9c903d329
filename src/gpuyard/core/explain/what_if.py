"""Lifts as ordinary events, and what happens to a job when they are applied.

Nothing is computed here: a lift becomes the events that would be in the log if it had happened, they are folded into a
state apart from the real one, and `decide` runs again.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from gpuyard.core.fleet.claims import pinned_mask
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.decide import decide
from gpuyard.core.schedule.policy import Policy
from gpuyard.core.state.dump import dump, load
from gpuyard.core.state.fold import apply
from gpuyard.core.state.state import State
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
    Job,
    JobCancelled,
    JobChanged,
    JobHeld,
    JobReleased,
    JobSubmitted,
    LayoutReleased,
    LeaveLine,
    LendMore,
    Lift,
    LimitTime,
    NamedBudget,
    NodeAdded,
    NodeUncordoned,
    NodeUp,
    OpenNode,
    OpenPools,
    Outcome,
    Percentage,
    Plan,
    Quota,
    QuotaLift,
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
    ReleaseLayout,
    Requested,
    Settings,
    Tenant,
    Ticked,
    Verb,
    WithoutAfter,
)
from gpuyard.model.lifts import JobLift

T = TypeVar("T")

_MANY = 100
"""Above this many, jobs that leave the queue are removed together."""


class Sandbox(Protocol):
    """Runs work on a state that is discarded afterwards: a copy, or a process that is thrown away."""

    def __call__(self, work: Callable[[State], T]) -> T:
        """Return the result of the work, which may change the state that it gets."""
        ...


def copy_sandbox(state: State) -> Sandbox:
    """Runs each work on its own copy."""
    plain = dump(state)

    def apart(work: Callable[[State], T]) -> T:
        return work(load(plain))

    return apart


class Trial:
    """A state to which hypothetical events may be applied."""

    def __init__(self, state: State, policy: Policy, job_id: int, now_ms: int) -> None:
        self.state = state
        self.policy = policy
        self.job_id = job_id
        """The watched job. It has another id once it was submitted again."""
        self.now_ms = max(now_ms, self.state.now_ms)
        wake_ms = self.state.wake_ms()
        if wake_ms is not None and wake_ms <= self.now_ms:
            apply(self.state, Ticked(self.now_ms))

    @property
    def record(self) -> JobRecord:
        """The watched job."""
        return self.state.jobs[self.job_id]

    def lift(self, lifts: Iterable[Lift]) -> None:
        """Apply these lifts."""
        wanted = list(lifts)
        around = _around(self.state, wanted, self.now_ms)
        leaving = [event.job_id for event in around if type(event) is JobCancelled]
        if len(leaving) > _MANY:
            _step_aside(self.state, leaving)
        for event in around:
            apply(self.state, event)
        # These events may have met dependencies of the job.
        events, self.job_id = _of_job(self.state, self.job_id, wanted, self.now_ms)
        for event in events:
            apply(self.state, event)

    def decide(self) -> Plan:
        """The plan for this state."""
        return decide(self.state, self.policy, self.now_ms)

    def starts(self) -> bool:
        """Whether the job starts at once. A job for which others are being stopped does not: it waits for them."""
        return any([start.job_id == self.job_id for start in self.decide().starts])


class Trials:
    """As many trials of one state as needed, each from the beginning."""

    def __init__(self, apart: Sandbox, policy: Policy, job_id: int, now_ms: int) -> None:
        self._apart = apart
        self._policy = policy
        self._job_id = job_id
        self._now_ms = now_ms

    def ask(self, work: Callable[[Trial], T]) -> T:
        """The result of some work in a fresh trial."""
        return self._apart(lambda state: work(Trial(state, self._policy, self._job_id, self._now_ms)))

    def starts(self, lifts: Sequence[Lift]) -> bool:
        """Whether the job starts with these lifts and nothing else."""

        def started(trial: Trial) -> bool:
            trial.lift(lifts)
            return trial.starts()

        return self.ask(started)


def _step_aside(state: State, job_ids: Iterable[int]) -> None:
    """Remove jobs that are about to be cancelled from the queue together, which is faster than one by one."""
    records = [state.jobs[job_id] for job_id in job_ids if job_id not in state.deferred]
    state.queue.remove_all(records)
    state.deferred.update({record.id: record for record in records})


def _around(state: State, lifts: Sequence[Lift], at_ms: int) -> list[Event]:
    """The events of all lifts that change something other than the job itself."""
    events: list[Event] = []
    quota_lifts = [lift for lift in lifts if isinstance(lift, QuotaLift)]
    if quota_lifts:
        events.append(ConfigSet(at_ms, _settings(state.settings, quota_lifts)))
    for lift in lifts:
        match lift:
            case OpenNode(number):
                events += [NodeUp(at_ms, number)] if state.nodes.down[number] else []
                events += [NodeUncordoned(at_ms, number)] if state.nodes.cordoned[number] else []
            case ForeignGone(number):
                events.append(GpusTaken(at_ms, number, 0, ""))
            case ReleaseLayout(number):
                events.append(LayoutReleased(at_ms, number, pinned_mask(state.nodes, number)))
            case AddNodes(like, count):
                names = [f"{like.name}+{number}" for number in range(len(state.nodes.node), 1 << 30)[:count]]
                events += [NodeAdded(at_ms, replace(like, name=name)) for name in names]
            case EndJobs(job_ids):
                attempts = [(each, state.jobs[each].attempt) for each in job_ids]
                events += [AttemptEnded(at_ms, *each, Outcome.COMPLETED) for each in attempts]
            case LeaveLine(job_ids):
                events += [JobCancelled(at_ms, each) for each in job_ids]
            case _:
                pass
    return events


def _of_job(state: State, job_id: int, lifts: Sequence[Lift], at_ms: int) -> tuple[list[Event], int]:
    """The events that change the job, and the id under which it then waits."""
    events: list[Event] = []
    of_job = [lift for lift in lifts if isinstance(lift, JobLift)]
    record, released = state.jobs[job_id], any(isinstance(lift, ReleaseHold) for lift in lifts)
    if of_job:
        job = _changed(record, of_job, state.last_job_id + 1)
        events += [JobCancelled(at_ms, job_id), JobSubmitted(at_ms, job)]
        job_id = job.id
        if record.held and not released:
            events.append(JobHeld(at_ms, job_id))
        if record.line_ms != record.job.submitted_ms:
            events.append(JobChanged(at_ms, job, record.joined_ms, record.nice_ms))
        if record.boost:
            events.append(Requested(at_ms, job_id, Verb.TOP, record.moved_by))
    elif released:
        events.append(JobReleased(at_ms, job_id))
    return events, job_id


def _changed(record: JobRecord, lifts: list[JobLift], new_id: int) -> Job:
    """The job as it would be submitted: of the same age, and changed only as the lifts say."""
    job, spec = record.job, record.job.spec
    begin_ms, limit_ms = record.begin_ms, job.limit_ms
    if not record.doomed:
        # Settled dependencies are dropped; where one is enough, a failed one must not count against the job.
        spec = replace(spec, after=tuple(record.pending))
    for lift in lifts:
        match lift:
            case BeginNow():
                begin_ms = 0
            case WithoutAfter(_id, others):
                spec = replace(spec, after=tuple([a for a in spec.after if a.job_id not in others]))
            case AskFor(_id, ask):
                spec = replace(spec, ask=ask)
            case LimitTime(_id, most_ms):
                limit_ms = min(limit_ms or most_ms, most_ms)
    return job._replace(id=new_id, spec=spec, begin_ms=begin_ms, limit_ms=limit_ms)


def _settings(settings: Settings, lifts: list[QuotaLift]) -> Settings:
    """Settings with some quotas changed."""
    tenants = {tenant.path: tenant for tenant in settings.tenants}

    def quota(path: str) -> Quota:
        return tenants[path].quota if path in tenants else Quota()

    def change(path: str, **fields: Any) -> None:
        tenant = tenants.get(path) or Tenant(path)
        tenants[path] = replace(tenant, quota=replace(tenant.quota, **fields))

    def without(path: str, kind: str, model: str) -> dict[str, dict[str, Percentage]]:
        """What stays in percent where a number takes the place of a percentage."""
        every = quota(path).percentages
        return {
            **every,
            **({kind: {n: part for n, part in every[kind].items() if n != model}} if kind in every else {}),
        }

    def raised(budget: NamedBudget, to: int) -> NamedBudget:
        return replace(budget, micro_usd=to) if budget.micro_usd else replace(budget, gpu_ms=to)

    for lift in lifts:
        match lift:
            case RaiseLimit(path, model, to):
                percentages = without(path, "limit", model)
                change(path, limit={**quota(path).limit, model: to}, percentages=percentages)
            case RaiseBorrow(path, model, to):
                percentages = without(path, "borrow", model)
                change(path, borrow={**quota(path).borrow, model: to}, percentages=percentages)
            case RaisePerUser(path, to):
                change(path, max_gpus_per_user=to)
            case OpenPools(pools):
                walls = {place: wall for place, wall in settings.walls.items() if place not in pools}
                settings = replace(settings, walls=walls)
            case RaiseAttempts(to):
                settings = replace(settings, attempts_per_user=to)
            case RaisePerJob(path, to):
                change(path, max_gpus_per_job=to)
            case RaiseRunningJobs(path, to):
                change(path, max_running_jobs=to)
            case RaiseClassLimit(path, klass, to):
                given = quota(path).classes
                change(path, classes={**given, klass: replace(given[klass], milli=to)})
            case RaiseClassJobs(path, klass, to):
                given = quota(path).classes
                change(path, classes={**given, klass: replace(given[klass], running=to)})
            case RaiseCores(path, to):
                change(path, max_cpu_milli=to)
            case RaiseMemory(path, to):
                change(path, max_memory_mib=to)
            case LendMore(paths, model):
                for path in paths:
                    lend = {n: milli for n, milli in quota(path).lend.items() if n != model}
                    change(path, lend=lend, percentages=without(path, "lend", model))
            case RaiseBudget(path, to):
                tenant = tenants[path]
                assert tenant.budget is not None
                tenants[path] = replace(tenant, budget=Budget(to, tenant.budget.window_ms))
            case RaiseNamedBudget(name, to):
                settings = replace(
                    settings,
                    budgets=tuple(
                        [raised(each, to) if each.name == name else each for each in settings.budgets]
                    ),
                )
    return replace(settings, tenants=tuple(tenants.values()))
