"""One seed, one life of a control plane among faults: the unchanged control loop, a virtual clock, a failing engine.

Everything is drawn from one seed: fleet, policy, tenants, jobs, what people ask for, and a swarm of fault rates, some
of them nothing. First safety while things go wrong; then the faults stop, and everything must come to its end.

What is checked is the world (`SimEngine.world`, which no answer is made from), not what the control plane believes.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from gpuyard.control.loop.loop import Controller
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.core.state.dump import canonical
from gpuyard.engines.contract import EngineError, Launch, Recipe, Stale
from gpuyard.model import (
    After,
    AfterKind,
    Ask,
    ConfigSet,
    EarmarkDropped,
    Job,
    JobChanged,
    JobClass,
    JobSpec,
    JobState,
    JobSubmitted,
    Node,
    NodeCordoned,
    NodeUncordoned,
    Quota,
    Requested,
    Settings,
    TasksSubmitted,
    Tenant,
    Verb,
    Whole,
)
from gpuyard.model.serialise import to_plain
from gpuyard.policies.registry import PRESETS
from gpuyard.store import Commit, Fenced, Numbered, StoreError, StoreFull, Submission
from gpuyard.testing import Faults, Life, MemoryStore, Run, SimEngine

STEPS = 220
LIVELY_STEPS_MAX = 4000
RECIPE = json.dumps(to_plain(Recipe(argv=("true",)))).encode()
RECIPE_HASH = hashlib.sha256(RECIPE).hexdigest()


class FailingStore(MemoryStore):
    """A store whose disk is full now and then: what is judged is not written."""

    fails = 0

    def commit(
        self, epoch: int | None, after_seq: int, make: Callable[[list[Numbered]], Commit | None]
    ) -> list[int]:
        if self.fails and epoch in (None, self.epoch):
            self.fails -= 1
            make(self.read(after_seq))
            raise StoreFull("no space left on the disk")
        return super().commit(epoch, after_seq, make)


class Died(BaseException):
    """The control plane is gone, in the middle of whatever it did."""


@dataclass
class Mortal:
    """Something through which the control plane reaches the world: calls pass, until it is time to die."""

    inner: Any
    trial: "Trial"
    deadly: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        return self._guarded(found) if name in self.deadly else found

    def _guarded(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any, **named: Any) -> Any:
            self.trial.breath()
            try:
                return call(*arguments, **named)
            finally:
                self.trial.breath()

        return guarded


@dataclass
class Trial:
    """A yard and its world."""

    seed: int
    clusters: tuple[str, ...] = ("main",)
    steps: int = STEPS
    images: bool = False
    """Whether some jobs run in images, which take time to pull and cannot always be had."""
    changing: bool = True
    """Whether jobs are changed."""
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = rng = Random(self.seed)
        self.changes = Random(self.seed + 7)
        """Draws changes of jobs."""
        self.pulls = Random(self.seed + 2)
        """A source of its own: a seed without images lives as it did before there were any."""
        self.clock_ms = 1_000_000
        self.skew_ms = 0
        """How far the control plane's clock is off."""
        self.breaths: int | None = None
        """Calls it has left to live."""
        self.lives: dict[int, Life] = {}
        self.accepted: list[int] = []
        self.engines = {cluster: self._engine(cluster) for cluster in self.clusters}
        self.store = FailingStore(f"sim{self.seed % 100000:05}")
        self.policy = rng.choice(sorted(PRESETS))
        self.settings = self._settings()
        self.old: list[Controller] = []
        self.replica: Replica
        self.controller: Controller
        self._rise()
        self.replica.commit(None, lambda draft: draft.add(ConfigSet(self.clock_ms, self.settings)))

    # -- what is drawn ---------------------------------------------------------------------------------------------

    def _engine(self, cluster: str) -> SimEngine:
        """Nodes of all clusters have the same names."""
        rng = self.rng
        nodes = [
            Node(
                f"n{i}",
                cluster,
                "p",
                rng.choice(["H100", "A100-80GB"]),
                rng.choice([2, 4, 8]),
                64_000,
                1 << 18,
            )
            for i in range(rng.randint(1, 4))
        ]
        return SimEngine(lambda: self.clock_ms, nodes, self._life, faults=self._faults())

    def _faults(self) -> Faults:
        rng = self.rng
        apart = ("pull_fails_milli", "refuses_limit_milli")
        names = [name for name in Faults.__slots__ if name.endswith("_milli") and name not in apart]
        rates = {name: rng.choice([0, 0, 30, 120]) for name in names}
        rates["refuses_limit_milli"] = self.changes.choice([0, 0, 500]) if self.changing else 0
        if self.images:
            rates["pull_fails_milli"] = self.pulls.choice([0, 100, 300])
        rates["crash_milli"] = rng.choice([0, 500, 1000])
        return Faults(Random(self.seed + 1), **rates)

    def _settings(self) -> Settings:
        rng = self.rng
        classes = (
            JobClass("batch", grace_ms=rng.choice([0, 2000, 30_000]), min_run_ms=rng.choice([0, 20_000])),
            JobClass("urgent", 10, preemptible=False, grace_ms=1000),
        )
        quota = Quota(guarantee={"total": 2000}, limit={"total": rng.choice([4000, 16_000])})
        tenants = (Tenant("a", 1, quota), Tenant("b", 2, Quota()))
        return Settings(tenants=tenants, classes=classes, policy=PRESETS[self.policy], earmark_ms=60_000)

    def _life(self, launch: Launch) -> Life:
        life = self.lives[launch.job_id]
        if not self.images:
            return life
        # Every attempt may come to another node, where the image is or is not.
        pull_ms = self.pulls.choice([0, 0, 100, 5000, 60_000])
        why = "it has no such image" if self.pulls.random() < 0.05 else ""
        return replace(life, pull_ms=pull_ms, no_image=why if pull_ms else "")

    def _spec(self) -> JobSpec:
        rng = self.rng
        ask = Ask(Whole(rng.choice([0, 1, 1, 2])), rng.choice([1, 1, 1, 2, 3]), cpu_milli=1000)
        return JobSpec(
            rng.choice("abc"),
            ask,
            rng.choice(["", "urgent"]),
            retries=rng.choice([0, 0, 2]),
            requeue=rng.random() < 0.8,
            checkpoint_ms=rng.choice([0, 10_000]),
            recipe=RECIPE_HASH,
            after=self._after(),
            after_one=rng.random() < 0.3,
        )

    def _after(self) -> tuple[After, ...]:
        rng = self.rng
        if not self.accepted or rng.random() < 0.7:
            return ()
        return tuple(
            [After(rng.choice(list(AfterKind)), rng.choice(self.accepted)) for _ in range(rng.randint(1, 2))]
        )

    # -- the control plane -----------------------------------------------------------------------------------------

    def breath(self) -> None:
        """One more call has been made or answered; the last one is never known to be."""
        if self.breaths is not None:
            self.breaths -= 1
            if self.breaths <= 0:
                self.breaths = None
                raise Died

    def _rise(self) -> None:
        store: Any = Mortal(self.store, self, ("commit",))
        calls = ("start", "stop", "suspend", "resume", "forget", "status")
        engines: dict[str, Any] = {name: Mortal(each, self, calls) for name, each in self.reached().items()}
        self.replica = Replica(store)
        driven = engines if len(engines) > 1 else engines[self.clusters[0]]
        self.controller = Controller(self.replica, driven, self.store.elect("sim").epoch, lost_ms=30_000)

    def reached(self) -> dict[str, Any]:
        """The engines as the control plane reaches them."""
        return dict(self.engines)

    def now_ms(self) -> int:
        """The time as the control plane sees it."""
        return self.clock_ms + self.skew_ms

    def step(self) -> None:
        """One step of the loop. What the store refuses is tried again in the next one."""
        with suppress(StoreFull):
            self.controller.step(self.now_ms())

    def _die(self) -> None:
        """Another one rises from the log."""
        self.story.append(f"{self.clock_ms}: the control plane died")
        if self.rng.random() < 0.5:
            # It was only paused: it may wake up later, when another one leads.
            self.old.append(self.controller)
        self._rise()

    def ghost(self) -> None:
        """A leader of the past wakes up and goes on: nobody may listen to it."""
        old = self.rng.choice(self.old)
        try:
            old.step(self.now_ms())
        except (Fenced, Stale):
            return
        except (StoreError, EngineError) as error:
            raise AssertionError(f"a deposed leader met {error!r} instead of being refused") from error
        raise AssertionError("a deposed leader went through a whole step unnoticed")

    # -- what people do --------------------------------------------------------------------------------------------

    def submit(self) -> None:
        spec, rng = self._spec(), self.rng
        if impossible_reason(self.replica.state, spec) is not None:
            return
        limit_ms = rng.choice([0, 60_000, 600_000])
        run_ms = rng.choice([10, 2000, 30_000, 200_000, 900_000])

        def make(first_id: int) -> list[JobSubmitted]:
            self.lives[first_id] = Life(
                run_ms,
                exit_code=rng.choice([0, 0, 0, 1]),
                term_ms=rng.choice([0, 500, 5000]),
                ignores_term=rng.random() < 0.2,
                checkpoint_every_ms=spec.checkpoint_ms,
            )
            now_ms = self.now_ms()
            return [JobSubmitted(now_ms, Job(first_id, spec, now_ms, limit_ms))]

        (answer,) = self.store.submit([Submission(make, blobs={RECIPE_HASH: RECIPE})], self.now_ms())
        assert not isinstance(answer, Exception)
        assert answer.first_id not in self.accepted, "an id was handed out twice"
        self.accepted.append(answer.first_id)

    def submit_array(self) -> None:
        """Some tasks of which some may run at a time."""
        spec, rng = self._spec(), self.rng
        if impossible_reason(self.replica.state, spec) is not None:
            return
        tasks, at_once, held = rng.randint(1, 5), rng.choice([0, 1, 2]), rng.random() < 0.3

        def make(first_id: int) -> list[TasksSubmitted]:
            now_ms = self.now_ms()
            for place in range(1, tasks + 1):
                self.lives[first_id + place] = Life(
                    rng.choice([10, 2000, 30_000]), exit_code=rng.choice([0, 1])
                )
            return [
                TasksSubmitted(
                    now_ms,
                    Job(first_id + 1 + start, spec, now_ms, array_id=first_id, array_index=start),
                    tuple(range(start, min(tasks, start + 2))),
                    at_once=at_once,
                    held=held,
                )
                for start in range(0, tasks, 2)
            ]

        item = Submission(make, tasks + 1, blobs={RECIPE_HASH: RECIPE})
        (answer,) = self.store.submit([item], self.now_ms())
        assert not isinstance(answer, Exception)
        self.accepted += range(answer.first_id + 1, answer.first_id + 1 + tasks)

    def ask_for(self, verb: Verb, job_id: int) -> None:
        self.story.append(f"{self.clock_ms}: {verb.value} {job_id}")
        self.replica.commit(None, lambda draft: draft.add(Requested(self.now_ms(), job_id, verb, "someone")))

    def change_job(self, job_id: int) -> None:
        """A job has another limit and name; one that waits asks for what another one would."""
        rng, record = self.changes, self.replica.state.jobs[job_id]
        job, now_ms = record.job, self.now_ms()
        spec = replace(job.spec, name=rng.choice(["a", "b"]))
        if record.phase is None:
            spec = replace(
                spec, ask=replace(spec.ask, gpus=Whole(rng.choice([0, 1, 2]))), tenant=rng.choice("abc")
            )
        if impossible_reason(self.replica.state, spec) is not None:
            return
        new = job._replace(spec=spec, limit_ms=rng.choice([0, 5000, 60_000, 600_000]))
        joined_ms = now_ms if record.phase is None and rng.random() < 0.5 else record.joined_ms
        self.story.append(f"{self.clock_ms}: change {job_id} to {new.limit_ms} ms and {spec.ask.gpus}")

        def make(draft: Draft) -> None:
            if record.earmark is not None:
                draft.add(EarmarkDropped(now_ms, job_id))
            draft.add(JobChanged(now_ms, new, joined_ms, rng.choice([0, 0, 7000]), "someone"))

        self.replica.commit(None, make)

    def drain(self) -> None:
        number = (
            self.rng.randrange(len(self.replica.state.nodes.node)) if self.replica.state.nodes.node else -1
        )
        if number >= 0:
            now_ms, shut = self.now_ms(), self.rng.random() < 0.5
            event = NodeCordoned(now_ms, number, "drain") if shut else NodeUncordoned(now_ms, number)
            self.replica.commit(None, lambda draft: draft.add(event))

    # -- a life ----------------------------------------------------------------------------------------------------

    def live(self) -> None:
        """Through faults first, then to the end of everything."""
        for _ in range(self.steps):
            try:
                self._something()
            except Died:
                self._die()
            except StoreFull:
                self.story.append(f"{self.clock_ms}: a request met a full disk")
            self.check()
        self.breaths, self.store.fails = None, 0
        for engine in self.engines.values():
            engine.faults.stop()
        self.skew_ms = max(0, self.skew_ms)
        self._open_all()
        for _ in range(LIVELY_STEPS_MAX):
            if self.settled():
                break
            self._pass_time(max(1, self.rng.choice([1000, 5000, 30_000])))
            self.step()
            self.check()
        self.check_end()

    def _something(self) -> None:
        self.replica.catch_up()
        rng, state = self.rng, self.replica.state
        dice = rng.random()
        if dice < 0.16 and len(self.accepted) < 40:
            (self.submit_array if rng.random() < 0.2 else self.submit)()
        elif dice < 0.26 and state.jobs:
            self.ask_for(rng.choice(list(Verb)), rng.choice(sorted(state.jobs)))
        elif dice < 0.29:
            self.drain()
        elif self.changing and self.changes.random() < 0.06 and state.jobs:
            self.change_job(self.changes.choice(sorted(state.jobs)))
        elif dice < 0.32:
            self.skew_ms += rng.choice([-60_000, -1000, 1000, 3_600_000])
        elif dice < 0.38:
            self.breaths = rng.randint(1, 12)
        elif dice < 0.39:
            self.store.fails = rng.randint(1, 3)
        elif dice < 0.42 and self.old:
            self.ghost()
        elif dice < 0.45:
            self.replica.save(self.now_ms(), every=1)
        else:
            self._pass_time(rng.choice([0, 100, 1000, 1000, 5000, 20_000]))
            self.step()

    def _pass_time(self, ms: int) -> None:
        times = [at_ms for each in self.engines.values() if (at_ms := each.next_ms()) is not None]
        if times and self.rng.random() < 0.3:
            ms = max(0, min(ms, min(times) - self.clock_ms))
        self.clock_ms += ms

    def _open_all(self) -> None:
        # An array that was submitted on hold in the last step is to be let go as well.
        self.replica.catch_up()
        for job_id in sorted(self.replica.state.jobs):
            self.ask_for(Verb.RELEASE, job_id)
            self.ask_for(Verb.CONTINUE, job_id)
        for number in range(len(self.replica.state.nodes.node)):
            event = NodeUncordoned(self.now_ms(), number)
            self.replica.commit(None, lambda draft, event=event: draft.add(event))

    def settled(self) -> bool:
        """Nothing is left to be done."""
        return not self.replica.state.jobs and not self.live_runs()

    def live_runs(self) -> list[tuple[str, Run]]:
        """What really runs, with its cluster."""
        return [(name, run) for name, each in self.engines.items() for run in each.world.live()]

    # -- what must hold --------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Safety, in the world."""
        held: dict[tuple[str, str, int], int] = defaultdict(int)
        by_job: dict[int, list[str]] = defaultdict(list)
        for cluster, run in self.live_runs():
            by_job[run.job_id].append(run.key)
            for part in run.parts:
                for gpu in part.gpus:
                    held[cluster, part.node, gpu] += part.milli
        crowded = {gpu: milli for gpu, milli in held.items() if milli > 1000}
        assert not crowded, f"GPUs given out twice: {crowded}"
        double = {job_id: keys for job_id, keys in by_job.items() if len(keys) > 1}
        assert not double, f"jobs run twice at once: {double}"

    def check_end(self) -> None:
        """Everything has ended, nothing is left over, and the log tells the truth."""
        state, worlds = self.replica.state, [engine.world for engine in self.engines.values()]
        waiting = {job_id: (r.state.value, r.phase, r.shape.gpu_milli) for job_id, r in state.jobs.items()}
        assert self.settled(), f"not over: {waiting}; running {[run.key for _, run in self.live_runs()]}"
        keys = [run.key for world in worlds for run in world.runs]
        assert keys or not self.accepted, "nothing ran at all"
        assert len(keys) == len(set(keys)), f"a key ran twice: {sorted(k for k in keys if keys.count(k) > 1)}"
        assert sorted(self.accepted) == sorted(self.store.rows), "jobs were lost or made up"
        for job_id, row in self.store.rows.items():
            runs = [run for world in worlds for run in world.runs if run.job_id == job_id]
            assert len(runs) <= row.attempts, f"job {job_id}: {len(runs)} runs in {row.attempts} attempts"
            if row.state == JobState.COMPLETED.value:
                assert any(run.attempt == row.attempts and run.tasks for run in runs), (
                    f"job {job_id} completed without a run"
                )
        fresh = Replica(self.store)  # type: ignore[arg-type]
        assert canonical(fresh.state) == canonical(self.replica.state), "the log does not fold to the state"


def told(trial: Trial, file: str) -> None:
    """Let a trial live. Where one of its own checks fails, it says how to repeat it and what happened last."""
    try:
        trial.live()
    except BaseException as error:
        error.add_note(
            f"seed {trial.seed}, policy {trial.policy}, at {trial.clock_ms}: to repeat it, run\n"
            f"  GPUYARD_SEED={trial.seed} .venv/bin/pytest {file} -k chosen\n" + "\n".join(trial.story[-15:])
        )
        raise
