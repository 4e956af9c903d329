"""The eyes of a server: the collectors of the nodes that are this machine, those elsewhere, and the series they fill.

A duty beside the loop. No decision reads what they see. A round that took long is followed by a longer
pause, so that watching takes at most a hundredth of a core, however many jobs run.
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from gpuyard.control.replica.labels import node_key
from gpuyard.control.upkeep.handed_in_samples import Batch, HandedIn
from gpuyard.control.upkeep.metering import Meter
from gpuyard.engines.contract import Whereabouts
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.telemetry.collector import PAUSE_S, Collector
from gpuyard.telemetry.samples import LATE_MS, KernelLine, Sample, check_sample
from gpuyard.telemetry.series import Curve, Series
from gpuyard.telemetry.sources import AttemptPlace, GpuCard, GpuLook
from gpuyard.telemetry.sources.emulated import EmulatedSource
from gpuyard.telemetry.sources.kernel import Kernel
from gpuyard.telemetry.sources.kernel_log import KernelLog
from gpuyard.telemetry.sources.nvml import NvmlSource

WORK_S = 1.0
"""CPU time for saving and folding in one round: what is due beyond it waits for the next."""
SHARE = 100
"""A round is followed by a pause that is at least so many times as long as the CPU time that it took."""
ELECTION_MS = 120_000
"""How long a server that has just started waits to lead before it folds what it finds."""
FRESH_MS = 60_000
"""A sample that is older says nothing about now."""
_log = logging.getLogger(__name__)


class Asks(Protocol):
    """What reads another server for what nodes do."""

    trouble: str
    """Why it tells nothing; empty: it does."""
    pause_s: float
    """Between two rounds."""

    def round(self, rest: Callable[[float], bool]) -> float:
        """Read what is new; the pause until the next round. `rest` says when to break off."""
        ...

    def close(self) -> None:
        """Ask no more."""
        ...


class Watch:
    """What this server sees of its own machine, now and before."""

    def __init__(
        self,
        path: str,
        engines: Mapping[str, LocalEngine],
        now_ms: Callable[[], int],
        has_room: Callable[[], bool],
        cluster_of: Callable[[str], str] = lambda _node: "",
        every_s: float = PAUSE_S,
        meter: Meter | None = None,
    ) -> None:
        """`engines`: by cluster. `cluster_of` a node's name, by which alone an older release kept series."""
        self.every_s = every_s
        self._path = path
        self._cluster_of = cluster_of
        self._meter = meter
        self._since_ms = now_ms()
        self._eyes = [_Eyes(cluster, engine) for cluster, engine in engines.items()]
        self.now_ms = now_ms
        self._has_room = has_room
        self._series: Series | None = None
        self._opening = threading.Lock()
        self.handed_in = HandedIn(now_ms)
        """What collectors on other machines tell."""
        self.asking: Asks | None = None
        """What reads a Prometheus in their place."""
        self.spent_s = 0.0
        """CPU time of all rounds together."""

    def close(self) -> None:
        """Save what was seen."""
        for eyes in self._eyes:
            eyes.close()
        if self._series is not None:
            self._series.close()
            self._series = None

    def latest(self) -> list[Sample]:
        """The newest sample of each node that has a fresh one."""
        series = self._series
        return series.latest(self.now_ms() - FRESH_MS) if series is not None else []

    def shown(self) -> list[Sample]:
        """The same with what emulated nodes tell at this moment on which no attempt is: nothing of that is kept.

        A node with a collector of its own is left to that one.
        """
        now_ms, others = self.now_ms(), self.handed_in.nodes()
        idle = [
            check_sample(node, now_ms, told, now_ms)
            for eyes in self._eyes
            for node, told in eyes.idle(now_ms, others).items()
        ]
        return list({sample.node: sample for sample in (*self.latest(), *idle)}.values())

    def newest(self) -> list[Sample]:
        """The newest sample of each node, however old it is."""
        series = self._series
        return series.latest() if series is not None else []

    def emulated(self) -> dict[str, list[GpuLook]]:
        """What jobs on emulated GPUs do at this moment, by the keys of their nodes."""
        now_ms = self.now_ms()
        return {node: looks for eyes in self._eyes for node, looks in eyes.emulated(now_ms).items()}

    def cards(self) -> dict[tuple[str, int], GpuCard]:
        """What the GPUs are, by node and place."""
        here = {key: card for eyes in self._eyes for key, card in eyes.cards.items()}
        return here | self.handed_in.cards

    def take(self, node: str, batch: Batch, elsewhere: Collection[str]) -> int:
        """Take in what a node's collector hands in, the node by its key; how many ms its clock is behind ours."""
        return self.handed_in.take(self._opened(), node, batch, elsewhere)

    def _opened(self) -> Series:
        with self._opening:
            if self._series is None:
                self._series = Series(self._path, self._cluster_of)
            return self._series

    def faults(self) -> dict[tuple[str, str], int]:
        """Values that were left out, by node and cause."""
        return dict(self._series.faults) if self._series is not None else {}

    def curves(self, attempt: str, nodes: Sequence[str], from_ms: int, to_ms: int) -> Mapping[str, Curve]:
        """The curves of an attempt by signal: those kept at its end, or as far as it has come on these nodes (keys)."""
        series = self._series
        if series is None:
            return {}
        try:
            return series.kept(attempt) or series.of_attempt(attempt, nodes, from_ms, to_ms, self.now_ms())
        except sqlite3.Error as error:
            _log.warning("the series cannot be read: %s", error)
            return {}

    def lines(
        self, attempt: str, nodes: Sequence[str], from_ms: int, to_ms: int
    ) -> list[tuple[str, KernelLine]]:
        """Faults that the kernels of these nodes (keys) wrote about an attempt, or about their machines, by node."""
        series = self._series
        if series is None:
            return []
        try:
            each = [(node, line) for node in nodes for line in series.lines(attempt, node, from_ms, to_ms)]
        except sqlite3.Error as error:
            _log.warning("the series cannot be read: %s", error)
            return []
        return sorted(each, key=lambda pair: (pair[1].at_ms, pair))

    def round(self) -> float:
        """One look; the pause until the next one."""
        began_s, before_s = time.thread_time(), self.spent_s
        try:
            work_s = self._look()
        finally:
            self.spent_s += time.thread_time() - began_s
        return max(self.every_s, SHARE * (self.spent_s - before_s - work_s))

    def _look(self) -> float:
        """One look, and what is due for the series; how much CPU time the latter took, which follows the fleet."""
        if not self._eyes and self._series is None and not os.path.exists(self._path):
            # Nothing is to be seen here, and nobody has ever handed anything in.
            return 0.0
        series, now_ms = self._opened(), self.now_ms()
        for eyes in self._eyes:
            for node, told in eyes.look(now_ms).items():
                series.add(check_sample(node, now_ms, told, now_ms), now_ms)
                if lines := eyes.lines(node):
                    series.add_lines(node, lines)
        if not self._has_room():
            series.shed()
            return 0.0
        for eyes in self._eyes:
            for ended in eyes.ended():
                nodes = [eyes.key(node) for node in ended.devices]
                series.keep(ended.key, nodes, ended.started_ms, now_ms + 1, now_ms)
        self.handed_in.keep_ended(series)
        began_s = time.thread_time()
        if self._meter is not None:
            seen = [key for eyes in self._eyes for key in eyes.running]
            self._meter.round(series, now_ms, [*seen, *self.handed_in.seen()])
            if not self._meter.ready and now_ms < self._since_ms + ELECTION_MS:
                # Samples from before this start are folded and removed once it is told what they come to.
                return time.thread_time() - began_s
        # With many nodes more is due than one piece of work; a round still takes a bounded time.
        while series.work(now_ms) and time.thread_time() < began_s + WORK_S:
            pass
        return time.thread_time() - began_s


class _Eyes:
    """The collectors of one engine's nodes."""

    def __init__(self, cluster: str, engine: LocalEngine) -> None:
        self._cluster = cluster
        self._engine = engine
        self._emulated, self._pretended = engine.pretends
        self._kernel = Kernel()
        self._collectors: dict[str, Collector] = {}
        """By the keys of their nodes."""
        self._places: dict[str, list[AttemptPlace]] = {}
        self._running: dict[str, Whereabouts] = {}
        self._ended: list[Whereabouts] = []
        self.cards: dict[tuple[str, int], GpuCard] = {}
        """What is read here does not change: it is made anew, with what is found."""
        self._taking = threading.Lock()
        """Held while collectors take: they remember what they told last."""

    def close(self) -> None:
        for collector in self._collectors.values():
            collector.close()

    def key(self, node: str) -> str:
        """A node of this engine, as series are kept by it."""
        return node_key(self._cluster, node)

    def look(self, now_ms: int) -> dict[str, Mapping[str, int | float | None]]:
        """What each node tells, by its key; of emulated ones those with an attempt: a rehearsal may have thousands."""
        running = {each.key: each for each in self._engine.whereabouts()}
        self._ended += [each for key, each in self._running.items() if key not in running]
        self._running = running
        self._places = _placed(running.values())
        return self._taken(self._places if self._pretended else self._engine.gpus(), now_ms)

    def idle(self, now_ms: int, but: Collection[str]) -> dict[str, Mapping[str, int | float | None]]:
        """The same of emulated nodes on which no attempt is, without some by key. Any thread may ask."""
        places = self._places
        gpus = self._engine.gpus() if self._pretended else {}
        return self._taken(
            [node for node in gpus if node not in places and self.key(node) not in but], now_ms
        )

    def _taken(self, nodes: Iterable[str], now_ms: int) -> dict[str, Mapping[str, int | float | None]]:
        with self._taking:
            return self._take(nodes, now_ms)

    def _take(self, nodes: Iterable[str], now_ms: int) -> dict[str, Mapping[str, int | float | None]]:
        found: dict[str, Mapping[str, int | float | None]] = {}
        cards: dict[tuple[str, int], GpuCard] = {}
        for node in nodes:
            key = self.key(node)
            collector = self._collectors.get(key) or self._collector(key, node)
            found[key] = collector.take(now_ms)
            for look in collector.looks:
                cards[key, look.gpu] = GpuCard(look.uuid, look.model, look.pci, look.driver)
        self.cards = self.cards | cards
        return found

    def lines(self, key: str) -> list[KernelLine]:
        """What the kernel wrote since the last look, by the key of a node that told something."""
        return self._collectors[key].lines()

    def emulated(self, now_ms: int) -> dict[str, list[GpuLook]]:
        """What emulated GPUs do now, by the keys of their nodes. Any thread may ask."""
        if not self._emulated:
            return {}
        placed = _placed(self._engine.whereabouts())
        return {
            self.key(node): _source(gpus, placed.get(node, ())).look(now_ms)
            for node, gpus in self._engine.gpus().items()
        }

    @property
    def running(self) -> Collection[str]:
        """Attempts that were seen last, by key."""
        return self._running

    def ended(self) -> list[Whereabouts]:
        """Attempts that have ended since the last question."""
        ended, self._ended = self._ended, []
        return ended

    def _collector(self, key: str, node: str) -> Collector:
        def places() -> Sequence[AttemptPlace]:
            return self._places.get(node, ())

        def uuids() -> list[str]:
            return [each.uuid for each in self._engine.gpus().get(node, ())]

        def memory() -> dict[str, int]:
            return {each.uuid: each.memory_mib for each in self._engine.gpus().get(node, ())}

        if self._emulated:
            models = {each.name for each in self._engine.gpus().get(node, ())}
            gpus: EmulatedSource | NvmlSource = EmulatedSource(memory, places, ", ".join(sorted(models)))
        else:
            gpus = NvmlSource(order=uuids)
        log = None if self._pretended else KernelLog(since_ms=time.time_ns() // 1_000_000 - LATE_MS)
        made = Collector(node, gpus, places, self._kernel, machine=not self._pretended, log=log)
        self._collectors[key] = made
        return made


def _source(gpus: Iterable[GpuReading], places: Sequence[AttemptPlace]) -> EmulatedSource:
    """Emulated GPUs with these attempts on them."""
    memory = {each.uuid: each.memory_mib for each in gpus}
    return EmulatedSource(lambda: memory, lambda: places)


def _placed(running: Iterable[Whereabouts]) -> dict[str, list[AttemptPlace]]:
    """Attempts by node."""
    found: dict[str, list[AttemptPlace]] = {}
    for each in running:
        for first, node in enumerate(each.devices):
            found.setdefault(node, []).append(_place(each, node, first == 0))
    return found


def _place(each: Whereabouts, node: str, first: bool) -> AttemptPlace:
    """An attempt on one of its nodes. Its processes are counted on the first: they are on one machine."""
    return AttemptPlace(
        key=each.key,
        group=each.group if first else "",
        groups_v1=each.groups_v1 if first else None,
        pids=each.pids if first else (),
        devices=each.devices[node],
        cut=each.cut.get(node, ()),
        milli=each.milli,
        started_ms=each.started_ms,
        script=each.load,
    )
