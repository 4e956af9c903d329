"""Pinned layouts and the engine: what should be so and is not is asked for, until the engine says that it is.

The log says which layouts GPUs keep. A leader tells the engine all of them once, whatever the last one had done, and
again whenever they change or have not been made. What becomes of it is written down, each time it changes.
"""

from collections.abc import Callable, Mapping

from gpuyard.control.loop.act import RetryPace
from gpuyard.control.replica.replica import Replica
from gpuyard.core import State
from gpuyard.core.fleet.bits import positions
from gpuyard.core.fleet.mig_book import Pin
from gpuyard.engines.contract import Answer, Engine, EngineError, Reply, Stale
from gpuyard.model import Capability, Event, LayoutMade, Node
from gpuyard.model.mig import Slice

Layouts = dict[int, tuple[Slice, ...]]
"""Slices by GPU; none: it stays whole."""

_CANNOT = "this engine does not cut GPUs"


class LayoutKeeper:
    """One leader's word to the engine about layouts."""

    def __init__(
        self,
        replica: Replica,
        engine: Engine,
        epoch: int,
        pace: RetryPace,
        stopwatch_ns: Callable[[], int],
        has: Callable[[Node], bool],
    ) -> None:
        """`has` tells whether a node is one of the engine's cluster."""
        self._has = has
        self._replica = replica
        self._engine = engine
        self._epoch = epoch
        self._pace = pace
        self._stopwatch_ns = stopwatch_ns
        self._told: dict[str, Layouts] = {}
        """What the engine was last told, by node; not there: nothing yet by this leader."""
        self._tried: dict[str, Layouts] = {}
        """What it was last asked for, whether or not that came to an answer."""

    def step(self, now_ms: int) -> tuple[list[Event], list[str]]:
        """Tell the engine what it has to know; what is to be written, and calls that came to no answer."""
        events: list[Event] = []
        errors: list[str] = []
        for number, name, pins in self._wanted():
            layouts = {gpu: _slices(gpu, pin) for gpu, pin in pins.items()}
            if self._told.get(name) == layouts and all([pin.made for pin in pins.values()]):
                continue
            if self._tried.get(name) == layouts and not self._pace.due("pin", name, now_ms):
                continue
            self._tried[name] = layouts
            self._pace.made("pin", name, now_ms)
            began_ns = self._stopwatch_ns()
            try:
                replies = self._ask(name, layouts)
            except Stale:
                raise
            except EngineError as error:
                errors.append(f"pin: {error}")
                replies = dict.fromkeys(layouts, Reply(Answer.UNSURE, str(error)))
            else:
                self._told[name] = layouts
            took_ms = (self._stopwatch_ns() - began_ns) // 1_000_000
            events += _news(number, pins, replies, now_ms, took_ms)
        return events, errors

    def holds(self, state: State, news: Event) -> bool:
        """Whether what the engine said is still about the layouts that are wanted: others may be pinned meanwhile."""
        assert isinstance(news, LayoutMade)
        pins = state.nodes.pins.get(news.node, {})
        tried = self._tried[state.nodes.node[news.node].name]
        return all(
            [gpu in pins and _slices(gpu, pins[gpu]) == tried.get(gpu) for gpu in positions[news.gpus]]
        )

    def _wanted(self) -> list[tuple[int, str, dict[int, Pin]]]:
        """Nodes with pinned GPUs, and those of which the engine may think that they have some."""
        with self._replica.lock:
            nodes = self._replica.state.nodes
            able = Capability.SLICES in self._engine.capabilities
            return [
                (number, node.name, dict(nodes.pins.get(number, {})))
                for number, node in enumerate(nodes.node)
                if (number in nodes.pins or (able and node.gpus and self._told.get(node.name) != {}))
                and self._has(node)
            ]

    def _ask(self, name: str, layouts: Layouts) -> Mapping[int, Reply]:
        if Capability.SLICES not in self._engine.capabilities:
            return dict.fromkeys(layouts, Reply(Answer.REFUSED, _CANNOT))
        return self._engine.pin(self._epoch, name, layouts)


def _slices(gpu: int, pin: Pin) -> tuple[Slice, ...]:
    return tuple([Slice(gpu, *place) for place in pin.held])


def _news(
    number: int, pins: Mapping[int, Pin], replies: Mapping[int, Reply], now_ms: int, took_ms: int
) -> list[Event]:
    """What the log does not say yet of these GPUs, those of one answer together."""
    by_why: dict[str, int] = {}
    for gpu, pin in sorted(pins.items()):
        reply = replies.get(gpu, Reply(Answer.UNSURE, "the engine does not know this GPU"))
        why = "" if reply.answer is Answer.DONE else reply.why or reply.answer.value
        if (pin.made, pin.why) != (not why, why):
            by_why[why] = by_why.get(why, 0) | 1 << gpu
    return [LayoutMade(now_ms, number, mask, why, took_ms) for why, mask in sorted(by_why.items())]
