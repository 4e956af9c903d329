"""Three teams on eight A100: research 60 %, product 40 %, and serving on MIG slices of 1g.5gb and 2g.10gb.

What they submit is drawn from a seed. What really ran comes from the engine's own files or from its world, never from
the log or the books: a statement is held against that.
"""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from gpuyard.config.reading import loads
from gpuyard.control.duties.projections import Filler
from gpuyard.control.duties.waits import WaitMeter
from gpuyard.control.projections.ledger import Ledger
from gpuyard.control.projections.waits import Waits
from gpuyard.core.explain.budget_use import list_named_uses
from gpuyard.engines.contract import Launch
from gpuyard.ledger.units import month_days
from gpuyard.model import AttemptMeasured, Capability, Event, Mig, MonthClosed, Whole
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.store import Store
from gpuyard.testing.engine import Life, Run, SimEngine
from gpuyard.testing.live import LiveYard
from gpuyard.testing.values import ask

CONFIG = """
version: 1
clusters:
  main:
    engine: local
    allow_root: true
    pools:
      a100: {nodes: 2, gpus: 4 x A100-40GB, cpus: 256, memory: 2T, emulate: true, price: 2.10}
tenants:
  research: {weight: 60, guarantee: 4.8}
  product: {weight: 40, guarantee: 3.2}
  serving: {weight: 10}
classes:
  urgent: {priority: 100, preemptible: false, limit: 30d}
  batch: {priority: 0, limit: 30d, grace: 5s}
default_class: batch
budgets:
  research-money: {tenant: research, usd: 9000, window: month, action: soft}
  serving-hours: {tenant: serving, gpu_hours: 900, window: month, action: warn}
"""
PRICE_MICRO_USD_H = 2_100_000
SEVENTHS = {"": 7, "1g.5gb": 1, "2g.10gb": 2}
"""What a GPU or a slice is, in sevenths of a GPU."""


@dataclass(frozen=True)
class Wish:
    """A job that somebody wants, and when."""

    at_ms: int
    tenant: str
    klass: str
    profile: str
    """Of MIG; empty: whole GPUs."""
    gpus: int
    run_ms: int
    project: str


def wishes(seed: int, span_ms: int, jobs: int) -> list[Wish]:
    """So many jobs over a span, which keep two thirds of eight GPUs busy if nobody is preempted."""
    rng = Random(seed)
    long_ms = span_ms * 13 // jobs
    found = []
    for _ in range(jobs):
        at_ms, about, some = rng.randrange(span_ms * 9 // 10), rng.random(), rng.randrange(500, 1500)
        if about < 0.2:
            wish = Wish(at_ms, "research", "batch", "", rng.choice((1, 2)), long_ms * some // 1000, "vision")
        elif about < 0.5:
            wish = Wish(at_ms, "product", "urgent", "", 1, long_ms * some // 5000, "search")
        else:
            profile = rng.choice(("1g.5gb", "2g.10gb"))
            project = rng.choice(("chat", "speech"))
            wish = Wish(at_ms, "serving", "batch", profile, 1, long_ms * some // 2000, project)
        found.append(wish)
    return sorted(found, key=lambda wish: (wish.at_ms, wish.tenant, wish.run_ms))


def drive(client: Any, wanted: Iterable[Wish]) -> dict[int, Wish]:
    """Submit jobs to a live yard, each in its time; by id, what each is."""
    begin, jobs = time.monotonic(), {}
    for wish in wanted:
        time.sleep(max(0.0, wish.at_ms / 1000 - (time.monotonic() - begin)))
        job = client.submit(
            command=["sleep", f"{wish.run_ms / 1000:.3f}"], tenant=wish.tenant, klass=wish.klass, gpus=wish.gpus,
            mig=wish.profile, project=wish.project, time_limit_s=max(2, 2 * wish.run_ms // 1000), env={},
        )  # fmt: skip
        jobs[int(job["id"])] = wish
    return jobs


@dataclass(frozen=True)
class Ran:
    """One attempt as its supervisor saw it."""

    job_id: int
    attempt: int
    sevenths: int
    """Of GPUs that it had."""
    started_ms: int
    ended_ms: int

    @property
    def ran_ms(self) -> int:
        """Sevenths of a GPU times milliseconds."""
        return self.sevenths * (self.ended_ms - self.started_ms)

    def within(self, from_ms: int, until_ms: int) -> int:
        """As much of that as lies between two times."""
        return self.sevenths * max(0, min(self.ended_ms, until_ms) - max(self.started_ms, from_ms))


def engine_record(data: Path) -> Iterator[Ran]:
    """What the local engine's supervisors wrote down: what each attempt had, when it began and when it ended."""
    for end_file in sorted((data / "engine" / "logs").glob("*/end.json")):
        end = json.loads(end_file.read_text(encoding="utf-8"))
        plan = json.loads((end_file.parent / "launch.json").read_text(encoding="utf-8"))
        held = plan["held"]
        sevenths = sum([SEVENTHS[profile] for _gpu, profile, _start in held.get("slices", [])])
        sevenths += 7 * len(held.get("gpus", []))
        if end["started_ms"]:
            attempt = int(plan["key"].rpartition("-")[2])
            yield Ran(plan["job_id"], attempt, sevenths, end["started_ms"], end["ended_ms"])


# -- simulated ---------------------------------------------------------------------------------------------------------

USED_PERCENT = {"research": 72, "product": 55, "serving": 34}
"""How much of their GPUs jobs use, about."""
BETTER = 20
PEOPLE = {"research": ("ann", "ben", "cleo"), "product": ("dan", "eve"), "serving": ("fay", "gus")}
LOOK_MS = 10_000
"""The loop looks at whole multiples of this: most ends are seen late."""


ALL_OF_IT = 10**9
"""As many events as there are."""
EPOCH = 1
"""Of the only leader."""


class Simulated:
    """The control loop over a simulated engine, under a clock that jumps from one thing that happens to the next."""

    def __init__(self, store: Store, seed: int, first_day: int, days: int, jobs: int) -> None:
        config = loads(CONFIG)
        fleet = [node for pool in config.pools for node in pool.nodes]
        able = frozenset(Capability)
        begin_ms = first_day * DAY_MS
        self.wanted = [
            (begin_ms + wish.at_ms, wish) for wish in wishes(seed, days * DAY_MS, jobs)
        ]  # those that come first, first
        self.until_ms = (first_day + days) * DAY_MS
        self.jobs: dict[int, Wish] = {}
        self.yard = LiveYard(
            lambda clock: SimEngine(clock, fleet, self._life, capabilities=able),
            config.settings,
            now_ms=begin_ms,
            store=store,
        )
        self.meter = WaitMeter(self.yard.replica, lambda: EPOCH, lambda: self.yard.now_ms)
        self._rng = Random(seed + 1)
        self._measured = 0
        self.better_ms = self.until_ms
        """From then on, jobs use `BETTER` of a hundred more of what they have."""
        self.closes: tuple[str, ...] = ()
        """Months whose books are closed on the third day after their end."""

    def _life(self, launch: Launch) -> Life:
        return Life(self.jobs[launch.job_id].run_ms, term_ms=2_500)

    def run(self) -> None:
        """To the end of the last day."""
        left, yard, seen = self.wanted[::-1], self.yard, 0
        yard.step()
        while yard.now_ms < self.until_ms:
            due_ms = [yard.now_ms + HOUR_MS, self.until_ms]
            due_ms += [left[-1][0]] if left else []
            due_ms += [each for each in [yard.engine.next_ms()] if each is not None]
            # What was started is seen to run at the next look.
            due_ms += [yard.now_ms + LOOK_MS] if len(yard.engine.world.runs) > seen else []
            seen = len(yard.engine.world.runs)
            now_ms = max(-(-min(due_ms) // LOOK_MS) * LOOK_MS, yard.now_ms + LOOK_MS)
            yard.now_ms = now_ms
            while left and left[-1][0] <= now_ms:
                self._submit(left.pop()[1])
            yard.step()
            self.meter.look(now_ms)
            self._measure()
            if self.closes and now_ms >= month_ms(self.closes[0])[1] + 3 * DAY_MS:
                yard.add(MonthClosed(now_ms, self.closes[0], "ada"))
                self.closes = self.closes[1:]

    def _submit(self, wish: Wish) -> None:
        request = Mig(1, wish.profile) if wish.profile else Whole(wish.gpus)
        user = self._rng.choice(PEOPLE[wish.tenant])
        job_id = self.yard.submit(
            ask(request), tenant=wish.tenant, klass=wish.klass, user=user, labels=(("project", wish.project),),
            limit_ms=2 * wish.run_ms + 60_000,
        )  # fmt: skip
        self.jobs[job_id] = wish

    def _measure(self) -> None:
        """Tell what attempts used that have ended: as a collector does, after the end."""
        for run in self.yard.engine.world.runs[self._measured :]:
            if run.ended_ms is None or self.yard.now_ms < run.ended_ms + LOOK_MS:
                return
            self._measured += 1
            held = sevenths_of(run) * (run.ended_ms - run.started_ms) // 7
            about = USED_PERCENT[self.jobs[run.job_id].tenant] + self._rng.randrange(-8, 9)
            about += BETTER if run.started_ms >= self.better_ms else 0
            self.yard.add(
                AttemptMeasured(
                    self.yard.now_ms, run.job_id, run.attempt, run.started_ms, run.ended_ms, held, held,
                    held * about // 100, spans=((run.started_ms, run.ended_ms),),
                )
            )  # fmt: skip

    def events(self) -> list[Event]:
        """The log."""
        return [event for _seq, event in self.yard.store.read(0, ALL_OF_IT)]

    def ran(self) -> Iterator[tuple[Wish, Ran]]:
        """What really ran, from the world of the engine; what runs still, up to now."""
        for run in self.yard.engine.world.runs:
            ended_ms = self.yard.now_ms if run.ended_ms is None else run.ended_ms
            yield (
                self.jobs[run.job_id],
                Ran(run.job_id, run.attempt, sevenths_of(run), run.started_ms, ended_ms),
            )

    def readings(self) -> Any:
        """What reports read: the books and the waiting are filled first."""
        store, state, now_ms = self.yard.store, self.yard.replica.state, self.yard.now_ms
        filler = Filler(store, [Ledger(), Waits()], lambda: now_ms)
        while filler.step(EPOCH):
            pass
        assert {} == filler.errors
        uses = [(use, 0) for use in list_named_uses(state, now_ms)]
        configs = SimpleNamespace(budgets=lambda: uses, tenants=lambda _sight: [])
        return SimpleNamespace(store=store, now_ms=now_ms, configs=configs)


def sevenths_of(run: Run) -> int:
    """What a run of the simulated engine had, in sevenths of a GPU."""
    return sum(
        [
            sum([SEVENTHS[piece.profile] for piece in part.slices]) if part.slices else 7 * len(part.gpus)
            for part in run.parts
        ]
    )


def month_ms(month: str) -> tuple[int, int]:
    """When a month begins and ends."""
    first, after = month_days(month)
    return first * DAY_MS, after * DAY_MS
