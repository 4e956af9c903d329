"""What tenants use over time: when a job that lacks quota will have it.

Limits, borrowing, running jobs and what other tenants hold back are followed: running jobs free them by ending.
Budgets are not, because no expected end frees them.
"""

from collections.abc import Iterator
from itertools import chain

from gpuyard.core.fleet.nodes import NEVER_MS
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.quota.tenants import UNLIMITED, UNMEASURED
from gpuyard.core.schedule.held_profile import HeldProfile
from gpuyard.core.schedule.steps import Steps
from gpuyard.core.state.state import State

_CPUS, _MEMORY, _JOBS = -3, -2, -1
"""Columns behind those of GPUs."""


class QuotaProfile:
    """Use by tenant, over time: GPUs in total and by model, then cores, memory, and how many jobs run."""

    def __init__(self, state: State, now_ms: int) -> None:
        self._state = state
        self._now_ms = now_ms
        self._steps: dict[int, Steps] = {}
        self._drafted: list[JobRecord] = []
        """Jobs that start in this pass: tenants count their use, but they are not among the running jobs."""
        self._held: HeldProfile | None = None
        """What other tenants hold back; made on first use."""

    def concerns(self, record: JobRecord) -> bool:
        """Whether any rule applies to the job's tenant."""
        tenants = self._state.tenants
        return tenants.guarded[record.party] or tenants.holding

    def earliest(self, record: JobRecord, model: int, from_ms: int) -> int:
        """The first time from which every tenant above the job has the quota, for as long as it runs."""
        while True:
            at_ms = from_ms
            for number in self._ruled(record):
                at_ms = self._earliest(number, record, model, at_ms)
                if at_ms >= NEVER_MS:
                    return NEVER_MS
            if self._state.tenants.holding:
                at_ms = self._held_back().earliest(record, model, at_ms)
                if at_ms >= NEVER_MS:
                    return NEVER_MS
            if at_ms == from_ms:
                return at_ms
            from_ms = at_ms

    def book(self, record: JobRecord, model: int, at_ms: int) -> None:
        """Let the job use its GPUs from then on."""
        for number in self._ruled(record):
            self._add(self._of(number), record, model, at_ms)
        if self._state.tenants.holding:
            self._held_back().book(record, model, at_ms)

    def started(self, record: JobRecord, model: int) -> None:
        """The job starts now; the caller is about to draft that."""
        for number in self._ruled(record):
            if number in self._steps:
                self._add(self._steps[number], record, model, self._now_ms)
        if self._held is not None:
            self._held.book(record, model, self._now_ms)
        self._drafted.append(record)

    def _held_back(self) -> HeldProfile:
        if self._held is None:
            self._held = HeldProfile(self._state, self._now_ms, self._using())
        return self._held

    def _ruled(self, record: JobRecord) -> list[int]:
        tenants = self._state.tenants
        return [number for number in tenants.chain[record.party] if tenants.guarded[number]]

    def _add(self, steps: Steps, record: JobRecord, model: int, at_ms: int) -> None:
        steps.add(at_ms, at_ms + record.estimate_ms, self._use(record, model, 1))

    def _use(self, record: JobRecord, model: int, sign: int) -> list[tuple[int, int]]:
        """What a job uses, by column; cores and memory only where they are measured."""
        milli = sign * record.shape.gpu_milli
        use = [(0, milli), (1 + model, milli), (_JOBS, sign)]
        if self._state.tenants.measured:
            cpu_milli, memory_mib = record.shape.measure
            use += [(_CPUS, sign * cpu_milli), (_MEMORY, sign * memory_mib)]
        return use

    def _of(self, number: int) -> Steps:
        steps = self._steps.get(number)
        if steps is None:
            tenants = self._state.tenants
            row = [*tenants.used[number], *tenants.measure[number], tenants.running[number]]
            steps = Steps(self._now_ms, row)
            for record in self._using():
                if number in tenants.chain[record.party]:
                    end_ms = max(record.end_ms, self._now_ms + 1)
                    steps.add(end_ms, NEVER_MS, self._use(record, record.model, -1))
            self._steps[number] = steps
        return steps

    def _using(self) -> Iterator[JobRecord]:
        """The jobs that count as using GPUs now: running jobs, and those that this pass has started."""
        state = self._state
        started = [record for record in chain(state.earmarks.values(), self._drafted) if record.grants]
        return chain(state.running.values(), started)

    def _earliest(self, number: int, record: JobRecord, model: int, from_ms: int) -> int:
        tenants, milli = self._state.tenants, record.shape.gpu_milli
        limit, ceiling = tenants.limit[number], tenants.ceiling[number]
        column = 1 + model
        most = min(limit[0], ceiling[0]) - milli
        most_of_model = min(limit[column], ceiling[column]) - milli
        most_jobs = tenants.max_running[number] - 1
        measured, measure = tenants.most[number] != UNMEASURED, record.shape.measure
        free = most >= UNLIMITED - milli and most_of_model >= UNLIMITED - milli
        if free and most_jobs >= UNLIMITED - 1 and not measured:
            return from_ms
        most_cpus, most_memory = [a - b for a, b in zip(tenants.most[number], measure, strict=True)]
        steps = self._of(number)
        times = steps.times
        start_ms = from_ms
        for at in range(steps.at(from_ms), len(times)):
            if times[at] >= start_ms + record.estimate_ms:
                break
            row = steps.rows[at]
            lacks = row[0] > most or row[column] > most_of_model or row[_JOBS] > most_jobs
            if measured:
                lacks = lacks or row[_CPUS] > most_cpus or row[_MEMORY] > most_memory
            if lacks:
                start_ms = times[at + 1] if at + 1 < len(times) else NEVER_MS
        return start_ms
