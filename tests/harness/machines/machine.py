"""The state machine: everything that can happen to a yard, in any order, checked after every step."""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from gpuyard.model import (
    Ask,
    AttemptConfirmed,
    AttemptState,
    AttemptStopping,
    Capability,
    CheckpointSeen,
    ClockSet,
    ConfigSet,
    DemandLearned,
    EarmarkDropped,
    EngineSeen,
    Job,
    JobCancelled,
    JobChanged,
    JobContinued,
    JobHeld,
    JobReleased,
    JobSpec,
    JobSubmitted,
    JobSuspended,
    Node,
    NodeAdded,
    NodeCordoned,
    NodeDown,
    NodeMarked,
    NodeUncordoned,
    NodeUp,
    Outcome,
    PolicySpec,
    Requested,
    Settings,
    StopCause,
    TasksSubmitted,
    Verb,
)
from harness.machines import strategies as some
from harness.machines.checked import CheckedYard

picks = st.integers(0, 40)
_ENDS = (Outcome.COMPLETED, Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY)
_STOPPABLE = (AttemptState.STARTING, AttemptState.RUNNING, AttemptState.SUSPENDED)


class YardMachine(RuleBasedStateMachine):
    """Submissions, ends, faults, people and time."""

    spec: PolicySpec
    kind: type[CheckedYard] = CheckedYard
    yard: CheckedYard

    @initialize(
        fleet=some.fleets(),
        config=some.settings(),
        specs=st.lists(some.specs(), min_size=3, max_size=7),
        queue=st.lists(st.tuples(picks, some.limits_ms), min_size=4, max_size=12),
    )
    def begin(
        self, fleet: list[Node], config: Settings, specs: list[JobSpec], queue: list[tuple[int, int]]
    ) -> None:
        """A yard with some jobs. Later ones ask for the same, or nearly: what collides is interesting."""
        self.yard = self.kind(self.spec, fleet, settings=config)
        self.last_id = 0
        self.specs = specs
        for pick, limit_ms in queue:
            self._submit(pick, limit_ms)
        self.yard.step()

    # -- helpers -----------------------------------------------------------------------------------------------------

    def ids(self, *phases: AttemptState | None) -> list[int]:
        """Live jobs whose attempt is in one of these states (None: they wait)."""
        return [i for i, record in sorted(self.yard.state.jobs.items()) if record.phase in phases]

    def has(self, *phases: AttemptState | None) -> bool:
        """Whether there is one."""
        return hasattr(self, "yard") and bool(self.ids(*phases))

    def now(self) -> int:
        """The time."""
        return self.yard.now_ms

    # -- rules -------------------------------------------------------------------------------------------------------

    def _submit(self, pick: int, limit_ms: int, later_ms: int = 0, due_ms: int = 0) -> None:
        now_ms = self.now()
        self.last_id += 1
        begin_ms = now_ms + later_ms if later_ms else 0
        deadline_ms = now_ms + due_ms if due_ms else 0
        spec = self.specs[pick % len(self.specs)]
        self.yard.apply(
            JobSubmitted(now_ms, Job(self.last_id, spec, now_ms, limit_ms, deadline_ms, begin_ms))
        )

    @rule(pick=picks, count=st.integers(1, 4), limit_ms=some.limits_ms)
    def submit(self, pick: int, count: int, limit_ms: int) -> None:
        """One job, or several alike at the same moment."""
        for _ in range(count):
            self._submit(pick, limit_ms)
        self.yard.step()

    @rule(
        jobs=st.lists(
            st.tuples(
                picks,
                some.limits_ms,
                st.sampled_from((0, 0, 0, 3000)),
                st.sampled_from((0, 0, 20_000, 90_000)),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def submit_some(self, jobs: list[tuple[int, int, int, int]]) -> None:
        """Several at the same moment, some of them for later or with a deadline."""
        for pick, limit_ms, later_ms, due_ms in jobs:
            self._submit(pick, limit_ms, later_ms, due_ms)
        self.yard.step()

    @rule(pick=picks, count=st.integers(1, 4), limit_ms=some.limits_ms, held=st.booleans())
    def submit_array(self, pick: int, count: int, limit_ms: int, held: bool) -> None:
        """An array, held or not."""
        now_ms, array_id, spec = self.now(), self.last_id + 1, self.specs[pick % len(self.specs)]
        first = Job(array_id + 1, spec, now_ms, limit_ms, array_id=array_id, array_index=3)
        self.last_id = array_id + count
        self.yard.apply(TasksSubmitted(now_ms, first, tuple(range(3, 3 + count)), held=held))
        self.yard.step()

    @rule(spec=some.specs())
    def another_ask(self, spec: JobSpec) -> None:
        """Something new is asked for."""
        self.specs.append(spec)
        self._submit(len(self.specs) - 1, 10_000)
        self.yard.step()

    @rule(gap_ms=some.gaps_ms)
    def pass_time(self, gap_ms: int) -> None:
        """Ticks fall due and are decided on."""
        self.yard.wait(gap_ms)
        self.yard.step()

    @rule(by_ms=st.sampled_from((6_000, 3_600_000, 100_000_000)))
    def clock_set_ahead(self, by_ms: int) -> None:
        """The machine's clock was wrong, or is now."""
        self.yard.now_ms += by_ms
        self.yard.apply(ClockSet(self.now(), by_ms))
        self.yard.step()

    @precondition(lambda self: self.has(*AttemptState))
    @rule(pick=picks, outcome=st.sampled_from(_ENDS), gap_ms=st.sampled_from((0, 0, 1000)))
    def attempt_ends(self, pick: int, outcome: Outcome, gap_ms: int) -> None:
        """A job ends by itself, perhaps while it is being stopped."""
        self.yard.wait(gap_ms)
        ids = self.ids(*AttemptState)
        if ids:
            self.yard.end(ids[pick % len(ids)], outcome)
        self.yard.step()

    @precondition(lambda self: self.has(AttemptState.STOPPING))
    @rule(pick=picks, everyone=st.booleans())
    def stop_confirmed(self, pick: int, everyone: bool) -> None:
        """One attempt that was told to stop is gone, or all of them."""
        ids = self.ids(AttemptState.STOPPING)
        for job_id in ids if everyone else [ids[pick % len(ids)]]:
            record = self.yard.state.jobs[job_id]
            if record.cause is StopCause.CANCEL:
                self.yard.end(job_id, Outcome.CANCELLED)
            else:
                interval = record.job.spec.checkpoint_ms
                ran_ms = self.now() - record.started_ms
                self.yard.end(job_id, Outcome.PREEMPTED, ran_ms // interval * interval if interval else 0)
        self.yard.step()

    @precondition(lambda self: self.has(None))
    @rule(pick=picks, what=st.sampled_from((JobCancelled, JobHeld, JobHeld, JobReleased, JobReleased)))
    def person_and_a_waiting_job(self, pick: int, what: Any) -> None:
        """Cancelled, held or released."""
        ids = self.ids(None)
        self.yard.apply(what(self.now(), ids[pick % len(ids)]))
        self.yard.step()

    @precondition(lambda self: self.has(None))
    @rule(pick=picks, verb=st.sampled_from((Verb.TOP, Verb.TOP, Verb.BACK)))
    def moved(self, pick: int, verb: Verb) -> None:
        """An administrator moves a waiting job to the top of the queue, or back."""
        ids = self.ids(None)
        self.yard.apply(Requested(self.now(), ids[pick % len(ids)], verb, "root"))
        self.yard.step()

    @precondition(lambda self: self.has(None))
    @rule(
        pick=picks,
        other=picks,
        limit_ms=some.limits_ms,
        later_ms=st.sampled_from((0, 0, 3000)),
        nice_ms=st.sampled_from((0, 0, 4000, -60_000)),
        behind=st.booleans(),
    )
    def waiting_job_changed(
        self, pick: int, other: int, limit_ms: int, later_ms: int, nice_ms: int, behind: bool
    ) -> None:
        """It asks for what another job asks for, with another limit, or waits elsewhere in its line."""
        now_ms, ids = self.now(), self.ids(None)
        record = self.yard.state.jobs[ids[pick % len(ids)]]
        spec = replace(self.specs[other % len(self.specs)], user=record.job.spec.user)
        begin_ms = now_ms + later_ms if later_ms else 0
        job = record.job._replace(spec=spec, limit_ms=limit_ms, begin_ms=begin_ms)
        if record.earmark is not None:
            self.yard.apply(EarmarkDropped(now_ms, job.id))
        self.yard.apply(JobChanged(now_ms, job, now_ms if behind else record.joined_ms, nice_ms, "root"))
        self.yard.step()

    @precondition(lambda self: self.has(*AttemptState))
    @rule(pick=picks, limit_ms=some.limits_ms, nice_ms=st.sampled_from((0, 7000)), label=st.booleans())
    def running_job_changed(self, pick: int, limit_ms: int, nice_ms: int, label: bool) -> None:
        """It keeps its GPUs, and has another limit, name and labels."""
        ids = self.ids(*AttemptState)
        record = self.yard.state.jobs[ids[pick % len(ids)]]
        labels = (("project", "vision"),) if label else ()
        spec = replace(record.job.spec, name="another", labels=labels)
        job = record.job._replace(spec=spec, limit_ms=limit_ms)
        self.yard.apply(JobChanged(self.now(), job, record.joined_ms, nice_ms, "root"))
        self.yard.step()

    @precondition(lambda self: self.has(*_STOPPABLE))
    @rule(pick=picks, cause=st.sampled_from((StopCause.CANCEL, StopCause.REQUEUE)))
    def person_stops_a_running_job(self, pick: int, cause: StopCause) -> None:
        """Cancelled or sent back to the queue."""
        ids = self.ids(*_STOPPABLE)
        job_id = ids[pick % len(ids)]
        attempt = self.yard.state.jobs[job_id].attempt
        self.yard.apply(AttemptStopping(self.now(), job_id, attempt, cause))
        self.yard.step()

    @precondition(lambda self: self.has(*_STOPPABLE))
    @rule(pick=picks)
    def suspend_or_continue(self, pick: int) -> None:
        """A running job is frozen, a frozen one runs on."""
        ids = self.ids(*_STOPPABLE)
        job_id = ids[pick % len(ids)]
        frozen = self.yard.state.jobs[job_id].phase is AttemptState.SUSPENDED
        self.yard.apply((JobContinued if frozen else JobSuspended)(self.now(), job_id))
        self.yard.step()

    @precondition(lambda self: self.has(AttemptState.STARTING, AttemptState.RUNNING))
    @rule(pick=picks, ago_ms=st.sampled_from((0, 500)))
    def engine_reports(self, pick: int, ago_ms: int) -> None:
        """Seen to run, or to have saved its work."""
        ids = self.ids(AttemptState.STARTING, AttemptState.RUNNING)
        job_id = ids[pick % len(ids)]
        record = self.yard.state.jobs[job_id]
        if record.phase is AttemptState.STARTING:
            self.yard.apply(AttemptConfirmed(self.now(), job_id, record.attempt))
        else:
            saved_ms = max(record.started_ms, self.now() - ago_ms)
            self.yard.apply(CheckpointSeen(self.now(), job_id, record.attempt, saved_ms))
        self.yard.step()

    @rule(pick=picks, reported=st.booleans())
    def node_down_or_up(self, pick: int, reported: bool) -> None:
        """A node fails, with what ran there; or only the node for now; or one that is down comes back."""
        number = pick % len(self.yard.books.nodes)
        if number in self.yard.books.down:
            self.yard.apply(NodeUp(self.now(), number))
        else:
            self.yard.apply(NodeDown(self.now(), number, "failed"))
            if reported:
                for job_id in sorted(self.yard.state.nodes.attempts_on[number]):
                    self.yard.end(job_id, Outcome.NODE_FAIL)
        self.yard.step()

    @rule(pick=picks)
    def cordon_or_uncordon(self, pick: int) -> None:
        """A node is closed to new work, or opened."""
        number = pick % len(self.yard.books.nodes)
        if number in self.yard.books.cordoned:
            self.yard.apply(NodeUncordoned(self.now(), number))
        else:
            self.yard.apply(NodeCordoned(self.now(), number, "drain"))
        self.yard.step()

    @rule(pick=picks, wanted=some.marks)
    def node_marked(self, pick: int, wanted: dict[str, Any]) -> None:
        """Labels and taints of a node are set, removed or reset."""
        number = pick % len(self.yard.books.nodes)
        self.yard.apply(NodeMarked(self.now(), number, **wanted, by="root"))
        self.yard.step()

    @rule(config=some.settings())
    def configure(self, config: Settings) -> None:
        """Other tenants, quotas, weights and classes."""
        self.yard.apply(ConfigSet(self.now(), config))
        self.yard.step()

    @precondition(lambda self: hasattr(self, "yard") and len(self.yard.books.nodes) < 7)
    @rule(shape=some.node_shapes())
    def node_added(self, shape: Node) -> None:
        """The fleet grows, perhaps by a model nobody has seen."""
        self.yard.apply(NodeAdded(self.now(), some.named(shape, len(self.yard.books.nodes))))
        self.yard.step()

    @rule(lacks=st.sets(st.sampled_from((Capability.GANG, Capability.SHARES, Capability.SLICES)), max_size=2))
    def engine_seen(self, lacks: set[Capability]) -> None:
        """The engine can do less than it could, or more; what runs runs on."""
        cluster = self.yard.books.nodes[0].cluster
        self.yard.apply(EngineSeen(self.now(), cluster, tuple(sorted(lacks, key=lambda each: each.value))))
        self.yard.step()

    @rule(mix=st.lists(st.tuples(some.asks(), st.integers(1, 5)), max_size=2))
    def demand_learned(self, mix: list[tuple[Ask, int]]) -> None:
        """Another mix of jobs is expected."""
        self.yard.apply(DemandLearned(self.now(), tuple(mix)))
        self.yard.step()

    @precondition(lambda self: hasattr(self, "yard") and bool(self.yard.state.earmarks))
    @rule(pick=picks)
    def earmark_dropped(self, pick: int) -> None:
        """What was kept is given up."""
        ids = sorted(self.yard.state.earmarks)
        self.yard.apply(EarmarkDropped(self.now(), ids[pick % len(ids)]))
        self.yard.step()

    @rule()
    def restart(self) -> None:
        """The control plane starts again from a dump; its state must go on as if nothing had happened."""
        self.yard.cut()
        self.yard.step()


def run(
    spec: PolicySpec,
    *,
    examples: int,
    steps: int,
    derandomize: bool = True,
    shrink: bool = True,
    base: type[YardMachine] = YardMachine,
    kind: type[CheckedYard] = CheckedYard,
) -> None:
    """Drive one policy through so many histories, of a yard of this kind."""
    machine = type(f"Machine[{spec.name}]", (base,), {"spec": spec, "kind": kind})
    case = machine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=derandomize,
        deadline=None,
        database=None,
        print_blob=True,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    case("runTest").runTest()
