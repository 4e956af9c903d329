"""A full cluster with a long queue, kept that way while its decisions are timed.

The state is built from events, as a live one is: jobs are submitted, decided on and started until nothing
fits any more. Then, pass by pass, jobs end when their time is up, as many arrive as left the queue, and one
`decide` is timed and its plan carried out.
"""

from array import array
from heapq import heappop, heappush
from random import Random
from time import perf_counter_ns

from gpuyard.cli.commands.bench.bench_yard import BenchYard
from gpuyard.core import State, apply, decide
from gpuyard.model import (
    AttemptEnded,
    AttemptStarted,
    AttemptStopping,
    ConfigSet,
    EarmarkSet,
    JobSubmitted,
    NodeAdded,
    Outcome,
    Plan,
    Ticked,
)
from gpuyard.model.units import MINUTE_MS
from gpuyard.policies.registry import build

ENDS_MAX = 8
"""At most this many jobs end between two decisions."""

_AGING_MS = 20 * MINUTE_MS
_AGING_STEP_MS = MINUTE_MS // 2

_GPUS_PER_JOB_MIN = 1
"""So low that enough jobs are made to fill the cluster, and to fill it again while it ages."""


class LoadedState:
    """A state under pressure."""

    clock = staticmethod(perf_counter_ns)
    """What decisions are timed by."""

    def __init__(self, yard: BenchYard, waiting: int, passes: int, seed: int) -> None:
        self.state = State()
        self.decide_ns = array("q")
        """How long each decision so far took."""
        self.starts = self.stops = 0
        self._policy = build(yard.policy)
        self._waiting = waiting
        self._random = Random(f"{seed}:ends")
        self._ends: list[tuple[int, int, int, Outcome]] = []
        """(time, job, attempt, how it ends), as a heap."""
        self._now_ms = 0
        self._row = 0
        # Jobs replace each other, so every pass needs as many new ones as it may have ended and started.
        spare = passes * ENDS_MAX * 8
        jobs = waiting + yard.gpus // _GPUS_PER_JOB_MIN + spare + 1000
        self._trace = yard.trace(jobs, 1.0, seed)
        apply(self.state, ConfigSet(0, yard.config.settings))
        for pool in yard.config.pools:
            for node in pool.nodes:
                apply(self.state, NodeAdded(0, node))
        self._fill()
        self._age()

    def _fill(self) -> None:
        """Submit and start until the queue is as long as it should be with nothing left to start."""
        for _ in range(len(self._trace)):
            self._arrive()
            plan = decide(self.state, self._policy, self._now_ms)
            self._commit(plan)
            if plan.empty and self.state.queue.count >= self._waiting:
                break

    def _age(self) -> None:
        """Let time pass, so that jobs of every age run: young ones may not be preempted."""
        for now_ms in range(_AGING_STEP_MS, _AGING_MS + 1, _AGING_STEP_MS):
            while self._ends and self._ends[0][0] <= now_ms:
                self._end_next()
            self._now_ms = now_ms
            self._settle()
            self._commit(decide(self.state, self._policy, now_ms))

    def _settle(self) -> None:
        """What happens before a decision: jobs arrive, and the clock ticks where something is due."""
        self._arrive()
        wake_ms = self.state.wake_ms()
        if wake_ms is not None and wake_ms <= self._now_ms:
            apply(self.state, Ticked(self._now_ms))

    def step(self) -> None:
        """One pass: jobs end, others arrive, a decision is timed and carried out."""
        for _ in range(1 + self._random.randrange(ENDS_MAX)):
            if self._ends:
                self._end_next()
        self._settle()
        before = self.clock()
        plan = decide(self.state, self._policy, self._now_ms)
        self.decide_ns.append(self.clock() - before)
        self.starts += len(plan.starts)
        self.stops += len(plan.stops)
        self._commit(plan)

    def _arrive(self) -> None:
        """Bring the queue to its length."""
        while self.state.queue.count < self._waiting and self._row < len(self._trace):
            job = self._trace.job(self._row)
            self._row += 1
            apply(self.state, JobSubmitted(self._now_ms, job._replace(submitted_ms=self._now_ms)))

    def _end_next(self) -> None:
        at_ms, job_id, attempt, outcome = heappop(self._ends)
        record = self.state.running.get(job_id)
        if record is None or record.attempt != attempt:
            return
        self._now_ms = max(self._now_ms, at_ms)
        apply(self.state, AttemptEnded(self._now_ms, job_id, attempt, outcome))

    def _commit(self, plan: Plan) -> None:
        state, now_ms = self.state, self._now_ms
        for stop in plan.stops:
            apply(state, AttemptStopping(now_ms, stop.job_id, stop.attempt, stop.cause, stop.for_job))
            grace_ms = state.running[stop.job_id].klass.grace_ms
            heappush(self._ends, (now_ms + grace_ms, stop.job_id, stop.attempt, Outcome.PREEMPTED))
        for start in plan.starts:
            apply(state, AttemptStarted(now_ms, start.job_id, start.attempt, start.grants))
            record = state.running[start.job_id]
            end_ms = min(now_ms + self._trace.run_ms[start.job_id - 1], record.end_ms)
            heappush(self._ends, (end_ms, start.job_id, start.attempt, Outcome.COMPLETED))
        for earmark in plan.earmarks:
            apply(state, EarmarkSet(now_ms, earmark.job_id, earmark.grants, earmark.expires_ms))
