"""One seed, one life of a control plane over two clusters, one of which dies, lies and comes back.

What engines say, the decision and what is done come in any order: reports arrive late, behind decisions that they know
nothing of, and one cluster is asked and acted upon many times while the other one is silent.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gpuyard.control.loop.driving import Sighting
from gpuyard.control.loop.loop import Step
from gpuyard.engines.contract import (
    Answer,
    AttemptReport,
    Launch,
    NodeReport,
    Phase,
    Reply,
    StopRequest,
    Transient,
)
from gpuyard.store import StoreFull
from gpuyard.testing import SimEngine
from harness.trial import Trial

CLUSTERS = ("firm", "frail")


@dataclass
class Moody:
    """An engine out of reach, or one that has lost its memory. What it says is allowed: UNKNOWN proves nothing."""

    inner: SimEngine
    mood: str = ""
    """`dead`: no call gets through; `lies`: it knows of no attempt and no node, and starts and stops nothing."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in _CALLS:
            return found

        def call(*arguments: Any) -> Any:
            self._reach()
            return found(*arguments)

        return call

    def nodes(self) -> tuple[NodeReport, ...]:
        self._reach()
        return () if self.mood else self.inner.nodes()

    def status(self, keys: Sequence[str]) -> list[AttemptReport]:
        self._reach()
        return [AttemptReport(key, Phase.UNKNOWN) for key in keys] if self.mood else self.inner.status(keys)

    def listing(self) -> list[AttemptReport]:
        self._reach()
        return [] if self.mood else self.inner.listing()

    def start(self, epoch: int, launches: Sequence[Launch]) -> list[Reply]:
        self._reach()
        unsure = [Reply(Answer.UNSURE, "it cannot say") for _ in launches]
        return unsure if self.mood else self.inner.start(epoch, launches)

    def stop(self, epoch: int, halts: Sequence[StopRequest]) -> list[Reply]:
        self._reach()
        unsure = [Reply(Answer.UNSURE, "it cannot say") for _ in halts]
        return unsure if self.mood else self.inner.stop(epoch, halts)

    def _reach(self) -> None:
        if self.mood == "dead":
            raise Transient("out of reach")


_CALLS = ("suspend", "resume", "forget", "pin", "cuts")


@dataclass
class ClustersTrial(Trial):
    """A yard over two clusters."""

    clusters: tuple[str, ...] = CLUSTERS
    quiet: bool = False
    """Whether nothing goes wrong any more."""
    inbox: list[Sighting] = field(default_factory=list)
    """What was seen and is not written down yet."""

    def reached(self) -> dict[str, Any]:
        self.inbox = []
        if not hasattr(self, "frail"):
            self.frail = Moody(self.engines["frail"])
        return {"firm": self.engines["firm"], "frail": self.frail}

    def step(self) -> None:
        """Parts of the loop in any order, each driver's in its own."""
        if self.quiet:
            self.controller.step(self.now_ms())
            return
        for _ in range(self.rng.randint(1, 6)):
            self._part()

    def _part(self) -> None:
        rng, now_ms, controller = self.rng, self.now_ms(), self.controller
        dice = rng.random()
        cluster = rng.choice(self.clusters)
        if dice < 0.04:
            self.frail.mood = rng.choice(["", "dead", "lies"])
            self.story.append(f"{self.clock_ms}: the frail cluster is {self.frail.mood or 'well'}")
        elif dice < 0.40:
            self.inbox.append(controller.look(cluster, now_ms))
        elif dice < 0.70:
            count = rng.randint(0, len(self.inbox))
            seen, self.inbox = self.inbox[:count], self.inbox[count:]
            with suppress(StoreFull):
                controller.decide(now_ms, seen)
        else:
            with suppress(StoreFull):
                controller.act(cluster, now_ms, Step(), 0)

    def live(self) -> None:
        super().live()
        wrong = [
            run.key
            for name, engine in self.engines.items()
            for run in engine.world.runs
            if any([part.node not in {each.node.name for each in engine.nodes()} for part in run.parts])
        ]
        assert not wrong, f"attempts ran where their cluster has no such node: {wrong}"

    def _open_all(self) -> None:
        self.frail.mood, self.quiet = "", True
        super()._open_all()
