"""What tenants hold back, over time: when a start no longer eats into what other tenants hold back.

A tenant that does not lend all of its guarantee claims what it holds back, used or not. So jobs of other tenants may
find the fleet claimed although GPUs are free, until enough running jobs have ended. Claims are followed to the expected
ends of running jobs, and booked jobs claim what they will use.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from gpuyard.core.fleet.nodes import NEVER_MS
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.quota.tenants import ROOT
from gpuyard.core.schedule.running_jobs import find_running
from gpuyard.core.state.state import State


class HeldAt:
    """Claims at one time, if running jobs end as expected and no others start: what a plan with one promise asks."""

    __slots__ = ("_capacity", "_claims", "_tenants")

    def __init__(self, state: State, now_ms: int, started: Sequence[JobRecord], at_ms: int) -> None:
        """`started`: the jobs that start in this pass."""
        self._tenants = state.tenants
        up_milli = state.nodes.up_milli
        self._capacity = [sum(up_milli), *up_milli]
        self._claims = [list(row) for row in state.tenants.claimed]
        if at_ms <= now_ms:
            # Jobs that are overdue are expected to end right away, but not before.
            return
        for (leaf, model), ends in find_running(state, now_ms).ends_of_leaves(state).items():
            self._move(leaf, model, -ends.until(at_ms)[0])
        for record in started:
            if record.end_ms <= at_ms:
                self._move(record.leaf, record.model, -record.shape.gpu_milli)

    def _move(self, leaf: int, model: int, milli: int) -> None:
        """More is claimed by a tenant, or less."""
        held_back, claims = self._tenants.held_back, self._claims
        for which in (0, 1 + model):
            change = milli
            for number in self._tenants.chain[leaf]:
                before, held = claims[number][which], held_back[number][which]
                claims[number][which] = after = before + change
                change = max(after, held) - max(before, held)

    def book(self, record: JobRecord, model: int) -> None:
        """Let a job claim its GPUs."""
        self._move(record.leaf, model, record.shape.gpu_milli)

    def eats(self, record: JobRecord, model: int) -> bool:
        """Whether a start at that time eats into what other tenants hold back."""
        tenants, leaf, milli = self._tenants, record.leaf, record.shape.gpu_milli
        return any(
            [tenants.eats_held_back(leaf, w, milli, self._capacity[w], self._claims) for w in (0, 1 + model)]
        )


def unheld_from_ms(
    state: State, now_ms: int, started: Sequence[JobRecord], record: JobRecord, model: int, from_ms: int
) -> int:
    """The first time from which the job eats into nothing that other tenants hold back, if no others start.

    Claims only fall as jobs end, so the time is found by halving.
    """

    def eats(at_ms: int) -> bool:
        return HeldAt(state, now_ms, started, at_ms).eats(record, model)

    if not eats(from_ms):
        return from_ms
    lasts = [ends.last_ms() for ends in find_running(state, now_ms).ends_of_leaves(state).values()]
    last_ms = max([now_ms + 1, *lasts, *[other.end_ms for other in started]])
    if last_ms <= from_ms or eats(last_ms):
        return NEVER_MS
    while last_ms - from_ms > 1:
        middle_ms = (from_ms + last_ms) // 2
        if eats(middle_ms):
            from_ms = middle_ms
        else:
            last_ms = middle_ms
    return last_ms


Claims = dict[tuple[int, int], list[int]]
"""By tenant and column: what is claimed from each of the times on."""


class HeldProfile:
    """Claims from now on, of jobs that use GPUs now, until their expected ends, and of booked jobs."""

    def __init__(self, state: State, now_ms: int, using: Iterable[JobRecord]) -> None:
        self._tenants = state.tenants
        up_milli = state.nodes.up_milli
        self._capacity = [sum(up_milli), *up_milli]
        ends = sorted([(max(record.end_ms, now_ms + 1), record.id, record) for record in using])
        self._times = [now_ms, *dict.fromkeys([end_ms for end_ms, _id, _record in ends])]
        self._now = [list(row) for row in self._tenants.claimed]
        """Claims now: they also hold later for a tenant that has no end and no start below it."""
        moved = {
            (number, which)
            for _end_ms, _id, record in ends
            for number in self._tenants.chain[record.leaf]
            for which in (0, 1 + record.model)
        }
        now = {(number, which): self._now[number][which] for number, which in moved}
        self._claims: Claims = {key: [value] for key, value in now.items()}
        at = 0
        for time_ms in self._times[1:]:
            while at < len(ends) and ends[at][0] == time_ms:
                record = ends[at][2]
                self._leave(now, record, state.stranded_milli(record))
                at += 1
            for key, row in self._claims.items():
                row.append(now[key])

    def _leave(self, now: dict[tuple[int, int], int], record: JobRecord, stranded_milli: int) -> None:
        held_back = self._tenants.held_back
        for which in (0, 1 + record.model):
            change = stranded_milli - record.shape.gpu_milli
            for number in self._tenants.chain[record.leaf]:
                before, held = now[number, which], held_back[number][which]
                now[number, which] = after = before + change
                change = max(after, held) - max(before, held)

    def earliest(self, record: JobRecord, model: int, from_ms: int) -> int:
        """The first time from which the job eats into nothing that other tenants hold back, for as long as it runs."""
        times, start_ms = self._times, from_ms
        for at in range(bisect_right(times, from_ms) - 1, len(times)):
            if times[at] >= start_ms + record.estimate_ms:
                break
            if self.eats(at, record, model):
                start_ms = times[at + 1] if at + 1 < len(times) else NEVER_MS
        return start_ms

    def eats(self, at: int, record: JobRecord, model: int) -> bool:
        """Whether a start at one of the times eats into what other tenants hold back."""
        tenants = self._tenants
        for which in (0, 1 + model):
            change = record.shape.gpu_milli
            for number in tenants.chain[record.leaf]:
                before, held = self._claimed(number, which, at), tenants.held_back[number][which]
                after = before + change
                change = max(after, held) - max(before, held)
                if not change:
                    break
            if change > 0 and self._claimed(ROOT, which, at) + change > self._capacity[which]:
                return True
        return False

    def _claimed(self, number: int, which: int, at: int) -> int:
        row = self._claims.get((number, which))
        return self._now[number][which] if row is None else row[at]

    def book(self, record: JobRecord, model: int, at_ms: int) -> None:
        """Let the job claim its GPUs from then on, for as long as it runs."""
        first, last = self._cut(at_ms), self._cut(at_ms + record.estimate_ms)
        tenants = self._tenants
        for which in (0, 1 + model):
            for number in tenants.chain[record.leaf]:
                if (number, which) not in self._claims:
                    self._claims[number, which] = [self._now[number][which]] * len(self._times)
            for at in range(first, last):
                change = record.shape.gpu_milli
                for number in tenants.chain[record.leaf]:
                    row, held = self._claims[number, which], tenants.held_back[number][which]
                    before = row[at]
                    row[at] = after = before + change
                    change = max(after, held) - max(before, held)

    def _cut(self, at_ms: int) -> int:
        index = bisect_left(self._times, at_ms)
        if index == len(self._times) or self._times[index] != at_ms:
            self._times.insert(index, at_ms)
            for row in self._claims.values():
                row.insert(index, row[index - 1])
        return index
