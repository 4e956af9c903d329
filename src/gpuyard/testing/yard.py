"""The scheduler alone, on a clock that is set by hand: for tests of policies.

`Yard` folds events into the core's state, decides, and commits exactly as the simulator does.
"""

from collections.abc import Iterable, Sequence

from gpuyard.core import Policy, State, apply, decide
from gpuyard.model import (
    Ask,
    AttemptEnded,
    AttemptStarted,
    AttemptState,
    AttemptStopping,
    ConfigSet,
    EarmarkSet,
    Event,
    Job,
    JobSpec,
    JobSubmitted,
    Node,
    NodeAdded,
    Outcome,
    Plan,
    PolicySpec,
    ReasonCode,
    Settings,
    Tenant,
    Ticked,
)
from gpuyard.policies import registry
from gpuyard.testing.values import BATCH, URGENT, ask

_TICKS_MAX = 1000
"""More wake-ups than this in one wait are a loop."""


class Yard:
    """A state, a policy, a clock that is set by hand, and the log."""

    def __init__(
        self,
        policy: Policy | PolicySpec | str = "fifo",
        fleet: Iterable[Node] = (),
        tenants: Sequence[Tenant] = (),
        *,
        settings: Settings | None = None,
        now_ms: int = 0,
    ) -> None:
        """`policy`: the name of a preset, a spec, or a policy made of your own parts."""
        spec = registry.PRESETS[policy] if isinstance(policy, str) else policy
        self.policy = spec if isinstance(spec, Policy) else registry.build(spec)
        self.state = State()
        self.log: list[Event] = []
        self.now_ms = now_ms
        self.plans: list[Plan] = []
        self._last_id = 0
        self.apply(ConfigSet(now_ms, settings or Settings(tenants=tuple(tenants), classes=(BATCH, URGENT))))
        for each in fleet:
            self.apply(NodeAdded(now_ms, each))

    # -- events ----------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Write an event to the log and fold it."""
        self.log.append(event)
        apply(self.state, event)

    def submit(
        self,
        wanted: Ask | int = 1,
        *,
        tenant: str = "t",
        user: str = "",
        klass: str = "",
        checkpoint_ms: int = 0,
        restart_cost_ms: int = 0,
        labels: tuple[tuple[str, str], ...] = (),
        **fields: int,
    ) -> int:
        """Submit a job now; returns its id."""
        request = ask(wanted) if isinstance(wanted, int) else wanted
        spec = JobSpec(
            tenant,
            request,
            klass,
            checkpoint_ms=checkpoint_ms,
            restart_cost_ms=restart_cost_ms,
            user=user,
            labels=labels,
        )
        self._last_id += 1
        self.apply(JobSubmitted(self.now_ms, Job(self._last_id, spec, self.now_ms, **fields)))
        return self._last_id

    def end(self, job_id: int, outcome: Outcome = Outcome.COMPLETED, saved_ms: int = 0) -> None:
        """The current attempt of a job has ended."""
        attempt = self.state.jobs[job_id].attempt
        self.apply(AttemptEnded(self.now_ms, job_id, attempt, outcome, saved_ms))

    def stop_confirmed(self, job_id: int, saved_ms: int = 0) -> None:
        """A victim has stopped and waits again."""
        assert self.state.jobs[job_id].phase is AttemptState.STOPPING
        self.end(job_id, Outcome.PREEMPTED, saved_ms)

    def tick(self) -> None:
        """Write a `Ticked` event: time has passed."""
        self.apply(Ticked(self.now_ms))

    # -- time and decisions ----------------------------------------------------------------------------------------

    def step(self) -> Plan:
        """Write a tick if one is due, decide, and commit."""
        wake_ms = self.state.wake_ms()
        if wake_ms is not None and wake_ms <= self.now_ms:
            self.tick()
        plan = self.decide()
        self.commit(plan)
        self.plans.append(plan)
        return plan

    def decide(self) -> Plan:
        """A plan from the present state."""
        return decide(self.state, self.policy, self.now_ms)

    def commit(self, plan: Plan) -> None:
        """Commit a plan in the order of the simulator: stops, starts, earmarks."""
        now_ms = self.now_ms
        for stop in plan.stops:
            self.apply(AttemptStopping(now_ms, stop.job_id, stop.attempt, stop.cause, stop.for_job))
        for start in plan.starts:
            self.apply(AttemptStarted(now_ms, start.job_id, start.attempt, start.grants))
        for earmark in plan.earmarks:
            self.apply(EarmarkSet(now_ms, earmark.job_id, earmark.grants, earmark.expires_ms))

    def wait(self, for_ms: int) -> None:
        """Let time pass; whenever a tick is due, write it and decide, as the simulator does."""
        until_ms = self.now_ms + for_ms
        for _ in range(_TICKS_MAX):
            wake_ms = self.state.wake_ms()
            if wake_ms is None or max(wake_ms, self.now_ms + 1) > until_ms:
                self.now_ms = until_ms
                return
            self.now_ms = max(wake_ms, self.now_ms + 1)
            self.step()
        raise AssertionError(
            f"woken {_TICKS_MAX} times until {self.now_ms}, and again at {self.state.wake_ms()}"
        )

    # -- results ---------------------------------------------------------------------------------------------------

    def started(self, plan: Plan) -> list[int]:
        """Ids of the jobs that a plan starts."""
        return [start.job_id for start in plan.starts]

    def code(self, plan: Plan, job_id: int) -> ReasonCode:
        """What a plan says about a job."""
        if job_id not in plan.examined:
            return ReasonCode.NOT_EXAMINED
        return ReasonCode(plan.codes[plan.examined.index(job_id)])

    def running(self) -> list[int]:
        """Ids of the jobs that hold GPUs."""
        return sorted(self.state.running)
