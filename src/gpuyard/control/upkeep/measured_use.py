"""What an attempt used in a part of a clock hour, by its samples and by what was told of that hour before. Pure.

A sample stands for the time since the one before it (`spans.py`); a hole stays unmeasured. An attempt on several nodes
was measured while all of them told. Everything is in integers and adds up over the parts of a run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuyard.ledger.units import PARTS
from gpuyard.quantities import MINUTE_MS
from gpuyard.telemetry import folding
from gpuyard.telemetry.folding import Points
from gpuyard.telemetry.signals import Fold
from gpuyard.telemetry.spans import find_spans

SIGNALS = ("gpu_busy", "gpu_busy_estimated", "gpu_memory", "energy", "cpu", "memory", "memory_peak")
"""The signals of attempts that are looked at."""
_MILLI = 1000

Span = tuple[int, int]
Signals = Mapping[str, Points]
"""Of one attempt on one node, by name; counters as rises."""


class Hold(NamedTuple):
    """What an attempt has of the GPUs of one node."""

    node: str
    parts: int
    """As the books count them."""
    full: int
    """How busy it may keep each of them, in parts of a thousand. A slice of MIG tells of itself alone: 1,000."""


@dataclass(slots=True)
class Told:
    """What events have told of an attempt in one hour."""

    until_ms: int = 0
    """Up to when they told what it held."""
    spans: list[Span] = field(default_factory=list)
    energy_mj: int = 0
    cpu_ms: int = 0


@dataclass(frozen=True, slots=True)
class Use:
    """What is still to be told: the fields of an event."""

    held_gpu_ms: int
    measured_gpu_ms: int
    used_gpu_ms: int
    estimated_gpu_ms: int
    spans: tuple[Span, ...]
    energy_mj: int | None
    cpu_ms: int | None
    gpu_memory_mib: int | None
    memory_mib: int | None


class _Look(NamedTuple):
    from_ms: int
    until_ms: int
    work: int
    """Thousandths of parts that were used."""
    estimated: bool


def find_untold(
    holds: Sequence[Hold],
    seen: Sequence[Signals],
    started_ms: int,
    from_ms: int,
    until_ms: int,
    told: Told,
) -> Use | None:
    """What these samples add to what was told; None: nothing. `seen`: for each hold, from a while before to a while
    after this part of the hour."""
    if not any([_in(points, from_ms, until_ms) for signals in seen for points in signals.values()]):
        return None
    covered = _looks(holds, seen, started_ms, from_ms, until_ms)
    new = [piece for look in covered for piece in _outside(look, told.spans)]
    spans_now = join_spans([look[:2] for look in covered])
    whole = not [piece for span in told.spans for piece in outside(span, spans_now)]

    def rise(name: str, before: int) -> int | None:
        points = [_in(signals[name], from_ms, until_ms) for signals in seen if name in signals]
        if not any(points):
            return None
        if whole:
            return sum([value for some in points for _at_ms, value in some]) - before
        # Somebody else saw a part of it, and told of it: only what lies in new times is added.
        return sum(
            [v for some in points for at_ms, v in some if any([a < at_ms <= b for a, b, _w, _e in new])]
        )

    energy_mj, cpu_ms = rise("energy", told.energy_mj), rise("cpu", told.cpu_ms)
    held_ms = max(0, until_ms - max(from_ms, told.until_ms))
    if not (new or held_ms or energy_mj or cpu_ms):
        return None
    parts = sum([hold.parts for hold in holds])
    return Use(
        held_gpu_ms=parts * held_ms // PARTS,
        measured_gpu_ms=parts * sum([b - a for a, b, _work, _estimated in new]) // PARTS,
        used_gpu_ms=sum([work * (b - a) for a, b, work, _estimated in new]) // (_MILLI * PARTS),
        estimated_gpu_ms=sum([w * (b - a) for a, b, w, estimated in new if estimated]) // (_MILLI * PARTS),
        spans=tuple(join_spans([look[:2] for look in new])),
        energy_mj=energy_mj,
        cpu_ms=cpu_ms,
        gpu_memory_mib=_most(seen, ("gpu_memory",), from_ms, until_ms),
        memory_mib=_most(seen, ("memory_peak", "memory"), from_ms, until_ms),
    )


def _in(points: Points, from_ms: int, until_ms: int) -> list[tuple[int, int]]:
    return [
        (at_ms, value)
        for at_ms, value in zip(*points, strict=True)
        if value is not None and from_ms < at_ms <= until_ms
    ]


def _looks(
    holds: Sequence[Hold], seen: Sequence[Signals], started_ms: int, from_ms: int, until_ms: int
) -> list[_Look]:
    """When all nodes with GPUs of the attempt told how busy it kept them, and how much that was."""
    found: list[_Look] | None = None
    for hold, signals in zip(holds, seen, strict=True):
        if hold.parts:
            here = _of_node(hold, signals, started_ms)
            found = here if found is None else _both(found, here)
    clipped = [
        look._replace(from_ms=max(look.from_ms, from_ms), until_ms=min(look.until_ms, until_ms))
        for look in found or ()
    ]
    return [look for look in clipped if look.from_ms < look.until_ms]


def _of_node(hold: Hold, signals: Signals, started_ms: int) -> list[_Look]:
    told: dict[int, tuple[int, bool]] = {}
    for name, estimated in (("gpu_busy_estimated", True), ("gpu_busy", False)):
        for at_ms, value in zip(*signals.get(name, ([], [])), strict=True):
            if value is not None:
                told[at_ms] = (value, estimated)
    times = sorted(told)
    found = []
    for since_ms, at_ms, place in find_spans(times, range(len(times)), started_ms):
        busy, estimated = told[times[int(place)]]
        work = hold.parts * min(busy, hold.full) * _MILLI // hold.full
        found.append(_Look(since_ms, at_ms, work, estimated))
    return found


def _both(ones: Sequence[_Look], others: Sequence[_Look]) -> list[_Look]:
    found, i, j = [], 0, 0
    while i < len(ones) and j < len(others):
        a, b = ones[i], others[j]
        low, high = max(a.from_ms, b.from_ms), min(a.until_ms, b.until_ms)
        if low < high:
            found.append(_Look(low, high, a.work + b.work, a.estimated or b.estimated))
        if a.until_ms <= b.until_ms:
            i += 1
        else:
            j += 1
    return found


def _outside(look: _Look, known: Sequence[Span]) -> list[_Look]:
    return [look._replace(from_ms=a, until_ms=b) for a, b in outside((look.from_ms, look.until_ms), known)]


def outside(span: Span, known: Sequence[Span]) -> list[Span]:
    """The parts of a span that lie in none of these, which are in order."""
    left, (at_ms, end_ms) = [], span
    for low, high in known:
        if at_ms < low and at_ms < end_ms:
            left.append((at_ms, min(low, end_ms)))
        at_ms = max(at_ms, high)
    return [*left, (at_ms, end_ms)] if at_ms < end_ms else left


def join_spans(some: Iterable[tuple[int, int]]) -> list[Span]:
    """Spans in order, those that touch or overlap as one."""
    found: list[Span] = []
    for low, high in sorted(some):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found


def _most(seen: Sequence[Signals], names: Sequence[str], from_ms: int, until_ms: int) -> int | None:
    """The most at a time, of all nodes together; of the first of these signals that was told."""
    for name in names:
        parts = [
            some for signals in seen if name in signals if (some := _in(signals[name], from_ms, until_ms))
        ]
        if len(parts) == 1:
            return max([value for _at_ms, value in parts[0]])
        if parts:
            steps = [
                folding.fold_column([a for a, _v in p], [v for _a, v in p], MINUTE_MS, Fold.MAX)
                for p in parts
            ]
            _times, values = folding.join_curves(steps, MINUTE_MS, Fold.RISE)
            return max([value for value in values if value is not None])
    return None
