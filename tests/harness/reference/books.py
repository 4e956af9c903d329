"""A second set of books: what the log says, kept the slow and obvious way.

Written from the model alone, so that it can disagree with the core: no free-count sets, no columns, no caches. Every
question is answered by going through all live jobs. `invariants` judges plans and the core's own tables by it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from gpuyard.model import (
    CATALOGUE,
    Ask,
    AttemptConfirmed,
    AttemptEnded,
    AttemptMeasured,
    AttemptStarted,
    AttemptState,
    AttemptStopping,
    BudgetReached,
    Capability,
    CheckpointSeen,
    ClockSet,
    ConfigSet,
    DemandLearned,
    Earmark,
    EarmarkDropped,
    EarmarkSet,
    Effect,
    EngineSeen,
    Event,
    Grant,
    Job,
    JobCancelled,
    JobChanged,
    JobClass,
    JobContinued,
    JobEntered,
    JobHeld,
    JobReleased,
    JobState,
    JobSubmitted,
    JobSuspended,
    LayoutMade,
    LayoutPinned,
    LayoutReleased,
    Mig,
    Milli,
    MonthClosed,
    NamedBudget,
    NameUnbound,
    Node,
    NodeAdded,
    NodeCordoned,
    NodeDown,
    NodeMarked,
    NodeUncordoned,
    NodeUp,
    Outcome,
    Requested,
    Settings,
    StopCause,
    Taint,
    TasksSubmitted,
    Ticked,
    TokenMade,
    TokenRevoked,
    Verb,
    WaitsSeen,
)
from gpuyard.model.units import MILLI, NO_LIMIT_MS
from harness.reference.cutting import Pieces, charged_milli
from harness.reference.marked import Marked, admits, labels_of, marked, stays_for_ms, taints_of

DEFAULT_WEIGHT = 1000
"""Milli-dollars an hour of a GPU model nobody has priced."""

_REQUEUED = (Outcome.PREEMPTED, Outcome.NODE_FAIL)


def ask_milli(ask: Ask) -> int:
    """Milli-GPU of a whole job."""
    return ask.gpus.count * each_milli(ask) * ask.tasks


def each_milli(ask: Ask) -> int:
    """Milli-GPU of one GPU, share or slice that is asked for."""
    if isinstance(ask.gpus, Mig):
        return charged_milli(ask.gpus.profile)
    return ask.gpus.milli if isinstance(ask.gpus, Milli) else MILLI


def wanted_of(ask: Ask) -> set[Capability]:
    """What an engine must be able to do."""
    found = {Capability.GANG} if ask.tasks > 1 else set()
    found |= {Capability.SHARES} if isinstance(ask.gpus, Milli) else set()
    return found | ({Capability.SLICES} if isinstance(ask.gpus, Mig) else set())


def chain(path: str) -> list[str]:
    """A tenant and all above it, the root (an empty path) last."""
    found = [path]
    while path:
        path = path.rpartition("/")[0]
        found.append(path)
    return found


def counted(rule: NamedBudget, leaf: str, klass: str, labels: tuple[tuple[str, str], ...] = ()) -> bool:
    """Whether a named budget counts the jobs of a leaf and a class."""
    return (
        (not rule.tenant or rule.tenant in chain(leaf))
        and rule.klass in ("", klass)
        and set(rule.labels) <= set(labels)
    )


@dataclass
class Charge:
    """GPU time of an attempt, for budgets and the fair share."""

    leaf: str
    milli: int
    rate: int
    """What it is charged per millisecond."""
    started_ms: int
    ended_ms: int | None = None
    ended_seq: int = 0
    """Which event of the log ended it."""
    klass: str = ""
    """Its class when it ended."""
    skipped: list[tuple[int, int]] = field(default_factory=list)
    """Times that the clock left out while it ran."""

    def counts_for(self, rule: NamedBudget) -> bool:
        """Whether a named budget counts it."""
        return counted(rule, self.leaf, self.klass)

    def stretches(self, until_ms: int) -> Iterator[tuple[int, int]]:
        """When it ran, before a time: from, to."""
        from_ms = self.started_ms
        end_ms = until_ms if self.ended_ms is None else min(until_ms, self.ended_ms)
        for left_ms, at_ms in self.skipped:
            yield from_ms, min(end_ms, left_ms)
            from_ms = at_ms
        yield from_ms, end_ms

    def all_ms(self, from_ms: int, to_ms: int) -> int:
        """The same by the clock in force at its end: what it ran before the clock was set lies next to the rest."""
        end_ms = to_ms if self.ended_ms is None else min(to_ms, self.ended_ms)
        later_ms = sum([at_ms - left_ms for left_ms, at_ms in self.skipped])
        return max(0, end_ms - max(from_ms, self.started_ms + later_ms))


@dataclass
class Attempt:
    """A try that holds GPUs."""

    number: int
    grants: tuple[Grant, ...]
    started_ms: int
    end_ms: int
    """When it is promised to end."""
    model: str
    charge: Charge
    phase: AttemptState = AttemptState.STARTING
    cause: StopCause | None = None
    for_job: int = 0
    suspended_ms: int = 0
    checkpoint_ms: int = 0


@dataclass
class Live:
    """A job that has not ended."""

    job: Job
    leaf: str
    limit_ms: int
    attempts: int = 0
    attempt: Attempt | None = None
    held: bool = False
    boost: int = 0
    joined_ms: int = 0
    nice_ms: int = 0
    deferred: bool = False
    preemptions: int = 0
    saved_ms: int = 0
    earmark: Earmark | None = None

    @property
    def milli(self) -> int:
        """Milli-GPU of the whole job."""
        return ask_milli(self.job.spec.ask)

    @property
    def line_ms(self) -> int:
        """By which time it waits in its line."""
        return max(0, (self.joined_ms or self.job.submitted_ms) + self.nice_ms)

    @property
    def eligible(self) -> bool:
        """Whether it waits and may start."""
        return self.attempt is None and not self.deferred

    @property
    def estimate_ms(self) -> int:
        """How long the next attempt may take."""
        if not self.saved_ms or self.limit_ms >= NO_LIMIT_MS:
            return self.limit_ms
        return max(1, self.limit_ms - self.saved_ms) + self.job.spec.restart_cost_ms


@dataclass
class Books:
    """Everything that happened, as far as it still matters."""

    settings: Settings = field(default_factory=Settings)
    nodes: list[Node] = field(default_factory=list)
    down: set[int] = field(default_factory=set)
    cordoned: set[int] = field(default_factory=set)
    jobs: dict[int, Live] = field(default_factory=dict)
    ended: dict[int, JobState] = field(default_factory=dict)
    keys: set[tuple[int, int]] = field(default_factory=set)
    """Every (job, attempt) there ever was."""
    paths: list[str] = field(default_factory=lambda: [""])
    """Tenants seen."""
    charges: list[Charge] = field(default_factory=list)
    budget_since: dict[str, int] = field(default_factory=dict)
    """Which event of the log set a tenant's budget."""
    named_since: dict[str, int] = field(default_factory=dict)
    """The same for named budgets."""
    lacks: dict[str, tuple[Capability, ...]] = field(default_factory=dict)
    """What engines cannot do, by cluster."""
    marked: dict[int, Marked] = field(default_factory=dict)
    """What people set on nodes, besides what the file says."""
    tainted_since: dict[tuple[int, str], int] = field(default_factory=dict)
    """By node and key: since when a taint stops jobs there."""
    pins: dict[tuple[int, int], Pieces] = field(default_factory=dict)
    """Layouts that GPUs keep, by node and GPU; one without slices stays whole."""
    made: dict[tuple[int, int], tuple[bool, str, int]] = field(default_factory=dict)
    """What the engine said of them: whether it is so, what went wrong, and how long it took."""
    now_ms: int = 0
    event_ms: int = 0
    """When the last event was."""
    seq: int = 0
    """How many events there were."""

    # -- questions -------------------------------------------------------------------------------------------------

    def ask_of(self, live: Live) -> Ask:
        """What a job asks for by now: a level that was required for a time is so no longer in the next period."""
        ask, period_ms = live.job.spec.ask, self.settings.period_ms
        began_ms = self.event_ms // period_ms * period_ms
        if ask.level_ms and live.job.submitted_ms + ask.level_ms <= began_ms:
            return replace(ask, level_required=False)
        return ask

    def klass(self, live: Live) -> JobClass:
        """The class of a job under the settings in force."""
        by_name = {c.name: c for c in self.settings.classes}
        return by_name.get(live.job.spec.klass) or by_name[self.settings.default_class]

    def running(self) -> list[Live]:
        """Jobs that hold GPUs, by id."""
        return [live for _id, live in sorted(self.jobs.items()) if live.attempt is not None]

    def waiting(self) -> list[Live]:
        """Jobs that wait and may start, by id."""
        return [live for _id, live in sorted(self.jobs.items()) if live.eligible]

    def labels(self, number: int) -> dict[str, str]:
        """The labels of a node."""
        return labels_of(self.nodes[number], self.settings, self.marked.get(number))

    def taints(self, number: int) -> list[Taint]:
        """The taints of a node."""
        return taints_of(self.nodes[number], self.settings, self.marked.get(number))

    def admitted(self, ask: Ask, number: int) -> bool:
        """Whether the labels and taints of a node let an ask in."""
        return admits(ask, self.labels(number), self.taints(number))

    def leaving(self, now_ms: int) -> set[int]:
        """The jobs that a taint of a node stops by now."""
        return {
            live.job.id
            for live in self.running()
            if live.attempt
            and live.attempt.phase in (AttemptState.STARTING, AttemptState.RUNNING, AttemptState.SUSPENDED)
            and any(
                now_ms >= max(self.tainted_since[grant.node, taint.key], live.attempt.started_ms) + within_ms
                for grant in live.attempt.grants
                for taint in self.taints(grant.node)
                if taint.effect is Effect.NO_EXECUTE
                and (within_ms := stays_for_ms(live.job.spec.ask, taint)) is not None
            )
        }

    def _note_marks(self) -> None:
        """What is kept where a job may no longer start is given up; a taint that stops jobs has its time."""
        self.tainted_since = {
            (number, taint.key): self.tainted_since.get((number, taint.key), self.now_ms)
            for number in range(len(self.nodes))
            for taint in self.taints(number)
            if taint.effect is Effect.NO_EXECUTE
        }
        for live in self.jobs.values():
            kept = live.earmark.grants if live.earmark else ()
            if not all(self.admitted(live.job.spec.ask, grant.node) for grant in kept):
                live.earmark = None

    def schedulable(self, number: int) -> bool:
        """Whether a node takes new work."""
        return number not in self.down and number not in self.cordoned

    def models(self) -> list[str]:
        """GPU models of the fleet in order of appearance; nodes without GPUs have the empty one."""
        return list(dict.fromkeys(model_of(node) for node in self.nodes))

    def up_milli(self, model: str | None = None) -> int:
        """GPUs of nodes that are up, of one model or of all."""
        return sum(
            node.gpus * MILLI
            for number, node in enumerate(self.nodes)
            if number not in self.down and model in (None, model_of(node))
        )

    def used(self, path: str, model: str | None = None) -> int:
        """Milli-GPU that a tenant's subtree holds, of one model or of all."""
        return sum(
            live.milli
            for live in self.running()
            if path in chain(live.leaf) and live.attempt and model in (None, live.attempt.model)
        )

    def run_by(self, path: str) -> int:
        """How many jobs a tenant's subtree runs."""
        return sum(path in chain(live.leaf) for live in self.running())

    def grants(self, *, earmarks: bool, without: Iterable[int] = ()) -> list[Grant]:
        """All that is held, with or without what is only kept, except by some jobs."""
        left_out = set(without)
        held = [g for live in self.running() if live.job.id not in left_out for g in live.attempt.grants]  # type: ignore[union-attr]
        if earmarks:
            for live in self.jobs.values():
                if live.earmark is not None and live.job.id not in left_out:
                    held += live.earmark.grants
        return held

    def leaf(self, path: str) -> str:
        """Where a job of this path is counted: a team that has members counts its own jobs as one more."""
        has_members = any(p.startswith(f"{path}/") for p in self.paths)
        return f"{path}/-" if path and has_members else path

    def weight_of(self, model: str) -> int:
        """What an hour of a GPU counts."""
        if model in self.settings.share_weights:
            return self.settings.share_weights[model]
        own = {m.name: m for m in self.settings.gpu_models}.get(model) or CATALOGUE.get(model)
        return max(1, own.list_price_micro_usd_h // 1000) if own else DEFAULT_WEIGHT

    def rate(self, ask: Ask, node: Node) -> int:
        """The largest of the GPU, CPU and memory parts of a node, per task, times the model's weight."""
        size = max(1, node.gpus) * MILLI
        part = max(
            ask.gpus.count * each_milli(ask),
            ask.cpu_milli * size // max(1, node.cpu_milli),
            ask.memory_mib * size // max(1, node.memory_mib),
        )
        return part * ask.tasks * self.weight_of(model_of(node)) // MILLI

    def spent(self, path: str, window_ms: int) -> int:
        """Milli-GPU x ms of attempts that ended, as far as they lie in the current window of a budget."""
        start_ms = self.now_ms // window_ms * window_ms
        return sum(
            charge.milli * charge.all_ms(start_ms, self.now_ms)
            for charge in self.charges
            if charge.ended_seq > self.budget_since[path] and path in chain(charge.leaf)
        )

    def spent_of(self, rule: NamedBudget) -> int:
        """The same of a named budget, in a window that began before everything."""
        return sum(
            charge.milli * charge.all_ms(0, self.now_ms)
            for charge in self.charges
            if charge.ended_seq > self.named_since[rule.name] and charge.counts_for(rule)
        )

    def committed(self, path: str) -> int:
        """Milli-GPU x ms that running attempts may come to spend."""
        return sum(live.milli * live.limit_ms for live in self.running() if path in chain(live.leaf))

    def usage(self, path: str, until_ms: int) -> float:
        """What a tenant was charged in all periods before a time, each decayed by its age."""
        period_ms = self.settings.period_ms
        factor = 2.0 ** (-period_ms / self.settings.half_life_ms)
        total = 0.0
        for charge in self.charges:
            if path in chain(charge.leaf):
                for from_ms, to_ms in charge.stretches(until_ms):
                    for start_ms in range(from_ms // period_ms * period_ms, to_ms, period_ms):
                        ran_ms = min(to_ms, start_ms + period_ms) - max(from_ms, start_ms)
                        total += charge.rate * ran_ms * factor ** ((until_ms - start_ms) // period_ms)
        return total

    # -- the fold --------------------------------------------------------------------------------------------------

    def fold(self, event: Event) -> None:
        """Enter one event."""
        assert event.at_ms >= self.now_ms, f"time went back: {event}"
        self.now_ms = self.event_ms = event.at_ms
        self.seq += 1
        match event:
            case ConfigSet():
                self._configure(event.settings)
                self._note_marks()
            case NodeAdded():
                if model_of(event.node) not in self.models():
                    # A new GPU model is a new column of every quota: jobs are assigned to tenants anew.
                    self._assign()
                self.nodes.append(event.node)
                self._note_marks()
            case EngineSeen():
                self.lacks[event.cluster] = event.lacks
                for live in self.jobs.values():
                    kept = live.earmark.grants if live.earmark else ()
                    lost = wanted_of(live.job.spec.ask) & set(event.lacks)
                    if lost and any(self.nodes[grant.node].cluster == event.cluster for grant in kept):
                        live.earmark = None
            case NodeMarked():
                self.marked[event.node] = marked(self.marked.get(event.node), event)
                self._note_marks()
            case NodeDown():
                self.down.add(event.node)
            case NodeUp():
                self.down.discard(event.node)
            case NodeCordoned():
                self.cordoned.add(event.node)
            case NodeUncordoned():
                self.cordoned.discard(event.node)
            case JobSubmitted(at_ms, job):
                self._submit(at_ms, job)
            case TasksSubmitted():
                for place, index in enumerate(event.indices):
                    task = event.job._replace(id=event.job.id + place, array_index=index)
                    self._submit(event.at_ms, task)
                    self.jobs[task.id].held |= event.held
                    self.jobs[task.id].deferred |= event.held
            case Ticked():
                self._tick(event.at_ms)
            case ClockSet():
                self._clock_set(event)
            case LayoutPinned() | LayoutReleased() | LayoutMade():
                self._layout(event)
            case (
                DemandLearned()
                | TokenMade()
                | TokenRevoked()
                | NameUnbound()
                | MonthClosed()
                | BudgetReached()
                | JobEntered()
                | AttemptMeasured()
                | WaitsSeen()
            ):
                pass
            case _:
                self._of_a_job(event)

    def _layout(self, event: LayoutPinned | LayoutReleased | LayoutMade) -> None:
        for gpu in range(event.gpus.bit_length()):
            at = (event.node, gpu)
            if not event.gpus >> gpu & 1:
                continue
            match event:
                case LayoutPinned():
                    self.pins[at] = tuple(
                        sorted((each.profile, each.start) for each in event.slices if each.gpu == gpu)
                    )
                    self.made[at] = (False, "", 0)
                case LayoutReleased():
                    self.pins.pop(at, None)
                    self.made.pop(at, None)
                case LayoutMade():
                    if at in self.pins:
                        self.made[at] = (not event.why, event.why, event.took_ms)

    def _configure(self, settings: Settings) -> None:
        budgets = {t.path: t.budget.window_ms for t in self.settings.tenants if t.budget}
        before, self.settings = self.settings, settings
        for tenant in sorted(settings.tenants, key=lambda t: t.path):
            self._see(tenant.path)
            if tenant.budget and budgets.get(tenant.path) != tenant.budget.window_ms:
                self.budget_since[tenant.path] = self.seq
        known = {rule.name for rule in before.budgets}
        for rule in settings.budgets:
            if rule.name not in known:
                self.named_since[rule.name] = self.seq
        self._assign()

    def _assign(self) -> None:
        """What was a leaf when a job came may have members by now."""
        for _id, live in sorted(self.jobs.items()):
            live.leaf = self._leaf(live.job.spec.tenant)
            if live.attempt is not None:
                live.attempt.charge.leaf = live.leaf

    def _see(self, path: str) -> None:
        for each in reversed(chain(path)):
            if each not in self.paths:
                self.paths.append(each)

    def _leaf(self, path: str) -> str:
        self._see(path)
        leaf = self.leaf(path)
        self._see(leaf)
        return leaf

    def _submit(self, at_ms: int, job: Job) -> None:
        assert job.id not in self.jobs, f"job {job.id} was submitted twice"
        assert job.id not in self.ended, f"the id of job {job.id} was used before"
        live = Live(job, self._leaf(job.spec.tenant), 0, deferred=job.begin_ms > at_ms)
        most_ms = self.klass(live).limit_ms
        live.limit_ms = min(job.limit_ms or self.default_ms(live), most_ms)
        self.jobs[job.id] = live

    def default_ms(self, live: Live) -> int:
        """The time limit of a job that names none."""
        return self.klass(live).limit_ms

    def _tick(self, at_ms: int) -> None:
        for live in self.jobs.values():
            if live.deferred and not live.held and live.job.begin_ms <= at_ms:
                live.deferred = False
            if live.earmark is not None and live.earmark.expires_ms <= at_ms:
                live.earmark = None

    def _clock_set(self, event: ClockSet) -> None:
        self.tainted_since = {place: since + event.by_ms for place, since in self.tainted_since.items()}
        for live in self.running():
            assert live.attempt is not None
            attempt = live.attempt
            attempt.charge.skipped.append((event.at_ms - event.by_ms, event.at_ms))
            attempt.started_ms += event.by_ms
            attempt.end_ms += event.by_ms
            attempt.checkpoint_ms += event.by_ms if attempt.checkpoint_ms else 0
            attempt.suspended_ms += event.by_ms

    def _of_a_job(self, event: Event) -> None:
        live = self.jobs[event.job_id]  # type: ignore[union-attr]
        attempt = live.attempt
        if isinstance(event, AttemptStarted):
            self._start(live, event)
        elif isinstance(event, JobChanged):
            self._change(live, event)
        elif attempt is None:
            self._waiting_job(live, event)
        else:
            self._running_job(live, attempt, event)

    def _change(self, live: Live, event: JobChanged) -> None:
        before, job, attempt = live.job, event.job, live.attempt
        estimate_ms, live.job = live.estimate_ms, job
        same_place = (job.spec.ask, job.spec.tenant) == (before.spec.ask, before.spec.tenant)
        moved = bool(self.settings.walls) and not job.limit_ms and not same_place
        if moved or (job.limit_ms, job.spec.klass) != (before.limit_ms, before.spec.klass):
            live.limit_ms = 0
            live.limit_ms = job.limit_ms or self.default_ms(live)
        if attempt is None:
            live.leaf = self._leaf(job.spec.tenant)
            live.deferred = live.held or job.begin_ms > event.at_ms
            live.boost = 0 if event.joined_ms > live.joined_ms else live.boost
        elif attempt.phase is not AttemptState.STOPPING:
            attempt.end_ms += live.estimate_ms - estimate_ms
        live.joined_ms, live.nice_ms = event.joined_ms, event.nice_ms

    def _start(self, live: Live, event: AttemptStarted) -> None:
        key = (event.job_id, event.attempt)
        assert live.attempt is None, f"job {event.job_id} runs already"
        assert not live.deferred, f"job {event.job_id} is held or before its time"
        assert event.attempt == live.attempts + 1, f"attempt {key} follows attempt {live.attempts}"
        assert key not in self.keys, f"attempt {key} was used before"
        self.keys.add(key)
        live.attempts = event.attempt
        live.earmark = None
        live.boost = 0
        node = self.nodes[event.grants[0].node]
        charge = Charge(live.leaf, live.milli, self.rate(live.job.spec.ask, node), event.at_ms)
        self.charges.append(charge)
        end_ms = event.at_ms + live.estimate_ms
        live.attempt = Attempt(event.attempt, event.grants, event.at_ms, end_ms, model_of(node), charge)

    def _waiting_job(self, live: Live, event: Event) -> None:
        match event:
            case JobHeld():
                live.held = live.deferred = True
                live.earmark = None
            case JobReleased():
                live.held = False
                live.deferred = live.job.begin_ms > event.at_ms
            case JobCancelled():
                self._over(live, JobState.CANCELLED)
            case Requested(verb=Verb.TOP):
                live.boost = 1 + max(other.boost for other in self.jobs.values())
            case Requested(verb=Verb.BACK):
                live.boost = 0
            case EarmarkSet():
                assert live.earmark is None, f"job {event.job_id} has an earmark"
                live.earmark = Earmark(event.job_id, event.grants, event.expires_ms)
            case EarmarkDropped():
                live.earmark = None
            case _:
                raise AssertionError(f"{event} of a job that waits")

    def _running_job(self, live: Live, attempt: Attempt, event: Event) -> None:
        match event:
            case AttemptConfirmed():
                attempt.phase = AttemptState.RUNNING
            case AttemptStopping():
                attempt.phase = AttemptState.STOPPING
                attempt.cause, attempt.for_job = event.cause, event.for_job
                attempt.end_ms = min(attempt.end_ms, event.at_ms + self.klass(live).grace_ms)
            case CheckpointSeen():
                attempt.checkpoint_ms = event.saved_at_ms
            case JobSuspended():
                attempt.phase = AttemptState.SUSPENDED
                attempt.suspended_ms = event.at_ms
                attempt.end_ms += NO_LIMIT_MS
            case JobContinued():
                attempt.phase = AttemptState.RUNNING
                attempt.end_ms += event.at_ms - attempt.suspended_ms - NO_LIMIT_MS
            case AttemptEnded():
                self._end(live, attempt, event)
            case _:
                raise AssertionError(f"{event} of a job that runs")

    def _end(self, live: Live, attempt: Attempt, event: AttemptEnded) -> None:
        assert event.attempt == attempt.number, f"{event}: attempt {attempt.number} runs"
        attempt.charge.ended_ms, attempt.charge.ended_seq = event.at_ms, self.seq
        attempt.charge.klass = self.klass(live).name
        live.attempt = None
        if event.outcome not in _REQUEUED:
            self._over(live, JobState(event.outcome.value))
        elif attempt.cause is StopCause.CANCEL:
            # It was to be cancelled, and it is gone: how it went does not matter.
            self._over(live, JobState.CANCELLED)
        else:
            live.preemptions += attempt.cause is not None and attempt.cause.preempts
            live.saved_ms = event.saved_ms
            live.deferred = live.held

    def _over(self, live: Live, state: JobState) -> None:
        assert state.ended
        del self.jobs[live.job.id]
        self.ended[live.job.id] = state


def model_of(node: Node) -> str:
    """A node's GPU model as quotas and charges know it."""
    return node.gpu_model if node.gpus else ""
