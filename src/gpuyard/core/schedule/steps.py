"""Quantities over time as steps: a row of integers holds from one time to the next, the last one for ever.

What is free on a node and what a tenant uses change only at known times: when a running job is expected to end and
when a waiting one is to start. Between two such times nothing has to be checked.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from gpuyard.core.fleet.bits import positions, tasks_in_domains
from gpuyard.core.fleet.nodes import NEVER_MS, is_without_gpus
from gpuyard.model import Grant
from gpuyard.model.units import MILLI

_CPU, _MEMORY = -2, -1
"""Columns of cores and memory in a node's row, behind its GPUs."""


_FOR_EVER_MS = NEVER_MS << 1
"""The end of the last row: later than any start plus any run time."""

Need = tuple[int, int, int, int, str, int, tuple[int, int] | None]
"""GPUs, milli of each, cores, memory, the user of the share, and the GPUs of the node that never qualify; where those
of a task are to be in one NUMA domain, how many these are, and how many a domain has."""

Beside = tuple[int, int]
"""Cores and memory left to jobs without GPUs."""

Sharers = dict[tuple[int, str], int]
"""How many shares a user has on a GPU."""


class Steps:
    """Rows over time."""

    __slots__ = ("rows", "times")

    def __init__(self, from_ms: int, row: list[int]) -> None:
        self.times = [from_ms]
        """When each row starts."""
        self.rows = [row]

    def add(self, start_ms: int, end_ms: int, changes: Iterable[tuple[int, int]]) -> None:
        """Add each (column, amount) from start to end. `NEVER_MS` as end: for ever."""
        first = self._cut(start_ms)
        last = self._cut(end_ms) if end_ms < NEVER_MS else len(self.times)
        for row in self.rows[first:last]:
            for column, amount in changes:
                row[column] += amount

    def at(self, time_ms: int) -> int:
        """The index of the row that holds at a time."""
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

    __slots__ = ("_beside", "_gaps", "_sharers", "_whole")

    def __init__(
        self,
        from_ms: int,
        row: list[int],
        ends: Iterable[tuple[int, Grant]],
        sharers: Sharers | None = None,
        beside: Beside | None = None,
    ) -> None:
        super().__init__(from_ms, row)
        self._sharers = [sharers] if sharers else None
        """How many shares each user has on each GPU, row by row; None: there are no shares."""
        self._beside = None if beside is None else [beside]
        """What is left to jobs without GPUs, row by row; None: nothing is reserved for GPUs."""
        self._whole = [_at_least(MILLI, row)]
        """The wholly free GPUs, row by row."""
        self._gaps: dict[Need, list[tuple[int, int]]] = {}
        """When each need could be met."""
        times, rows, whole = self.times, self.rows, self._whole
        for end_ms, grant in sorted(ends):
            if end_ms > times[-1]:
                times.append(end_ms)
                rows.append(list(rows[-1]))
                whole.append(0)
                if self._sharers is not None:
                    self._sharers.append(dict(self._sharers[-1]))
                if self._beside is not None:
                    self._beside.append(self._beside[-1])
            row = rows[-1]
            for gpu in positions[grant.gpus]:
                row[gpu] += grant.milli
            row[_CPU] += grant.cpu_milli
            row[_MEMORY] += grant.memory_mib
            whole[-1] = _at_least(MILLI, row)
            if grant.user and self._sharers is not None:
                _share(self._sharers[-1], grant, -1)
            if self._beside is not None and is_without_gpus(grant):
                cores, memory = self._beside[-1]
                self._beside[-1] = (cores + grant.cpu_milli, memory + grant.memory_mib)

    def book(self, start_ms: int, end_ms: int, grant: Grant) -> None:
        """Take a grant from start to end."""
        first, last = self._cut(start_ms), self._cut(end_ms)
        gpus, whole = positions[grant.gpus], self._whole
        for at in range(first, last):
            row = self.rows[at]
            for gpu in gpus:
                row[gpu] -= grant.milli
            row[_CPU] -= grant.cpu_milli
            row[_MEMORY] -= grant.memory_mib
            whole[at] &= ~grant.gpus
        if self._beside is not None and is_without_gpus(grant):
            for at in range(first, last):
                cores, memory = self._beside[at]
                self._beside[at] = (cores - grant.cpu_milli, memory - grant.memory_mib)
        if grant.user:
            if self._sharers is None:
                self._sharers = [{} for _row in self.rows]
            for sharers in self._sharers[first:last]:
                _share(sharers, grant, 1)
        self._gaps.clear()

    def _cut(self, at_ms: int) -> int:
        before = len(self.times)
        index = super()._cut(at_ms)
        if len(self.times) > before:
            self._whole.insert(index, self._whole[index - 1])
            if self._sharers is not None:
                self._sharers.insert(index, dict(self._sharers[index - 1]))
            if self._beside is not None:
                self._beside.insert(index, self._beside[index - 1])
        return index

    def _masks(self, milli: int, user: str) -> list[int]:
        """GPUs with at least `milli` free for this user, row by row."""
        if milli == MILLI:
            return self._whole
        masks = [_at_least(milli, row) for row in self.rows]
        if user and self._sharers is not None:
            return [mask & ~_strangers(row, user) for mask, row in zip(masks, self._sharers, strict=True)]
        return masks

    def earliest(self, need: Need, from_ms: int, run_ms: int) -> int:
        """The first start from which the same GPUs stay free for `run_ms` without a break; `NEVER_MS`: never."""
        gaps = self._gaps.get(need)
        if gaps is None:
            gaps = self._gaps[need] = self._find_gaps(need)
        for gap_ms, end_ms in gaps:
            start_ms = gap_ms if gap_ms > from_ms else from_ms
            if start_ms + run_ms <= end_ms:
                return start_ms
        return NEVER_MS

    def _find_gaps(self, need: Need) -> list[tuple[int, int]]:
        """Periods in which the need can be met, without those that start later and end no later than another."""
        gpus, milli, cpu_milli, memory_mib, user, never, domain = need
        times, rows, masks = self.times, self.rows, self._masks(milli, user)
        if never:
            masks = [mask & ~never for mask in masks]
        beside = None if gpus else self._beside
        gaps: list[tuple[int, int]] = []
        count = len(times)
        reached = 0
        for first in range(count):
            if first < reached and masks[first] == masks[first - 1]:
                continue
            mask, at = masks[first], first
            while at < count:
                mask &= masks[at]
                row = rows[at]
                if mask.bit_count() < gpus or row[_CPU] < cpu_milli or row[_MEMORY] < memory_mib:
                    break
                if domain is not None and tasks_in_domains(mask, *domain) * domain[0] < gpus:
                    break
                if beside is not None and (beside[at][0] < cpu_milli or beside[at][1] < memory_mib):
                    break
                at += 1
            if at > reached and at > first:
                reached = at
                gaps.append((times[first], times[at] if at < count else _FOR_EVER_MS))
        return gaps

    def window(self, milli: int, user: str, start_ms: int, end_ms: int) -> int:
        """GPUs with at least `milli` free for this user during the whole period."""
        masks, times = self._masks(milli, user), self.times
        at = self.at(start_ms)
        mask = masks[at]
        at += 1
        while at < len(times) and times[at] < end_ms:
            mask &= masks[at]
            at += 1
        return mask

    def least_beside(self, end_ms: int) -> Beside:
        """The least that is left to jobs without GPUs until then."""
        rows = (self._beside or [(0, 0)])[: max(1, bisect_left(self.times, end_ms))]
        return min([cores for cores, _memory in rows]), min([memory for _cores, memory in rows])

    def least(self, end_ms: int) -> list[int]:
        """The least that is free in each column until then."""
        last = bisect_left(self.times, end_ms)
        return [min(column) for column in zip(*self.rows[: max(1, last)], strict=True)]


def _share(sharers: Sharers, grant: Grant, change: int) -> None:
    """Add a share (1) or remove it (-1)."""
    for gpu in positions[grant.gpus]:
        sharers[gpu, grant.user] = sharers.get((gpu, grant.user), 0) + change


def _strangers(sharers: Sharers, user: str) -> int:
    """GPUs on which users other than this one have shares."""
    mask = 0
    for (gpu, other), count in sharers.items():
        if count and other != user:
            mask |= 1 << gpu
    return mask


def _at_least(milli: int, row: list[int]) -> int:
    """GPUs of a node's row with at least `milli` free."""
    mask, bit = 0, 1
    for left in row[:_CPU]:
        if left >= milli:
            mask |= bit
        bit <<= 1
    return mask
