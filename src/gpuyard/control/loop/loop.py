"""The control loop: observe, fold, decide, commit, act. One step at a time, time comes in as an argument.

It knows nothing of threads, sockets or sleeping, so the same code runs under a virtual clock with engines that lie,
lose replies and die (tests/sim). Whatever happens between two lines, the next step finds out from the log and from
the engines what there is to do; nothing that matters is kept here.

There is one driver for each engine and one decision for all of them. `step` does everything in turn; where engines may
keep each other waiting, their drivers look and act by themselves and `decide` is called with what they have seen.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice

from gpuyard.control.loop.driving import LOST_MS, Driver, Heard, Sighting
from gpuyard.control.loop.folder_memory import Witness
from gpuyard.control.loop.observe import (
    Difference,
    attempt_events,
    engine_events,
    lost_event,
    node_events,
    withdrawn_event,
)
from gpuyard.control.replica.replica import Draft, Judged, Replica
from gpuyard.core.explain.budget_use import find_reached
from gpuyard.core.schedule.decide import decide
from gpuyard.engines.contract import Engine, Phase
from gpuyard.model import (
    AttemptStarted,
    AttemptState,
    AttemptStopping,
    AttemptUnknown,
    DemandLearned,
    EarmarkSet,
    Event,
    JobCancelled,
    NodeDown,
    Plan,
    StopCause,
    Ticked,
    Verb,
)
from gpuyard.packing.learning import Learner

DOOMED_MAX = 100
"""Jobs that can never start, ended in one step: cancelling an array may doom 20,000, and others' starts would wait."""
DOOMED_MAX_OF_SEVERAL = 25
"""The same while attempts of several users start."""
SILENT_MS = 30_000
"""A cluster whose engine has not answered for so long takes no new jobs, if there are other clusters to take them."""


@dataclass(slots=True)
class Step:
    """What one step did."""

    events: list[Event] = field(default_factory=list)
    """Everything it wrote."""
    plan: Plan = field(default_factory=Plan)
    errors: list[str] = field(default_factory=list)
    """Calls that came to no answer. They are made again."""
    more: bool = False
    """Whether attempts wait to be started, stopped or forgotten, or jobs to be ended, in the next step."""
    decide_ns: int = 0
    """How long the decision took, by the stopwatch the loop was given."""

    @property
    def idle(self) -> bool:
        """Nothing happened, nothing went wrong and nothing is left to do."""
        return not self.events and not self.errors and not self.more


class Controller:
    """The leader's loop: one driver for each engine, one decider."""

    def __init__(
        self,
        replica: Replica,
        engines: Engine | Mapping[str, Engine],
        epoch: int,
        *,
        lost_ms: int = LOST_MS,
        stopwatch_ns: Callable[[], int] = lambda: 0,
        witnesses: Mapping[str, Witness] | None = None,
        has_room: Callable[[], bool] = lambda: True,
        observed: Set[str] = frozenset(),
    ) -> None:
        """`engines` by cluster; a single one has every node, whatever cluster it reports it in, but for those of
        `observed`, clusters that schedule themselves. `witnesses`, by cluster too, tell folders of engines how far the
        log has come. `has_room` tells whether there is room on disk for a start.
        """
        self.replica = replica
        self.epoch = epoch
        self._has_room = has_room
        self._stopwatch_ns = stopwatch_ns
        named: Mapping[str, Engine] = engines if isinstance(engines, Mapping) else {"": engines}
        self.drivers = {
            cluster: Driver(
                replica,
                cluster,
                engine,
                epoch,
                (named.keys() - {cluster}) | observed,
                lost_ms=lost_ms,
                stopwatch_ns=stopwatch_ns,
                witness=(witnesses or {}).get(cluster),
            )
            for cluster, engine in named.items()
        }
        self._heard_ms: dict[str, int] = {}
        """When each engine last answered."""
        self._learner = Learner()
        self._last_job_id = 0
        """The last job that the last pass knew of."""

    @property
    def difference(self) -> Difference:
        """What the last recounts found."""
        found = [driver.difference for driver in self.drivers.values()]
        if len(found) == 1:
            return found[0]
        return Difference(
            tuple([key for each in found for key in each.missing]),
            tuple([key for each in found for key in each.orphans]),
            tuple([key for each in found for key in each.strangers]),
        )

    @property
    def late(self) -> Mapping[str, str]:
        """Attempts whose start came to nothing yet, or whose end does not come, and why."""
        found = [driver.late for driver in self.drivers.values()]
        return (
            found[0] if len(found) == 1 else {key: why for late in found for key, why in late.copy().items()}
        )

    @property
    def heard(self) -> Mapping[str, Heard]:
        """How each engine answers, by cluster."""
        return {cluster: driver.heard for cluster, driver in self.drivers.items()}

    # -- one step ----------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> Step:
        """Look, write down what was seen, decide, write that down, act on it. Raises `Fenced` or `Stale` if deposed."""
        began_ns = self._stopwatch_ns()
        step = self.decide(now_ms, [self.look(cluster, now_ms) for cluster in self.drivers])
        for cluster in self.drivers:
            self.act(cluster, now_ms, step, began_ns)
        return step

    def look(self, cluster: str, now_ms: int) -> Sighting:
        """What the engine of a cluster says. Nothing is written."""
        return self.drivers[cluster].look(max(now_ms, self.replica.state.now_ms))

    def act(self, cluster: str, now_ms: int, step: Step, began_ns: int) -> None:
        """Have the engine of a cluster do what the log says; `step` is told what came of it."""
        deeds = self.drivers[cluster].act(max(now_ms, self.replica.state.now_ms), began_ns)
        step.events += deeds.events
        step.errors += self._told(cluster, deeds.errors)
        step.more = step.more or deeds.more

    def _told(self, cluster: str, errors: Sequence[str]) -> list[str]:
        """Errors with the cluster in which they happened, where there are several."""
        return [f"{cluster}: {each}" if len(self.drivers) > 1 else each for each in errors]

    def decide(self, now_ms: int, sightings: Iterable[Sighting]) -> Step:
        """Write down what was seen, in this order, and decide on all clusters. No engine is asked anything."""
        step = Step()
        seen = list(sightings)
        for each in seen:
            step.errors += self._told(each.cluster, each.errors)

        def note_and_decide(draft: Draft) -> None:
            # One write for both: what was seen and what follows from it are durable together. Others may have written
            # while the engines were asked, and times in the log do not go back.
            at_ms = max(now_ms, draft.state.now_ms)
            self._note(draft, seen, at_ms)
            self._decide(draft, at_ms, step)

        step.events += self.replica.commit(self.epoch, note_and_decide)
        # Of those that started it is no longer asked why they wait.
        self.replica.judged = Judged(self.replica.seq, self._last_job_id, step.plan.examined, step.plan.codes)
        return step

    # -- note ----------------------------------------------------------------------------------------------------

    def _note(self, draft: Draft, sightings: Sequence[Sighting], now_ms: int) -> None:
        """Write down what was seen. Reports are about attempts, so one that is over by now is passed over."""
        state = draft.state
        wake_ms = state.wake_ms()
        if wake_ms is not None and wake_ms <= now_ms:
            draft.add(Ticked(now_ms))
        for seen in sightings:
            self._note_attempts(draft, seen, now_ms)
            if seen.nodes is not None:
                for event in engine_events(state, seen.able, seen.nodes, now_ms):
                    draft.add(event)
                others = self.drivers[seen.cluster].others
                for event in node_events(state, seen.nodes, now_ms, others):
                    draft.add(event)
        if len(self.drivers) > 1:
            self._note_silence(draft, sightings, now_ms)

    def _note_attempts(self, draft: Draft, seen: Sighting, now_ms: int) -> None:
        running = draft.state.running
        for key, report in seen.reports.items():
            job_id, attempt = seen.attempts[key]
            record = running.get(job_id)
            if record is None or record.attempt != attempt:
                continue
            for event in attempt_events(record, report, now_ms):
                draft.add(event)
            if report.phase is Phase.ENDED:
                continue
            if key in seen.barred:
                draft.add(lost_event(record, now_ms))
            elif key in seen.overdue and record.phase is AttemptState.STARTING:
                draft.add(AttemptUnknown(now_ms, record.id, record.attempt))

    def _note_silence(self, draft: Draft, sightings: Sequence[Sighting], now_ms: int) -> None:
        """A cluster that does not answer takes no new jobs, and jobs that were to start there wait again.

        Jobs that its engine was asked to start may run, and stay as they are.
        """
        heard = {seen.cluster for seen in sightings if seen.heard}
        for cluster, driver in self.drivers.items():
            since_ms = self._heard_ms.setdefault(cluster, now_ms)
            if cluster in heard or now_ms < since_ms:
                self._heard_ms[cluster] = now_ms
            elif now_ms - since_ms >= SILENT_MS:
                why = f"cluster {cluster} does not answer"
                for record in driver.withdraw(draft.state):
                    draft.add(withdrawn_event(record, why, now_ms))
                nodes = draft.state.nodes
                for number, node in enumerate(nodes.node):
                    if node.cluster == cluster and not nodes.down[number]:
                        draft.add(NodeDown(now_ms, number, why))

    # -- decide ------------------------------------------------------------------------------------------------

    def _decide(self, draft: Draft, now_ms: int, step: Step) -> None:
        """Decide on a replica that has caught up, under the log's lock: what is planned holds when it is written."""
        state = draft.state
        step.more = self._heed(draft, now_ms)
        if not self._has_room():
            # What is left is for cancels and ends, and nothing is stopped for a job that could not start.
            return
        if state.tenants.budget_row:
            for told in find_reached(state, now_ms):
                draft.add(told)
        asks = self._learner.look(state) if state.arrivals >= self._learner.due else None
        if asks is not None:
            draft.add(DemandLearned(now_ms, asks))
        began_ns = self._stopwatch_ns()
        step.plan = plan = decide(state, self.replica.policy, now_ms)
        self._last_job_id = state.last_job_id
        step.decide_ns = self._stopwatch_ns() - began_ns
        for stop in plan.stops:
            draft.offer(AttemptStopping(now_ms, stop.job_id, stop.attempt, stop.cause, stop.for_job))
        for start in plan.starts:
            draft.offer(AttemptStarted(now_ms, start.job_id, start.attempt, start.grants))
        for earmark in plan.earmarks:
            draft.offer(EarmarkSet(now_ms, earmark.job_id, earmark.grants, earmark.expires_ms))

    def _heed(self, draft: Draft, now_ms: int) -> bool:
        """What people asked for about running attempts; and jobs that can never start are ended, with the reason.

        Whether there are more of these, for the next step.
        """
        several = any([driver.serves_several for driver in self.drivers.values()])
        most = DOOMED_MAX_OF_SEVERAL if several else DOOMED_MAX
        for record in list(islice(draft.state.doomed.values(), most)):
            draft.add(JobCancelled(now_ms, record.id))
        for record in list(draft.state.running.values()):
            if record.wanted in _CAUSES and record.phase is not AttemptState.STOPPING:
                cause = _CAUSES[record.wanted]
                draft.add(AttemptStopping(now_ms, record.id, record.attempt, cause))
        return bool(draft.state.doomed)


_CAUSES = {Verb.CANCEL: StopCause.CANCEL, Verb.REQUEUE: StopCause.REQUEUE}
