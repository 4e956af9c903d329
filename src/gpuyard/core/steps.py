"""Quantities over time as steps: a row of integers holds from one time to the next, the last one for ever.

What is free on a node and what a tenant uses change at known times only: when something that runs is promised to end
and when something that waits is to begin. Between two such times nothing has to be looked at.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from gpuyard.core.bits import positions
from gpuyard.core.nodes import NEVER_MS
from gpuyard.model import Grant

_CPU, _MEMORY = -2, -1
"""Where cores and memory stand in a node's row, behind its GPUs."""


class Steps:
    """Rows over time."""

    __slots__ = ("rows", "times")

    def __init__(self, from_ms: int, row: list[int]) -> None:
        self.times = [from_ms]
        """When each row begins to hold."""
        self.rows = [row]

    def add(self, start_ms: int, end_ms: int, changes: Iterable[tuple[int, int]]) -> None:
        """From start to end, each (column, amount) is added. `NEVER_MS` as end: for ever."""
        first = self._cut(start_ms)
        last = self._cut(end_ms) if end_ms < NEVER_MS else len(self.times)
        for row in self.rows[first:last]:
            for column, amount in changes:
                row[column] += amount

    def at(self, time_ms: int) -> int:
        """Which row holds at a time."""
        return bisect_right(self.times, time_ms) - 1

    def _cut(self, at_ms: int) -> int:
        times = self.times
        index = bisect_left(times, at_ms)
        if index == len(times) or times[index] != at_ms:
            times.insert(index, at_ms)
            self.rows.insert(index, list(self.rows[index - 1]))
        return index


class NodeSteps(Steps):
    """What a node has free: milli of each GPU, then cores and memory."""

    __slots__ = ("_masks",)

    def __init__(self, from_ms: int, row: list[int]) -> None:
        super().__init__(from_ms, row)
        self._masks: dict[int, list[int]] = {}
        """GPUs with at least so many milli free, row by row."""

    def book(self, start_ms: int, end_ms: int, grant: Grant, sign: int) -> None:
        """Take a grant (-1), or give it back (1), from start to end."""
        changes = [(gpu, sign * grant.milli) for gpu in positions[grant.gpus]]
        if grant.cpu_milli:
            changes.append((_CPU, sign * grant.cpu_milli))
        if grant.memory_mib:
            changes.append((_MEMORY, sign * grant.memory_mib))
        self.add(start_ms, end_ms, changes)
        self._masks.clear()

    def masks(self, milli: int) -> list[int]:
        """GPUs with at least so many milli free, row by row."""
        found = self._masks.get(milli)
        if found is None:
            found = self._masks[milli] = [
                sum([1 << gpu for gpu, left in enumerate(row[:_CPU]) if left >= milli]) for row in self.rows
            ]
        return found

    def earliest(self, gpus: int, milli: int, cpu_milli: int, memory_mib: int, from_ms: int, run_ms: int) -> int:
        """From when on this is free for so long without a break, on GPUs that stay the same; `NEVER_MS`: never."""
        times, rows, masks = self.times, self.rows, self.masks(milli)
        count = len(times)
        first = bisect_right(times, from_ms) - 1
        while first < count:
            start_ms = times[first]
            if start_ms < from_ms:
                start_ms = from_ms
            end_ms = start_ms + run_ms
            mask = masks[first]
            at = first
            while True:
                mask &= masks[at]
                row = rows[at]
                if mask.bit_count() < gpus or row[_CPU] < cpu_milli or row[_MEMORY] < memory_mib:
                    break
                at += 1
                if at == count or times[at] >= end_ms:
                    return start_ms
            row = rows[at]
            alone = masks[at].bit_count() >= gpus and row[_CPU] >= cpu_milli and row[_MEMORY] >= memory_mib
            # A row that is too small by itself is in the way of every start before its end.
            first = first + 1 if alone else at + 1
        return NEVER_MS

    def window(self, milli: int, start_ms: int, end_ms: int) -> int:
        """GPUs with so much free all the time."""
        masks, times = self.masks(milli), self.times
        at = self.at(start_ms)
        mask = masks[at]
        at += 1
        while at < len(times) and times[at] < end_ms:
            mask &= masks[at]
            at += 1
        return mask

    def least(self, end_ms: int) -> list[int]:
        """The least that is free of everything until then."""
        last = bisect_left(self.times, end_ms)
        return [min(column) for column in zip(*self.rows[: max(1, last)], strict=True)]
