"""Drivers in threads of their own: an engine that hangs in a call keeps nobody else waiting."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuyard.control.loop.driver_threads import DriverThreads
from gpuyard.control.loop.loop import Controller
from gpuyard.engines.contract import NodeReport
from gpuyard.model import Node
from gpuyard.store import Fenced
from gpuyard.testing import Life, LiveYard, SimEngine
from harness.patience import Patience


class Hanging(SimEngine):
    """An engine whose nodes are asked for in vain, until it is let go."""

    hangs = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.go = threading.Event()
        self.entered = threading.Event()

    def nodes(self) -> tuple[NodeReport, ...]:
        if self.hangs:
            self.entered.set()
            self.go.wait(120)
        return super().nodes()


def engine(clock: Callable[[], int], name: str) -> Hanging:
    return Hanging(clock, [Node("n1", name, "p", "H100", 2, 64_000, 1 << 18)], lambda _: Life(600_000))


class Two(LiveYard[Any]):
    """Two clusters, decided upon in this thread and driven in two others."""

    def __init__(self) -> None:
        super().__init__(lambda clock: {name: engine(clock, name) for name in ("east", "west")})
        self.turns = {name: threading.Lock() for name in self.engine}
        self.drivers = self.drive()

    def drive(self) -> DriverThreads:
        self.woken = threading.Event()
        return DriverThreads(self.controller, lambda: self.now_ms, self.woken.set, self.turns)

    def until(self, holds: Callable[[], bool], s: float = 10.0) -> None:
        patience = Patience(s)
        while not holds():
            assert patience, self.drivers.troubles
            self.woken.wait(0.05)
            self.woken.clear()
            self.drivers.step(self.now_ms)

    def live(self, name: str) -> list[int]:
        return [run.job_id for run in self.engine[name].world.live()]


@pytest.fixture
def here() -> Iterator[Two]:
    made = Two()
    yield made
    for each in made.engine.values():
        each.go.set()
    made.drivers.stop()


def test_jobs_start_on_one_cluster_while_the_engine_of_another_hangs(here: Two) -> None:
    here.until(lambda: 2 == len(here.replica.state.nodes.node))
    here.engine["east"].hangs = True
    here.now_ms += 20_000
    here.until(here.engine["east"].entered.is_set)
    jobs = [here.submit(2), here.submit(2)]
    here.until(lambda: 1 == len(here.live("west")))
    assert [] == here.live("east")
    here.engine["east"].hangs = False
    here.engine["east"].go.set()
    here.until(lambda: 1 == len(here.live("east")))
    assert sorted(jobs) == sorted(here.live("east") + here.live("west"))


def test_a_driver_that_hung_over_an_election_neither_acts_nor_speaks_beside_the_next_one(here: Two) -> None:
    here.until(lambda: 2 == len(here.replica.state.nodes.node))
    east = here.engine["east"]
    east.hangs = True
    here.now_ms += 20_000
    here.until(east.entered.is_set)
    old = here.drivers
    old.stop()
    assert here.turns["east"].locked()
    here.lead()
    here.drivers = here.drive()
    job_id = here.submit(2)
    here.until(lambda: bool(here.replica.state.running))
    with pytest.raises(Fenced):
        old.step(here.now_ms)
    east.hangs = False
    east.go.set()
    here.until(lambda: [job_id] == here.live("east") + here.live("west"))
    here.until(lambda: here.drivers._threads[0].is_alive() and not old._threads[0].is_alive())


def test_a_deposed_leader_learns_it_from_its_drivers(here: Two) -> None:
    here.until(lambda: 2 == len(here.replica.state.nodes.node))
    here.submit(2)
    here.until(lambda: bool(here.live("east") or here.live("west")))
    before: Controller = here.controller
    here.lead()
    assert before is not here.controller
    with pytest.raises(Fenced):
        here.until(lambda: False)
