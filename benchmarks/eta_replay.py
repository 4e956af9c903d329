"""The replay under `bench_eta`: what jobs of a Philly week saw when they were submitted, and when they started.

An estimate may use what was known at its moment and nothing else: the state, which has no run times in it, and the jobs
that had ended by then.
"""

from bisect import bisect_left
from dataclasses import dataclass
from time import process_time
from typing import Any, NamedTuple

from gpuyard.cli.commands.foresight.fleet import make_uniform_pool
from gpuyard.core import State
from gpuyard.core.estimate.estimate import estimate
from gpuyard.core.schedule.policy import Policy
from gpuyard.core.state.dump import dump, load
from gpuyard.model import Plan, Settings
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.sim.forecast import Image, Past, forecast, freeze, thaw
from gpuyard.sim.pastjobs import PastJob
from gpuyard.sim.simulate import Simulation
from gpuyard.sim.trace import Trace

GPUS_PER_NODE = 8
WEEK_MS = 7 * DAY_MS
PAST_EVERY_MS = 4 * HOUR_MS
PAST_MS = 14 * DAY_MS
"""How far back an estimate looks."""


class Answer(NamedTuple):
    """What was said about a job, as waits, and how long it did wait."""

    job_id: int
    now_ms: int
    waited_ms: int
    p50_ms: int | None
    p90_ms: int | None
    bound_ms: int | None
    """By time limits alone."""
    cpu_s: float


@dataclass
class Question:
    """A job that was submitted and has to wait."""

    job_id: int
    now_ms: int
    image: Image
    """The state at that moment."""
    started_ms: int = -1


class Replay(Simulation):
    """A simulation that notes what every k-th job of some weeks saw when it came."""

    def __init__(self, *arguments: Any, weeks: dict[int, int], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.weeks = weeks
        """Every how many waiting jobs one is asked about, by week."""
        self.questions: dict[int, Question] = {}
        self.at_once: dict[int, int] = dict.fromkeys(weeks, 0)
        self.waited: dict[int, int] = dict.fromkeys(weeks, 0)
        self._seen = 0
        """The last job that was looked at."""

    def _commit(self, plan: Plan, now_ms: int) -> None:
        super()._commit(plan, now_ms)
        for start in plan.starts:
            asked = self.questions.get(start.job_id)
            if asked is not None and asked.started_ms < 0:
                asked.started_ms = now_ms
        if now_ms // WEEK_MS in self.weeks:
            for job_id in range(self._seen + 1, self.state.last_job_id + 1):
                if job_id in self.state.jobs:
                    self._ask(job_id, now_ms)
        self._seen = self.state.last_job_id
        # Every arrival is decided on, also one that changes nothing: it may be asked about.
        self.state.idle_plan = None

    def _ask(self, job_id: int, now_ms: int) -> None:
        week = now_ms // WEEK_MS
        if job_id in self.state.running:
            self.at_once[week] += 1
            return
        self.waited[week] += 1
        if self.waited[week] % self.weeks[week] == 0:
            self.questions[job_id] = Question(job_id, now_ms, freeze(_fresh(self.state)))


def _fresh(state: State) -> State:
    """The same state without what it only remembers, which is larger than the rest."""
    found = load(dump(state))
    found.ends = {}
    return found


def known(trace: Trace, live: Any, now_ms: int) -> list[PastJob]:
    """The jobs submitted before, with their run times if they had ended."""
    found = []
    first, last = (bisect_left(trace.submit_ms, at_ms) for at_ms in (now_ms - PAST_MS, now_ms))
    for row in range(first, last):
        at_ms = trace.submit_ms[row]
        spec = trace.specs[trace.spec[row]]
        gpu_milli = spec.ask.gpus.count * spec.ask.tasks * 1000  # type: ignore[union-attr]
        run_ms = -1 if row + 1 in live else trace.run_ms[row]
        found.append(PastJob(at_ms, spec, gpu_milli, trace.limit_ms[row], run_ms))
    return found


_PASTS: dict[int, Past] = {}
"""The past as of some hours ago: making it anew for every question takes longer than it is worth."""


def answer(trace: Trace, policy: Policy, asked: Question, runs: int) -> Answer:
    """What the yard would have said, before it is stretched."""
    began_s = process_time()
    state = thaw(asked.image)
    as_of_ms = asked.now_ms // PAST_EVERY_MS * PAST_EVERY_MS
    if as_of_ms not in _PASTS:
        _PASTS.clear()
        _PASTS[as_of_ms] = Past.of(known(trace, state.jobs, as_of_ms), as_of_ms)
    found = forecast(state, policy, asked.now_ms, [asked.job_id], _PASTS[as_of_ms], asked.job_id, runs=runs)
    bound_ms = estimate(state, policy, asked.now_ms, state.jobs[asked.job_id]).at_ms
    return Answer(
        asked.job_id,
        asked.now_ms,
        asked.started_ms - asked.now_ms,
        found.wait_ms(asked.job_id, 50),
        found.wait_ms(asked.job_id, 90),
        None if bound_ms is None else bound_ms - asked.now_ms,
        process_time() - began_s,
    )


def replay(trace: Trace, nodes: int, settings: Settings, policy: Policy, weeks: dict[int, int]) -> Replay:
    """The whole list, from its first job on: a week needs the queue that the week before left."""
    pool = make_uniform_pool(nodes * GPUS_PER_NODE, "V100", GPUS_PER_NODE)
    simulation = Replay(trace, (pool,), settings, policy, weeks=weeks)
    simulation.run()
    return simulation
