"""A fleet of several clusters, full, with a long queue, and the things that happen to it. See `bench_fleet.py`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from time import thread_time_ns

from gpuyard.core import State, apply, decide
from gpuyard.model import (
    Ask,
    AttemptEnded,
    AttemptStarted,
    AttemptStopping,
    ConfigSet,
    DemandLearned,
    EarmarkSet,
    Event,
    Job,
    JobClass,
    JobSpec,
    JobSubmitted,
    Milli,
    Node,
    NodeAdded,
    NodeCordoned,
    NodeDown,
    NodeUncordoned,
    NodeUp,
    Outcome,
    Plan,
    Quota,
    Settings,
    Tenant,
    Ticked,
    Whole,
)
from gpuyard.model.settings import TOTAL
from gpuyard.model.units import GIB_MIB, MILLI, MINUTE_MS
from gpuyard.policies.registry import PRESETS, build
from gpuyard.sim import generate
from gpuyard.sim.traces.options import make_gang_ask

GPUS_PER_NODE, NODES_PER_SWITCH = 8, 32
BURST = 100
LARGE = 64
"""GPUs of the gang that comes every round."""
_STEP_MS, _FILL_STEPS = 10_000, 180
_TEAMS = (
    # Path, weight, percent of the GPUs guaranteed and at most, and how many jobs in twenty.
    ("research", 3, 40, 100, 9),
    ("product", 2, 25, 60, 5),
    ("interns", 1, 10, 35, 6),
)
_USERS = 20
"""Of each team."""


@dataclass(frozen=True, slots=True)
class Mix:
    """What the jobs of a fleet ask for, and by which rules they wait."""

    policy: str = "default"
    cores: bool = False
    """Every ask has cores and memory, each team has users with a limit, and each cluster two GPU models."""
    parts: bool = False
    """One job in six asks for a part of a GPU."""
    lend_percent: int = 100
    """How much of an unused guarantee other teams may use."""


MIXES = {
    "fifo": Mix("fifo"),
    "default": Mix(),
    "cores and users": Mix(cores=True),
    "parts of GPUs": Mix(cores=True, parts=True),
    "guarantees held back": Mix(lend_percent=50),
}


class Fleet:
    """A state under pressure: events, decisions, and what each of them took."""

    def __init__(self, mix: Mix, clusters: int, nodes: int, waiting: int, seed: int = 0) -> None:
        self.state = State()
        self.decide_ns: dict[str, list[int]] = {}
        """How long each decision took, by what happened before it."""
        self.starts = self.stops = 0
        self._mix = mix
        self._policy = build(PRESETS[mix.policy])
        self._nodes, self._waiting = clusters * nodes, waiting
        self._random = Random(seed)
        self._uniform = self._random.random
        self._ends: list[tuple[int, int, int, Outcome]] = []
        """(time, job, attempt, how it ends), as a heap."""
        self._now_ms = 0
        self._run_ms: dict[int, int] = {}
        self._specs: list[JobSpec] = []
        self._drained: list[int] = []
        self._failed: list[int] = []
        gpus = self._nodes * GPUS_PER_NODE
        self._apply(ConfigSet(0, _settings(mix, gpus)))
        for cluster in range(clusters):
            for number in range(nodes):
                self._apply(NodeAdded(0, _node(mix, f"c{cluster}", number, nodes)))
        self._specs = list(self._made_specs())
        if mix.parts:
            asks = {spec.ask: 0 for spec in self._specs}
            for spec in self._specs:
                asks[spec.ask] += 1
            self._apply(DemandLearned(0, tuple(asks.items())))
        self._fill()

    # -- jobs ----------------------------------------------------------------------------------------------------

    def _made_specs(self) -> Iterator[JobSpec]:
        """A thousand specs, as often as each occurs."""
        sizes = [
            size
            for size, weight in zip(generate.SIZES, generate.SIZE_WEIGHTS, strict=True)
            for _ in range(weight)
        ]
        teams = [team[0] for team in _TEAMS for _ in range(team[4])]
        asks: dict[tuple[int, bool], Ask] = {}
        specs: dict[tuple[Ask, str, str, str], JobSpec] = {}
        for size in sizes:
            team = self._random.choice(teams) if self._mix.policy != "fifo" else "default"
            klass = "urgent" if team == "product" and self._uniform() < 0.2 else ""
            user = f"{team[0]}{self._random.randrange(_USERS)}" if self._mix.cores else ""
            part = self._mix.parts and self._uniform() < 1 / 6
            ask = asks.setdefault((size, part), self._ask(size, part))
            yield specs.setdefault((ask, team, klass, user), JobSpec(team, ask, klass=klass, user=user))

    def _ask(self, size: int, part: bool) -> Ask:
        if not self._mix.cores:
            return make_gang_ask(size, GPUS_PER_NODE)
        if part:
            return Ask(Milli(1, 500 if size > 1 else 250), cpu_milli=4 * MILLI, memory_mib=16 * GIB_MIB)
        tasks, per_task = (1, size) if size <= GPUS_PER_NODE else (size // GPUS_PER_NODE, GPUS_PER_NODE)
        return Ask(Whole(per_task), tasks, cpu_milli=8 * per_task * MILLI, memory_mib=64 * per_task * GIB_MIB)

    def _submit(self, spec: JobSpec) -> None:
        job_id = self.state.last_job_id + 1
        run_ms = int(generate.MEDIAN_MS * 2 ** self._random.gauss(0, 2.7)) + 1
        self._run_ms[job_id] = run_ms
        limit_ms = int(run_ms * (1 + 2 * self._uniform())) + MINUTE_MS
        self._apply(JobSubmitted(self._now_ms, Job(job_id, spec, self._now_ms, limit_ms)))

    def _top_up(self) -> None:
        while self.state.queue.count < self._waiting:
            self._submit(self._random.choice(self._specs))

    def _fill(self) -> None:
        """Start until nothing fits any more; then let time pass, so that jobs of every age run."""
        while True:
            self._top_up()
            plan = decide(self.state, self._policy, self._now_ms)
            self._commit(plan)
            if not plan.starts:
                break
        for _ in range(_FILL_STEPS):
            self._pass_time(_STEP_MS)
            self._top_up()
            self._commit(decide(self.state, self._policy, self._now_ms))

    # -- events --------------------------------------------------------------------------------------------------

    def _apply(self, event: Event) -> None:
        apply(self.state, event)

    def _pass_time(self, by_ms: int) -> None:
        self._now_ms += by_ms
        while self._ends and self._ends[0][0] <= self._now_ms:
            self._end_next()
        wake_ms = self.state.wake_ms()
        if wake_ms is not None and wake_ms <= self._now_ms:
            self._apply(Ticked(self._now_ms))

    def _end_next(self) -> bool:
        at_ms, job_id, attempt, outcome = heappop(self._ends)
        record = self.state.running.get(job_id)
        if record is None or record.attempt != attempt:
            return False
        self._now_ms = max(self._now_ms, at_ms)
        self._apply(AttemptEnded(self._now_ms, job_id, attempt, outcome))
        return True

    def _commit(self, plan: Plan) -> None:
        state, now_ms = self.state, self._now_ms
        for stop in plan.stops:
            self._apply(AttemptStopping(now_ms, stop.job_id, stop.attempt, stop.cause, stop.for_job))
            grace_ms = state.running[stop.job_id].klass.grace_ms
            heappush(self._ends, (now_ms + grace_ms, stop.job_id, stop.attempt, Outcome.PREEMPTED))
        for start in plan.starts:
            self._apply(AttemptStarted(now_ms, start.job_id, start.attempt, start.grants))
            end_ms = min(now_ms + self._run_ms[start.job_id], state.running[start.job_id].end_ms)
            heappush(self._ends, (end_ms, start.job_id, start.attempt, Outcome.COMPLETED))
        for earmark in plan.earmarks:
            self._apply(EarmarkSet(now_ms, earmark.job_id, earmark.grants, earmark.expires_ms))

    # -- what happens --------------------------------------------------------------------------------------------

    def end_one(self) -> None:
        """A job ends, another arrives."""
        while self._ends and not self._end_next():
            pass
        self._top_up()

    def end_several(self) -> None:
        """Eight jobs end, as many arrive."""
        for _ in range(8):
            self.end_one()

    def arrive(self) -> None:
        """A job arrives."""
        self._submit(self._random.choice(self._specs))

    def burst(self) -> None:
        """A hundred jobs arrive."""
        for _ in range(BURST):
            self.arrive()

    def large(self) -> None:
        """A gang arrives."""
        self._submit(self._of_size(LARGE, ""))

    def urgent(self) -> None:
        """An urgent job for a whole node arrives."""
        self._submit(self._of_size(GPUS_PER_NODE, "urgent"))

    def _of_size(self, size: int, klass: str) -> JobSpec:
        team = "default" if self._mix.policy == "fifo" else "product"
        user = team[0] + "0" if self._mix.cores else ""
        return JobSpec(team, self._ask(size, False), klass=klass, user=user)

    def drain(self) -> None:
        """A node is drained, and the one before it takes jobs again."""
        if self._drained:
            self._apply(NodeUncordoned(self._now_ms, self._drained.pop()))
        number = self._random.randrange(self._nodes)
        if not self.state.nodes.closed[number]:
            self._apply(NodeCordoned(self._now_ms, number, "drained"))
            self._drained.append(number)

    def fail(self) -> None:
        """A node fails with all its jobs, and the one before it comes back."""
        if self._failed:
            self._apply(NodeUp(self._now_ms, self._failed.pop()))
        number = self._random.randrange(self._nodes)
        if not self.state.nodes.closed[number]:
            self._apply(NodeDown(self._now_ms, number, "lost"))
            self._failed.append(number)
            for job_id in list(self.state.nodes.attempts_on[number]):
                record = self.state.running[job_id]
                self._apply(AttemptEnded(self._now_ms, job_id, record.attempt, Outcome.NODE_FAIL))

    def wait(self) -> None:
        """Ten seconds pass."""
        self._pass_time(_STEP_MS)

    def round(self) -> None:
        """Everything once, each followed by a decision that is timed and carried out."""
        happens: tuple[tuple[str, Callable[[], None]], ...] = (
            ("a job ends", self.end_one),
            ("a job arrives", self.arrive),
            ("8 jobs end", self.end_several),
            (f"{BURST} jobs arrive", self.burst),
            ("a job ends", self.end_one),
            ("a gang arrives", self.large),
            ("a job ends", self.end_one),
            ("an urgent job arrives", self.urgent),
            ("8 jobs end", self.end_several),
            ("a node is drained", self.drain),
            ("a node fails", self.fail),
            ("10 s pass", self.wait),
        )
        for name, happen in happens:
            happen()
            before = thread_time_ns()
            plan = decide(self.state, self._policy, self._now_ms)
            self.decide_ns.setdefault(name, []).append(thread_time_ns() - before)
            self.starts += len(plan.starts)
            self.stops += len(plan.stops)
            self._commit(plan)


def _settings(mix: Mix, gpus: int) -> Settings:
    classes = (JobClass("batch"), JobClass("urgent", priority=100, preemptible=False))
    if mix.policy == "fifo":
        return Settings(classes=classes, policy=PRESETS[mix.policy])
    return Settings(
        tenants=tuple([_tenant(mix, gpus, *team[:4]) for team in _TEAMS]),
        classes=classes,
        policy=PRESETS[mix.policy],
    )


def _tenant(
    mix: Mix, gpus: int, path: str, weight: int, guaranteed_percent: int, most_percent: int
) -> Tenant:
    guarantee = gpus * guaranteed_percent // 100 * MILLI
    most = max(LARGE, gpus * most_percent // 100) * MILLI
    lend = {} if mix.lend_percent == 100 else {TOTAL: guarantee * mix.lend_percent // 100}
    per_user = max(LARGE, gpus // 20) * MILLI if mix.cores else None
    quota = Quota({TOTAL: guarantee}, {TOTAL: most}, lend=lend, max_gpus_per_user=per_user)
    return Tenant(path, weight, quota)


def _node(mix: Mix, cluster: str, number: int, nodes: int) -> Node:
    older = mix.cores and number >= nodes * 2 // 3
    return Node(
        name=f"n{number:05d}",
        cluster=cluster,
        pool="a100" if older else "h100",
        gpu_model="A100-80GB" if older else "H100",
        gpus=GPUS_PER_NODE,
        cpu_milli=(96 if older else 192) * MILLI,
        memory_mib=2048 * GIB_MIB,
        nvlink_group_size=GPUS_PER_NODE,
        switch=f"s{number // NODES_PER_SWITCH}" if mix.cores else "",
    )
