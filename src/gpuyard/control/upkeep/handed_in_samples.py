"""What collectors on other machines hand in: their clocks compared, and only what can be is kept.

A collector is believed about its own node. What it says of an attempt counts if the attempt is not known to be
elsewhere: curves of attempts are read from the nodes that they ran on, so a node can tell lies about its own jobs only.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gpuyard.telemetry.batches import DROPPED
from gpuyard.telemetry.samples import (
    AHEAD,
    AHEAD_MS,
    LATE_MS,
    NO_NUMBER,
    NO_SIGNAL,
    OUT_OF_BOUNDS,
    TOO_LATE,
    TOO_MANY,
    Clocks,
    KernelLine,
    Sample,
    check_sample,
)
from gpuyard.telemetry.series import Series
from gpuyard.telemetry.signals import parse_attempt
from gpuyard.telemetry.sources import GpuCard

ELSEWHERE = "of an attempt elsewhere"
_CAUSES = frozenset({AHEAD, DROPPED, NO_NUMBER, NO_SIGNAL, OUT_OF_BOUNDS, TOO_LATE, TOO_MANY})
"""Causes that a collector may name for what it left out itself."""
QUIET_MS = 180_000
"""An attempt that its node has told nothing of for so long has ended, and its curves are kept."""
_SECOND_MS = 1000


@dataclass(frozen=True, slots=True)
class Batch:
    """What a collector hands in at a time."""

    sent_ms: int
    steady_ms: int
    at_ms: Sequence[int]
    series: Mapping[str, Sequence[int | float | None]]
    faults: Mapping[str, int] = field(default_factory=dict)
    cards: Mapping[int, GpuCard] = field(default_factory=dict)
    lines: Sequence[KernelLine] = ()


class _Seen:
    """An attempt that collectors have told of."""

    __slots__ = ("first_ms", "heard_ms", "last_ms", "nodes")

    def __init__(self, first_ms: int) -> None:
        self.first_ms = self.last_ms = first_ms
        self.heard_ms = 0
        self.nodes: set[str] = set()


class HandedIn:
    """The collectors of other machines. Any thread may use it."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._clocks = Clocks()
        self._seen: dict[str, _Seen] = {}
        self._off_ms: dict[str, int] = {}
        self.cards: dict[tuple[str, int], GpuCard] = {}

    def take(self, series: Series, node: str, batch: Batch, elsewhere: Collection[str]) -> int:
        """Take a batch in; by how much the node's clock is off. `elsewhere`: attempts that run on other nodes only."""
        with self._lock:
            now_ms = self._now_ms()
            off_ms = self._clocks.heard(node, batch.sent_ms, batch.steady_ms, now_ms)
            # In whole seconds: a batch that is sent twice has the same times twice, and counts once.
            off_ms = round(off_ms / _SECOND_MS) * _SECOND_MS
            self._off_ms[node] = off_ms
            self.cards = {
                key: card for key, card in self.cards.items() if key[0] != node or key[1] in batch.cards
            } | {(node, gpu): card for gpu, card in batch.cards.items()}
            faults = Counter(
                {cause: count for cause, count in batch.faults.items() if cause in _CAUSES and count > 0}
            )
            mine = {
                name: column for name, column in batch.series.items() if parse_attempt(name) not in elsewhere
            }
            for name in batch.series.keys() - mine.keys():
                faults[ELSEWHERE] += len([value for value in batch.series[name] if value is not None])
            series.add(Sample(node, now_ms, {}, faults), now_ms)
            for place, at_ms in enumerate(batch.at_ms):
                told = {name: column[place] for name, column in mine.items()}
                sample = check_sample(node, at_ms + off_ms, told, now_ms)
                series.add(sample, now_ms)
                self._note(series, sample, now_ms)
            moved = [line._replace(at_ms=line.at_ms + off_ms) for line in batch.lines]
            if lines := [line for line in moved if now_ms - LATE_MS <= line.at_ms <= now_ms + AHEAD_MS]:
                series.add_lines(node, lines)
            return off_ms

    def _note(self, series: Series, sample: Sample, now_ms: int) -> None:
        for key in {key for name in sample.values if (key := parse_attempt(name))}:
            seen = self._seen.get(key)
            if seen is None:
                # Of an attempt that ended before and was told of late, all that is known is kept again.
                kept = [at_ms for curve in series.kept(key).values() for at_ms in curve.times_ms[:1]]
                self._seen[key] = seen = _Seen(min([sample.at_ms, *kept]))
            seen.nodes.add(sample.node)
            seen.first_ms, seen.last_ms = min(seen.first_ms, sample.at_ms), max(seen.last_ms, sample.at_ms)
            seen.heard_ms = now_ms

    def nodes(self) -> Collection[str]:
        """The nodes whose collectors have told something, by key."""
        return self._off_ms.keys()

    def keep_ended(self, series: Series) -> None:
        """Keep the curves of attempts that nobody tells of any more."""
        with self._lock:
            now_ms = self._now_ms()
            for key in [key for key, seen in self._seen.items() if seen.heard_ms < now_ms - QUIET_MS]:
                seen = self._seen.pop(key)
                series.keep(key, sorted(seen.nodes), seen.first_ms, seen.last_ms + 1, now_ms)

    def seen(self) -> list[str]:
        """Attempts that collectors have told of lately."""
        with self._lock:
            return list(self._seen)

    def clocks_off_ms(self) -> dict[str, int]:
        """By how much the clocks of nodes are behind ours; 0: they will do."""
        with self._lock:
            return dict(self._off_ms)
