"""The simulator: a virtual clock around the same `apply` and `decide` that run live.

Time jumps from event to event. Nothing here knows how decisions are made, and nothing in the core knows that the world
is simulated.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Set
from operator import attrgetter
from time import perf_counter_ns, process_time

from gpuyard.core import Policy, State, apply, decide
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.core.jobs.records import JobRecord, waited_ms
from gpuyard.core.state.fold import complete, end, start, submit
from gpuyard.garbage import pause_collection
from gpuyard.model import (
    AttemptStopping,
    Capability,
    ConfigSet,
    DemandLearned,
    EarmarkSet,
    EngineSeen,
    Job,
    NodeAdded,
    NodeDown,
    NodeUp,
    Outcome,
    Plan,
    Pool,
    Settings,
    Ticked,
)
from gpuyard.packing.learning import FIRST_JOBS, Learner
from gpuyard.sim.ends import NEVER_MS, Ends
from gpuyard.sim.faults import NodeChange
from gpuyard.sim.meter import Meter
from gpuyard.sim.result import Result
from gpuyard.sim.trace import Trace

_ARRIVALS_PER_DAY = 8
"""How many jobs arrive, on average, in a day of the calendar of ends."""

_COMPLETED, _PREEMPTED, _NODE_FAIL = Outcome.COMPLETED, Outcome.PREEMPTED, Outcome.NODE_FAIL

Progress = Callable[[int, int], None]
"""Called with how many jobs have ended, and of how many."""

Watch = Callable[[Plan, int], None]
"""Called with each plan and its time, before it is committed."""

Lacks = Mapping[str, Set[Capability]]
"""What the engines of clusters cannot do. What is not named, they can."""
NOTHING: Lacks = {}


class Simulation:
    """One policy on one trace."""

    def __init__(
        self,
        trace: Trace,
        pools: Iterable[Pool],
        settings: Settings,
        policy: Policy,
        *,
        node_changes: Iterable[NodeChange] = (),
        lacks: Lacks = NOTHING,
        time_decisions: bool = False,
        watch: Watch | None = None,
    ) -> None:
        self.trace = trace
        self.policy = policy
        self.state = State()
        pools = list(pools)
        apply(self.state, ConfigSet(0, settings))
        for pool in pools:
            for node in pool.nodes:
                apply(self.state, NodeAdded(0, node))
        for cluster, found in sorted(lacks.items()):
            apply(self.state, EngineSeen(0, cluster, tuple(sorted(found, key=attrgetter("value")))))
        self.result = Result(policy.spec.name, sum(n.gpus for p in pools for n in p.nodes) * 1000)
        self.result.jobs = len(trace)
        self._meter = Meter(self.state, trace, self.result)
        self._saved: dict[int, int] = {}
        """Work saved by attempts before the current one, for jobs that were interrupted."""
        self._ran: dict[int, int] = {}
        """How long attempts before the current one ran."""
        last_ms = trace.submit_ms[-1] if len(trace) else 0
        self._ends = Ends(last_ms * _ARRIVALS_PER_DAY // max(1, len(trace)))
        self._outcome: dict[int, Outcome] = {}
        """How the current attempt of a job will end, if not by completing."""
        self._changes = sorted(node_changes, key=attrgetter("at_ms"))[::-1]
        """Changes of nodes, the next one last."""
        self._team = self._meter.spec_team
        self._time_decisions = time_decisions
        self._watch = watch
        self._tick_ms = self._change_ms = NEVER_MS
        """When time alone may change a decision, and when a node next changes."""
        self._due_ms = 0
        """When something other than a job is due."""
        self._timed = policy.order.fair or self.state.tenants.budgeted
        """Whether time alone may let a waiting job start."""
        self._quiet_ms = NEVER_MS
        """Since when nothing runs and jobs wait. Once every budget has been renewed, these jobs wait for ever."""
        self._learner = Learner()
        self._learn_at = FIRST_JOBS if policy.rank is not None else NEVER_MS
        """How many arrivals since demand was last learned trigger the next check."""

    @property
    def ended(self) -> int:
        """How many jobs have ended for good."""
        return len(self.result.job_id) + len(self._meter.ended)

    # -- the loop ----------------------------------------------------------------------------------------------

    def run(self, progress: Progress | None = None) -> Result:
        """Run to the end of the trace, or to Ctrl-C; the result has what was measured either way."""
        started = process_time()
        # The loop makes no reference cycles.
        with pause_collection():
            try:
                self._loop(progress)
            except KeyboardInterrupt:
                self.result.interrupted = True
            for record in self.state.running.values():
                self._stopped(record, self.state.now_ms - record.started_ms)
            self._meter.finish(self._ran)
        self.result.cpu_s = process_time() - started
        self.result.finished = self.ended - self.result.timeouts
        self.result.unfinished = self.result.jobs - self.ended - self.result.rejected
        return self.result

    def _loop(self, progress: Progress | None) -> None:
        state, ends, team_of, spec = self.state, self._ends, self._team, self.trace.spec
        submit_ms, policy, timed = self.trace.submit_ms, self.policy, self._time_decisions
        jobs, rows, row = self.trace.jobs(), len(self.trace), 0
        heeded = self._watch is not None or self._timed
        next_submit = submit_ms[0] if rows else NEVER_MS
        walls = state.walls
        self._set_due()
        while True:
            if next_submit < self._due_ms and not state.queue.count:
                # No job waits, so ends before the next arrival change no decision.
                now_ms = next_submit
            else:
                now_ms = ends.next_ms if ends.next_ms < next_submit else next_submit
                if now_ms >= self._due_ms or next_submit == NEVER_MS:
                    if not state.queue.count and next_submit < NEVER_MS and ends.next_ms < self._due_ms:
                        self._end_until(self._due_ms)
                        now_ms = ends.next_ms if ends.next_ms < next_submit else next_submit
                    now_ms = self._due(now_ms, row)
                    if now_ms == NEVER_MS:
                        break
                    if progress is not None:
                        progress(self.ended + self.result.rejected, rows)
            if ends.next_ms <= now_ms:
                self._end_until(now_ms + 1)
            if now_ms == self._change_ms:
                self._node_changes(now_ms)
            while next_submit == now_ms:
                job = next(jobs)
                team = team_of[spec[row]]
                if team is None:
                    team = self._admit(spec[row])
                if team >= 0 and (walls is None or self._may_enter(job)):
                    submit(state, now_ms, job)
                else:
                    self.result.rejected += 1
                row += 1
                next_submit = submit_ms[row] if row < rows else NEVER_MS
            if state.arrivals >= self._learn_at:
                self._learn(now_ms)
            if state.queue.count:
                if timed:
                    self._decide_timed(now_ms)
                else:
                    plan = decide(state, policy, now_ms)
                    if plan[0] or plan[2] or heeded:
                        self._commit(plan, now_ms)

    def _learn(self, now_ms: int) -> None:
        """Learn demand as a live yard does: from the jobs so far."""
        asks = self._learner.look(self.state)
        if asks is not None:
            apply(self.state, DemandLearned(now_ms, asks))
        self._learn_at = self._learner.due

    def _end_until(self, until_ms: int) -> None:
        """Process all ends before then."""
        state, ends, outcomes, note = self.state, self._ends, self._outcome, self._meter.ended.append
        plain = self._meter.one_price
        while ends.next_ms < until_ms:
            for at_ms, job_id, attempt, record in ends.take(until_ms):
                if record.attempt != attempt or record.phase is None:
                    continue
                if attempt == 1 and plain and (not outcomes or job_id not in outcomes):
                    note((job_id, record.started_ms - record.job[2], at_ms))
                    complete(state, at_ms, record)
                else:
                    self._end(record, at_ms, outcomes.pop(job_id, _COMPLETED))

    def _due(self, now_ms: int, row: int) -> int:
        """Handle what is due besides jobs: samples, ticks, the end. `row` rows have arrived. Returns the time."""
        now_ms = min(now_ms, self._tick_ms, self._change_ms)
        if now_ms >= self._meter.next_sample_ms:
            self._meter.sample(now_ms, row)
        if row >= len(self.trace) and not self._alive(now_ms):
            return NEVER_MS
        if self._tick_ms <= now_ms < NEVER_MS:
            apply(self.state, Ticked(now_ms))
            wake = self.state.wake_ms()
            self._tick_ms = NEVER_MS if wake is None else max(wake, now_ms + 1)
        self._set_due()
        return now_ms

    def _set_due(self) -> None:
        self._change_ms = self._changes[-1].at_ms if self._changes else NEVER_MS
        self._due_ms = min(self._meter.next_sample_ms, self._tick_ms, self._change_ms)

    def _decide_timed(self, now_ms: int) -> None:
        before = perf_counter_ns()
        plan = decide(self.state, self.policy, now_ms)
        self.result.decide_ns.append(perf_counter_ns() - before)
        self._commit(plan, now_ms)

    def _alive(self, now_ms: int) -> bool:
        """Whether anything can still happen once all jobs have arrived."""
        state = self.state
        if state.running or state.earmarks or state.deferred:
            self._quiet_ms = NEVER_MS
            return True
        if not state.queue.count:
            return False
        # Nothing runs and jobs wait: only a node that comes back or a budget's next window can help.
        if self._ends or self._changes:
            return True
        windows = [spend.longest_ms for spend in state.tenants.spend if spend is not None]
        if not windows or self._tick_ms == NEVER_MS:
            return False
        self._quiet_ms = min(self._quiet_ms, now_ms)
        return now_ms <= self._quiet_ms + max(windows)

    # -- what happens ------------------------------------------------------------------------------------------

    def _admit(self, spec: int) -> int:
        """The team under which a spec is measured, or -1 if it could never run."""
        asked = self.trace.specs[spec]
        team = -1
        if impossible_reason(self.state, asked) is None:
            team = self._meter.team(self.state.take_in(asked)[3])
        self._team[spec] = team
        return team

    def _may_enter(self, job: Job) -> bool:
        """Whether a pool takes a job with its time limit; one that none takes is refused, and so not measured."""
        spec = job.spec
        if self.state.shape_for(spec, self.state.limit_for(spec, job.limit_ms)).walled:
            self._meter.refuse(self.trace.spec[job.id - 1])
            return False
        return True

    def _end(self, record: JobRecord, at_ms: int, outcome: Outcome) -> None:
        """An attempt ends, of any job and in any way."""
        job_id = record.id
        ran_ms = at_ms - record.started_ms
        saved_before = self._saved.get(job_id, 0)
        if outcome is not _PREEMPTED and outcome is not _NODE_FAIL:
            if outcome is not _COMPLETED:
                self._meter.destroyed(record, ran_ms + saved_before)
                self.result.timeouts += 1
            if not self._meter.one_price:
                self._meter.charge(record, ran_ms)
            self._saved.pop(job_id, None)
            ran_ms = self._ran.pop(job_id, 0)
            wait_ms = waited_ms(record.job.submitted_ms, record.started_ms, ran_ms)
            self._meter.ended.append((job_id, wait_ms, at_ms))
            end(self.state, at_ms, job_id, record.attempt, outcome)
            return
        saved_ms = saved_before + self._kept(record, ran_ms)
        self._saved[job_id] = saved_ms
        self._stopped(record, ran_ms)
        self._meter.redone(record, ran_ms - (saved_ms - saved_before))
        end(self.state, at_ms, job_id, record.attempt, outcome, saved_ms)

    def _stopped(self, record: JobRecord, ran_ms: int) -> None:
        """An attempt of a job that has not ended ran for `ran_ms`."""
        self._ran[record.id] = self._ran.get(record.id, 0) + ran_ms
        if not self._meter.one_price:
            self._meter.charge(record, ran_ms)

    def _kept(self, record: JobRecord, ran_ms: int) -> int:
        """How much of an interrupted attempt's work is saved: whole checkpoint intervals."""
        spec = record.job.spec
        worked = ran_ms - (spec.restart_cost_ms if record.attempt > 1 else 0)
        if spec.checkpoint_ms <= 0 or worked <= 0:
            return 0
        return worked // spec.checkpoint_ms * spec.checkpoint_ms

    def _node_changes(self, at_ms: int) -> None:
        while self._changes and self._changes[-1].at_ms == at_ms:
            self._node_change(self._changes.pop())
        self._set_due()

    def _node_change(self, change: NodeChange) -> None:
        state = self.state
        if change.up:
            apply(state, NodeUp(change.at_ms, change.node))
            return
        self.result.node_failures += 1
        apply(state, NodeDown(change.at_ms, change.node, change.why))
        lost = sorted(state.nodes.attempts_on[change.node])
        for job_id in lost:
            self._outcome.pop(job_id, None)
            self._end(state.running[job_id], change.at_ms, Outcome.NODE_FAIL)

    # -- what is decided ---------------------------------------------------------------------------------------

    def _commit(self, plan: Plan, now_ms: int) -> None:
        state, run_ms, push = self.state, self.trace.run_ms, self._ends.push
        if self._watch is not None:
            self._watch(plan, now_ms)
        if plan[1]:
            self._stop(plan, now_ms)
        for job_id, attempt, grants in plan[0]:
            record = start(state, now_ms, job_id, attempt, grants)
            end_ms = now_ms + run_ms[job_id - 1]
            if attempt > 1:
                end_ms += record.job.spec.restart_cost_ms - self._saved.get(job_id, 0)
            if end_ms > record.end_ms:
                end_ms = record.end_ms
                self._outcome[job_id] = Outcome.TIMEOUT
            push((end_ms, job_id, attempt, record))
        # After the starts: an earmark overdraws its nodes, and nothing may start on such a node.
        for earmark in plan[2]:
            apply(state, EarmarkSet(now_ms, earmark.job_id, earmark.grants, earmark.expires_ms))
        if plan[2] or (self._timed and self._tick_ms == NEVER_MS):
            wake = state.wake_ms()
            self._tick_ms = NEVER_MS if wake is None else max(wake, now_ms + 1)
            self._set_due()

    def _stop(self, plan: Plan, now_ms: int) -> None:
        state = self.state
        for stop in plan.stops:
            record = state.running[stop.job_id]
            apply(state, AttemptStopping(now_ms, stop.job_id, stop.attempt, stop.cause, stop.for_job))
            self.result.preemptions += 1
            natural_ms = self._natural_end_ms(record)
            stopped_ms = now_ms + record.klass.grace_ms
            if stopped_ms < natural_ms:
                self._outcome[record.id] = Outcome.PREEMPTED
                self._ends.push((stopped_ms, record.id, record.attempt, record))

    def _natural_end_ms(self, record: JobRecord) -> int:
        need_ms = self.trace.run_ms[record.id - 1]
        if record.attempt > 1:
            need_ms += record.job.spec.restart_cost_ms - self._saved.get(record.id, 0)
        return min(record.started_ms + need_ms, record.started_ms + record.estimate_ms)


def percentile_ms(times_ns: "array[int]", percent: int) -> float:
    """A percentile (nearest rank) of nanoseconds, in milliseconds."""
    if not times_ns:
        return 0.0
    rank = max(1, -(-len(times_ns) * percent // 100))
    return sorted(times_ns)[rank - 1] / 1e6
