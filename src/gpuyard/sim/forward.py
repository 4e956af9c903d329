"""A state run forward in virtual time, with drawn run times and drawn arrivals, by the policy's own decisions.

This is `simulate` for a state that already exists: some jobs run, others wait, and no run time is known. One run is one
way it may go.
"""

from collections.abc import Callable, Collection
from heapq import heappop, heappush
from random import Random

from gpuyard.core import Policy, State, apply, decide
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.core.jobs.records import JobRecord
from gpuyard.model import (
    AttemptEnded,
    AttemptStarted,
    AttemptState,
    AttemptStopping,
    EarmarkSet,
    Job,
    JobSpec,
    JobSubmitted,
    Outcome,
    Plan,
    StopCause,
    Ticked,
)
from gpuyard.sim.pastjobs import BLOCK_MS, Arrivals, PastJob, RunTimes

_NEVER = 1 << 62
_LOOK_UP_EVERY = 256
"""How many moments pass between two calls of `enough`."""

_COMPLETED, _TIMEOUT, _PREEMPTED = Outcome.COMPLETED, Outcome.TIMEOUT, Outcome.PREEMPTED


class Forward:
    """One run. It owns the state that it is given."""

    def __init__(
        self,
        state: State,
        policy: Policy,
        now_ms: int,
        run_times: RunTimes,
        arrivals: Arrivals,
        random: Random,
    ) -> None:
        self.state = state
        self.moments = 0
        """At how many moments something happened: the cost of a run."""
        self._policy = policy
        self._now_ms = now_ms
        self._run_times = run_times
        self._arrivals = arrivals
        self._random = random
        self._total_ms: dict[int, int] = {}
        """Total work of each job that has started, over all its attempts."""
        self._served: dict[tuple[int, int], bool] = {}
        """Whether a spec could ever run here, by the identity of the spec."""
        self._coming: list[tuple[int, PastJob]] = []
        """The arrivals of this stretch, the last first."""
        self._block = 0
        self._heap: list[tuple[int, int, int, int, Outcome]] = []
        """Ends to come: time, job and attempt, order in which they were foreseen, outcome."""
        self._foreseen = 0
        self._tick_ms = _NEVER
        for record in state.running.values():
            self._foresee(record)

    def run(
        self, wanted: Collection[int], until_ms: int, enough: Callable[[], bool] = lambda: False
    ) -> dict[int, int] | None:
        """When each wanted job starts; jobs that do not start in time are missing. None: the run was cut off."""
        state, policy, heap = self.state, self._policy, self._heap
        left, started = set(wanted), dict[int, int]()
        now_ms = self._now_ms
        self._wake(now_ms)
        while left:
            self.moments += 1
            if not self.moments % _LOOK_UP_EVERY and enough():
                return None
            if state.queue.count:
                plan = decide(state, policy, now_ms)
                self._commit(plan, now_ms)
                for start in plan.starts:
                    if start.job_id in left:
                        left.discard(start.job_id)
                        started[start.job_id] = now_ms
            if self._tick_ms == _NEVER:
                self._wake(now_ms)
            arrival_ms = self._next_arrival_ms(until_ms)
            now_ms = min(arrival_ms, self._tick_ms, heap[0][0] if heap else _NEVER)
            if now_ms > until_ms:
                break
            if self._tick_ms <= now_ms:
                apply(state, Ticked(now_ms))
                self._wake(now_ms)
            while heap and heap[0][0] == now_ms:
                _at_ms, job_id, attempt, _order, outcome = heappop(heap)
                self._end(job_id, attempt, outcome, now_ms)
            while self._coming and self._coming[-1][0] == now_ms:
                self._arrive(self._coming.pop()[1], now_ms)
        return started

    # -- what happens ------------------------------------------------------------------------------------------

    def _wake(self, now_ms: int) -> None:
        wake_ms = self.state.wake_ms()
        self._tick_ms = _NEVER if wake_ms is None else max(wake_ms, now_ms + 1)

    def _next_arrival_ms(self, until_ms: int) -> int:
        while not self._coming and self._now_ms + self._block * BLOCK_MS <= until_ms:
            found = self._arrivals.block(self._now_ms, self._block, self._random)
            found.sort(key=lambda each: each[0], reverse=True)
            self._coming = found
            self._block += 1
        return self._coming[-1][0] if self._coming else _NEVER

    def _arrive(self, past: PastJob, now_ms: int) -> None:
        state, spec = self.state, past.spec
        if not self._serves(spec, past.limit_ms):
            return
        job_id = state.last_job_id + 1
        limit_ms = past.limit_ms
        apply(state, JobSubmitted(now_ms, Job(job_id, spec, now_ms, limit_ms)))
        if past.run_ms >= 0:
            self._total_ms[job_id] = past.run_ms

    def _serves(self, spec: JobSpec, limit_ms: int) -> bool:
        key = (id(spec), limit_ms if self.state.walls is not None else 0)
        known = self._served.get(key)
        if known is None:
            # A past job may be one that the present yard could not serve, or depend on a job long gone.
            impossible = impossible_reason(self.state, spec, key[1]) is not None
            known = self._served[key] = not (spec.after or impossible)
        return known

    def _foresee(self, record: JobRecord) -> None:
        """Schedule the end of an attempt that already runs."""
        now_ms, phase = self._now_ms, record.phase
        if phase is AttemptState.SUSPENDED:
            return
        if phase is AttemptState.STOPPING:
            outcome = Outcome.CANCELLED if record.cause is StopCause.CANCEL else _PREEMPTED
            self._ends(record, max(record.end_ms, now_ms + 1), outcome)
            return
        need_ms = self._need_ms(record, now_ms - record.started_ms)
        self._ends(record, max(record.started_ms + need_ms, now_ms + 1), _COMPLETED)

    def _need_ms(self, record: JobRecord, ran_ms: int) -> int:
        """How long the current attempt needs in all, given that it has run for `ran_ms`."""
        lost_ms = record.job.spec.restart_cost_ms if record.attempt > 1 else 0
        total_ms = self._total_ms.get(record.id)
        if total_ms is None:
            done_ms = record.saved_ms + max(0, ran_ms - lost_ms)
            spec, milli = record.job.spec, record.shape.gpu_milli
            total_ms = self._run_times.draw(spec, milli, record.limit_ms, done_ms, self._random)
            self._total_ms[record.id] = total_ms
        return max(1, total_ms - record.saved_ms + lost_ms)

    def _ends(self, record: JobRecord, at_ms: int, outcome: Outcome) -> None:
        self._foreseen += 1
        heappush(self._heap, (at_ms, record.id, record.attempt, self._foreseen, outcome))

    def _end(self, job_id: int, attempt: int, outcome: Outcome, now_ms: int) -> None:
        record = self.state.running.get(job_id)
        if record is None or record.attempt != attempt:
            return
        if outcome is _PREEMPTED:
            saved_ms = record.saved_ms + self._kept_ms(record, now_ms - record.started_ms)
            apply(self.state, AttemptEnded(now_ms, job_id, attempt, outcome, saved_ms))
            return
        self._total_ms.pop(job_id, None)
        apply(self.state, AttemptEnded(now_ms, job_id, attempt, outcome))

    def _kept_ms(self, record: JobRecord, ran_ms: int) -> int:
        """How much of an interrupted attempt's work is saved: whole checkpoint intervals."""
        spec = record.job.spec
        worked_ms = ran_ms - (spec.restart_cost_ms if record.attempt > 1 else 0)
        if spec.checkpoint_ms <= 0 or worked_ms <= 0:
            return 0
        return worked_ms // spec.checkpoint_ms * spec.checkpoint_ms

    def _commit(self, plan: Plan, now_ms: int) -> None:
        state = self.state
        for stop in plan.stops:
            record = state.running[stop.job_id]
            apply(state, AttemptStopping(now_ms, stop.job_id, stop.attempt, stop.cause, stop.for_job))
            # If the attempt ends by itself within its grace period, that end comes first and this one finds nothing.
            self._ends(record, now_ms + record.klass.grace_ms, _PREEMPTED)
        for start in plan.starts:
            apply(state, AttemptStarted(now_ms, start.job_id, start.attempt, start.grants))
            record = state.running[start.job_id]
            end_ms = now_ms + self._need_ms(record, 0)
            late = end_ms > record.end_ms
            self._ends(record, min(end_ms, record.end_ms), _TIMEOUT if late else _COMPLETED)
        # After the starts: an earmark overdraws its nodes, and nothing may start on such a node.
        for earmark in plan.earmarks:
            apply(state, EarmarkSet(now_ms, earmark.job_id, earmark.grants, earmark.expires_ms))
        if plan.earmarks:
            self._wake(now_ms)
