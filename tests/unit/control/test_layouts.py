"""Pinned layouts between log and engine: asked for until they are so, and what became of it is in the log."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from gpuyard.engines.contract import Answer, Reply, Stale, Transient
from gpuyard.model import (
    Capability,
    Event,
    LayoutMade,
    LayoutPinned,
    LayoutReleased,
    Node,
    NodeAdded,
    Settings,
)
from gpuyard.model.mig import Slice
from gpuyard.policies.registry import PRESETS
from gpuyard.testing import Life, LiveYard, SimEngine

NODE = Node("n0", "main", "p", "H200", 2, 64_000, 1 << 18)
SEVEN = tuple([Slice(0, "1g.18gb", start) for start in range(7)])
DONE = Reply(Answer.DONE)


class Engine(SimEngine):
    """One that cuts GPUs, as the test says."""

    answer: Reply | Exception = DONE
    meanwhile: Callable[[], None] | None = None
    """What happens once, while it is cutting."""

    def __init__(self) -> None:
        able = frozenset({Capability.GANG, Capability.SLICES})
        super().__init__(lambda: 0, [NODE], lambda _launch: Life(1), capabilities=able)
        self.told: list[dict[int, tuple[Slice, ...]]] = []

    def pin(self, epoch: int, node: str, layouts: Mapping[int, tuple[Slice, ...]]) -> dict[int, Reply]:
        assert "n0" == node
        self.told.append(dict(layouts))
        if self.meanwhile is not None:
            then, self.meanwhile = self.meanwhile, None
            then()
        if isinstance(self.answer, Exception):
            raise self.answer
        return dict.fromkeys(layouts, self.answer)


class World(LiveYard[Engine]):
    """A leader, its engine and its log."""

    def __init__(self) -> None:
        super().__init__(lambda _clock: Engine(), Settings(policy=PRESETS["default"]), now_ms=1000)
        self.add(NodeAdded(0, NODE))

    def made(self, later_ms: int = 0) -> list[Event]:
        """The layouts that are made in one step."""
        return [e for e in self.step(later_ms).events if isinstance(e, LayoutMade)]


def test_a_layout_is_asked_for_once_and_written_down_when_it_is_made() -> None:
    world = World()
    world.made()
    assert [{}] == world.engine.told
    world.add(LayoutPinned(world.now_ms, 0, 0b11, SEVEN, "root"))
    assert [LayoutMade(1000, 0, 0b11)] == world.made()
    assert [] == world.made(60_000)
    # The second GPU stays whole.
    assert [{}, {0: SEVEN, 1: ()}] == world.engine.told
    world.add(LayoutReleased(world.now_ms, 0, 0b01))
    world.made()
    assert {1: ()} == world.engine.told[-1]


def test_what_is_said_of_a_layout_that_was_replaced_meanwhile_is_not_written() -> None:
    world = World()
    world.made()
    world.add(LayoutPinned(world.now_ms, 0, 0b01, SEVEN))
    other = (Slice(0, "7g.141gb", 0),)
    world.engine.meanwhile = lambda: world.add(LayoutPinned(world.now_ms, 0, 0b01, other))
    assert [] == world.made()
    assert not world.replica.state.nodes.pins[0][0].made
    assert [LayoutMade(1000, 0, 0b01)] == world.made()
    assert [{}, {0: SEVEN}, {0: other}] == world.engine.told


def test_trouble_is_written_once_and_tried_again_ever_more_rarely() -> None:
    world = World()
    world.made()
    world.engine.answer = Reply(Answer.UNSURE, "the driver is busy")
    world.add(LayoutPinned(world.now_ms, 0, 0b01, SEVEN))
    assert [LayoutMade(1000, 0, 0b01, "the driver is busy")] == world.made()
    for _ in range(20):
        assert [] == world.made(100)
    assert 3 <= len(world.engine.told) <= 5
    world.engine.answer = DONE
    assert [replace(LayoutMade(0, 0, 0b01), at_ms=world.now_ms + 30_000)] == world.made(30_000)


def test_a_call_that_fails_is_trouble_too_and_a_deposed_leader_stops() -> None:
    world = World()
    world.made()
    world.engine.answer = Transient("the disk is full")
    world.add(LayoutPinned(world.now_ms, 0, 0b01, SEVEN))
    assert [LayoutMade(1000, 0, 0b01, "the disk is full")] == world.made()
    assert 2 == len(world.engine.told)
    world.made(10)
    assert 2 == len(world.engine.told)
    world.engine.answer = Stale("another leads")
    with pytest.raises(Stale):
        world.made(5000)


def test_the_next_leader_goes_on_where_one_died() -> None:
    world = World()
    world.made()
    world.add(LayoutPinned(world.now_ms, 0, 0b01, SEVEN))
    world.lead()
    assert [LayoutMade(1000, 0, 0b01)] == world.made()
    # One that died after the release and before its call: the engine is told that nothing is kept any more.
    world.add(LayoutReleased(world.now_ms, 0, 0b01))
    world.lead()
    world.made()
    assert {} == world.engine.told[-1]


def test_an_engine_that_cuts_nothing_says_so() -> None:
    world = World()
    world.engine.capabilities = frozenset()
    world.add(LayoutPinned(world.now_ms, 0, 0b01, SEVEN))
    assert [LayoutMade(1000, 0, 0b01, "this engine does not cut GPUs")] == world.made()
    assert [] == world.engine.told
