"""What a collector that is a process of its own has seen and not handed in yet, and the form in which it does. Pure.

The yard may be away for a while. A collector then keeps its samples, as many as the yard would still take, and drops
the oldest first. A batch that got no answer is sent again as it was: the yard knows a sample by its time.
"""

from array import array
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from gpuyard.telemetry.samples import LATE_MS, KernelLine, Sample
from gpuyard.telemetry.sources import GpuLook

MOMENTS_MAX = 60
"""Samples in one batch."""
VALUES_MAX = 40_000
"""Values in one batch: the API takes no larger bodies."""
LINES_MAX = 200
DROPPED = "dropped by the collector"
"""The cause of values that were too many to keep while the yard was away."""


class Buffer:
    """Samples that wait to be handed in, oldest first."""

    def __init__(self, values_max: int = 1_000_000) -> None:
        """`values_max`: what is kept at most, eight bytes each."""
        self._values_max = values_max
        self._names: tuple[str, ...] = ()
        self._waiting: deque[tuple[int, tuple[str, ...], array[int]]] = deque()
        self._values = 0
        self._faults: Counter[str] = Counter()
        self._sent: tuple[int, dict[str, int]] = (0, {})
        self._lines: deque[KernelLine] = deque(maxlen=LINES_MAX)
        self._sent_lines = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sample: Sample) -> None:
        """Keep a sample. Where there is no room, the oldest goes, and so does what the yard would not take."""
        self._faults.update(sample.faults)
        names = tuple(sample.values)
        if names != self._names:
            self._names = names
        self._waiting.append((sample.at_ms, self._names, array("q", sample.values.values())))
        self._values += len(names)
        while self._waiting and (
            self._values > self._values_max or self._waiting[0][0] < sample.at_ms - LATE_MS
        ):
            self._drop()

    def note(self, lines: Sequence[KernelLine]) -> None:
        """Keep what the kernel wrote, the newest lines of it, until the next batch with a sample."""
        gone = max(0, len(self._lines) + len(lines) - LINES_MAX)
        self._sent_lines = max(0, self._sent_lines - gone)
        self._lines.extend(lines)

    def _drop(self) -> None:
        _at_ms, names, _values = self._waiting.popleft()
        self._values -= len(names)
        self._faults[DROPPED] += len(names)
        moments, faults = self._sent
        # It may be a part of the batch under way, which then is forgotten from its second sample on.
        self._sent = (max(0, moments - 1), faults)

    def batch(self, sent_ms: int, steady_ms: int, looks: Sequence[GpuLook]) -> dict[str, Any]:
        """The oldest samples as a body for the API."""
        at_ms: list[int] = []
        columns: dict[str, list[int | None]] = {}
        values = 0
        for at, names, found in self._waiting:
            values += len(names)
            if len(at_ms) >= MOMENTS_MAX or (at_ms and values > VALUES_MAX):
                break
            for name, value in zip(names, found, strict=True):
                columns.setdefault(name, [None] * len(at_ms)).append(value)
            at_ms.append(at)
            for column in columns.values():
                if len(column) < len(at_ms):
                    column.append(None)
        faults = {cause: count for cause, count in sorted(self._faults.items()) if count}
        self._sent = (len(at_ms), faults)
        self._sent_lines = len(self._lines)
        # A yard of an earlier release knows no lines, and seldom there are any.
        lines = [{"at_ms": at, "text": text, "attempts": list(keys)} for at, text, keys in self._lines]
        return {
            **({"lines": lines} if lines else {}),
            "sent_ms": sent_ms,
            "steady_ms": steady_ms,
            "at_ms": at_ms,
            "series": columns,
            "faults": faults,
            "cards": [
                {
                    "gpu": each.gpu,
                    "uuid": each.uuid,
                    "model": each.model,
                    "pci": each.pci,
                    "driver": each.driver,
                }
                for each in looks
            ],
        }

    def taken(self) -> None:
        """The last batch was answered: forget what was in it."""
        moments, faults = self._sent
        for _ in range(moments):
            self._values -= len(self._waiting.popleft()[1])
        self._faults.subtract(faults)
        for _ in range(self._sent_lines):
            self._lines.popleft()
        self._sent_lines = 0
        self._sent = (0, {})
