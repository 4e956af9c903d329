"""The quota that goes with promised room: how much other jobs of the same tenants may use without delaying the start.

Mostly there is enough for both at once, which shows without looking at running jobs.
"""

from collections.abc import Iterable

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.held_profile import HeldAt
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.schedule.running_jobs import find_running

_CPUS, _MEMORY, _JOBS = -3, -2, -1
"""Columns behind those of GPUs."""


class QuotaPromise:
    """What the tenants of a job will use when it starts, and what they have left beside it."""

    __slots__ = (
        "_at_ms",
        "_ended",
        "_head",
        "_held",
        "_mine",
        "_model",
        "_pass",
        "_read",
        "_seen",
        "_state",
    )

    def __init__(self, current: Pass, head: JobRecord, model: int, at_ms: int) -> None:
        self._pass = current
        self._state = state = current.state
        self._head = head
        self._model = model
        self._at_ms = at_ms
        tenants = state.tenants
        self._mine: set[int] | None = None
        """The tenants with a quota for the promised job, once a job might take of it: mostly none does."""
        self._ended: dict[int, list[int]] = {}
        """By tenant, what its running jobs will have given back by then: GPUs in total and by model, cores, memory, and
        the number of jobs."""
        self._read: dict[int, int] = {}
        """By tenant, how many jobs started in this pass are counted in `_ended`: every later job asks."""
        self._held: HeldAt | None = None
        """Where any tenant holds GPUs back: what is claimed by then, the promised job included."""
        self._seen = len(current.started)
        """How many of the jobs started in this pass are counted in `_held`."""
        if tenants.holding:
            self._held = HeldAt(state, current.now_ms, current.started, at_ms)
            self._held.book(head, model)

    def leaves(self, record: JobRecord, model: int) -> bool:
        """Whether a job that outlasts the promise leaves the promised job its quota."""
        tenants, mine = self._state.tenants, self._mine
        if mine is None:
            mine = self._mine = {n for n in tenants.chain[self._head.party] if tenants.guarded[n]}
            # Named budgets have no quota.
            mine.difference_update(tenants.budget_row.values())
        above = tenants.chain[record.party]
        if not all([self._enough(number, record, model) for number in above if number in mine]):
            return False
        return self._held is None or not self._eats(self._held, record, model)

    def _eats(self, held: HeldAt, record: JobRecord, model: int) -> bool:
        """Whether both jobs together eat into what other tenants hold back, once everything due by then has ended."""
        started = self._pass.started
        for other in started[self._seen :]:
            if other.end_ms > self._at_ms:
                held.book(other, other.model)
        self._seen = len(started)
        return held.eats(record, model)

    def _enough(self, number: int, record: JobRecord, model: int) -> bool:
        """Whether one tenant has enough for both jobs: now, or once everything due by then has ended."""
        lacks = self._lacks(number, record, model)
        if not lacks:
            return True
        back = self._back(number)
        return all([back[which] >= milli for which, milli in lacks])

    def _lacks(self, number: int, record: JobRecord, model: int) -> list[tuple[int, int]]:
        """What both jobs together lack now, by column."""
        tenants, head_milli = self._state.tenants, self._head.shape.gpu_milli
        used, limit, ceiling = tenants.used[number], tenants.limit[number], tenants.ceiling[number]
        found = []
        for which in (0, 1 + model):
            milli = record.shape.gpu_milli + (head_milli if which in (0, 1 + self._model) else 0)
            over = used[which] + milli - min(limit[which], ceiling[which])
            if over > 0:
                found.append((which, over))
        if tenants.measured:
            mine, heads = record.shape.measure, self._head.shape.measure
            for which, have, own, head, most in zip(
                (_CPUS, _MEMORY), tenants.measure[number], mine, heads, tenants.most[number], strict=True
            ):
                if have + own + head > most:
                    found.append((which, have + own + head - most))
        jobs = tenants.running[number] + 2 - tenants.max_running[number]
        return [*found, (_JOBS, jobs)] if jobs > 0 else found

    def _back(self, number: int) -> list[int]:
        """What a tenant gets back by then, also from jobs that start in this pass."""
        back, started = self._ended.get(number), self._pass.started
        if back is None:
            back = self._ended[number] = [0] * (len(self._state.tenants.used[number]) + 3)
            below = find_running(self._state, self._pass.now_ms).ends_below(self._state, number)
            for model, ends in below.items():
                milli, count = ends.until(self._at_ms)
                back[0] += milli
                back[1 + model] += milli
                back[_JOBS] += count
            if self._state.tenants.measured:
                self._give_back(back, number)
        self._add(back, number, started[self._read.get(number, 0) :])
        self._read[number] = len(started)
        return back

    def _give_back(self, row: list[int], number: int) -> None:
        """Add the cores and the memory of the running jobs that will have ended."""
        above = self._state.tenants.chain
        for record in self._state.running.values():
            if record.end_ms <= self._at_ms and number in above[record.party]:
                row[_CPUS] += record.shape.measure[0]
                row[_MEMORY] += record.shape.measure[1]

    def _add(self, row: list[int], number: int, records: Iterable[JobRecord]) -> None:
        at_ms, above = self._at_ms, self._state.tenants.chain
        for record in records:
            if record.end_ms <= at_ms and number in above[record.party]:
                row[0] += record.shape.gpu_milli
                row[1 + record.model] += record.shape.gpu_milli
                row[_CPUS] += record.shape.measure[0]
                row[_MEMORY] += record.shape.measure[1]
                row[_JOBS] += 1
