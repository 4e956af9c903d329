"""Samples folded into minutes, minutes into hours, and a whole run into few points. Pure.

A step without samples stays empty. A counter that went back was reset: it counts on from 0, which is the least that it
can have risen. What a counter rose between two samples belongs to the later one, however far apart they are; so the
sum over any fold is the sum over the samples.
"""

from collections.abc import Callable, Iterable, Sequence

from gpuyard.telemetry.packed_chunks import Column
from gpuyard.telemetry.signals import Fold

Points = tuple[list[int], list[int | None]]
"""Times and values."""


def find_rises(column: Column, before: int | None, fold: Fold) -> list[int | None]:
    """A counter's values as what it rose up to each of them; `before` is its last value ahead of these."""
    last = before if before is not None else (0 if fold is Fold.LIFE else None)
    found: list[int | None] = []
    for value in column:
        if value is None:
            found.append(None)
            continue
        if last is None:
            # Nobody saw where it began.
            found.append(0)
        else:
            found.append(value - last if value >= last else value)
        last = value
    return found


def fold_column(
    times_ms: Sequence[int], column: Column, step_ms: int, fold: Fold, from_ms: int = 0
) -> Points:
    """One value for each step that has any, at the step's beginning. Counters come in as rises."""
    steps: dict[int, list[int]] = {}
    for at_ms, value in zip(times_ms, column, strict=True):
        if value is not None:
            steps.setdefault((at_ms - from_ms) // step_ms, []).append(value)
    combine = _COMBINE[fold]
    ordered = sorted(steps)
    return [from_ms + step * step_ms for step in ordered], [combine(steps[step]) for step in ordered]


def mean(values: Sequence[int]) -> int:
    """The mean, rounded half up."""
    return (2 * sum(values) + len(values)) // (2 * len(values))


def _any(values: Sequence[int]) -> int:
    bits = 0
    for value in values:
        bits |= value
    return bits


_COMBINE: dict[Fold, Callable[[Sequence[int]], int]] = {
    Fold.MEAN: mean,
    Fold.MAX: max,
    Fold.ANY: _any,
    Fold.RISE: sum,
    Fold.LIFE: sum,
}


def thin_points(points: Points, fold: Fold, most: int) -> tuple[Points, int]:
    """At most so many points over the same time, and the step between them; few enough points stay as they are."""
    times_ms, values = points
    if len(times_ms) <= most:
        return points, 0
    span_ms = times_ms[-1] - times_ms[0] + 1
    step_ms = -(-span_ms // most)
    return fold_column(times_ms, values, step_ms, fold, times_ms[0]), step_ms


def join_curves(parts: Iterable[Points], step_ms: int, across: Fold) -> Points:
    """Curves of one attempt on several nodes as one: their sum, or their mean, step by step."""
    steps: dict[int, list[int]] = {}
    for times_ms, values in parts:
        for at_ms, value in zip(times_ms, values, strict=True):
            if value is not None:
                steps.setdefault(at_ms // step_ms * step_ms, []).append(value)
    ordered = sorted(steps)
    return ordered, [_COMBINE[across](steps[at_ms]) for at_ms in ordered]


def merge_chunk(
    old: tuple[Sequence[int], dict[str, list[int | None]]], news: Iterable[tuple[int, dict[str, int]]]
) -> tuple[list[int], dict[str, list[int | None]]]:
    """A chunk with samples added. What is there for a time stays: a sample that comes twice changes nothing."""
    old_times, old_columns = old
    added: dict[int, dict[str, int]] = {}
    for at_ms, values in news:
        there = added.setdefault(at_ms, {})
        for name, value in values.items():
            there.setdefault(name, value)
    names = list(dict.fromkeys([*old_columns, *sorted({name for each in added.values() for name in each})]))
    if not old_times or not added or old_times[-1] < min(added):
        # As nearly always: all that is added is later.
        later = sorted(added)
        rows = [added[at_ms] for at_ms in later]
        holes: list[int | None] = [None] * len(old_times)
        return [*old_times, *later], {
            name: [*old_columns.get(name, holes), *[row.get(name) for row in rows]] for name in names
        }
    times_ms = sorted({*old_times, *added})
    places = {at_ms: place for place, at_ms in enumerate(old_times)}
    columns: dict[str, list[int | None]] = {}
    for name in names:
        had = old_columns.get(name)
        column: list[int | None] = []
        for at_ms in times_ms:
            place = places.get(at_ms)
            there_already = had[place] if had is not None and place is not None else None
            column.append(added.get(at_ms, {}).get(name) if there_already is None else there_already)
        columns[name] = column
    return times_ms, columns
