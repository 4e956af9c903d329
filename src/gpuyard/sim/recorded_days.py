"""What a yard has recorded, as a trace: the jobs that ended in the last days, and those that are live.

The record says when a job was submitted, started and ended, but not how long a live job will run. A running job is
assumed to be half-way; a waiting one, to run as long as the median of its tenant. Jobs that existed before the first
day take their room when it begins, and are not counted in the waits.
"""

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuyard.core import State
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state.dependencies import task_ids
from gpuyard.model import After, AfterKind, JobSpec
from gpuyard.model.serialise import from_plain
from gpuyard.model.units import HOUR_MS, NO_LIMIT_MS
from gpuyard.sim.trace import Trace

UNKNOWN = -1


@dataclass(slots=True)
class Recorded:
    """A trace, with what is known about each of its jobs."""

    trace: Trace
    span_ms: int
    """How long the record is. The simulation continues after it until every job is done."""
    tenant: list[str] = field(default_factory=list)
    counted: list[bool] = field(default_factory=list)
    """Whether its wait is counted: it was submitted in these days."""
    waited_ms: "array[int]" = field(default_factory=lambda: array("q"))
    """How long it really waited; -1: it still waits, or was tried more than once."""
    settled_ms: int = 0
    """Until when every job that came has started. After that, only the lucky ones have."""
    live: int = 0
    """Jobs that have not ended."""
    carried: int = 0
    """Jobs that existed before the first day."""
    never_ran: int = 0
    """Jobs that ended without a start: they are left out."""
    retried: int = 0
    """Jobs with several attempts; the last one counts."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One job on its way into the trace. Times are from the beginning of the record."""

    submit_ms: int
    id: int
    spec: JobSpec
    run_ms: int
    limit_ms: int
    tenant: str
    counted: bool
    waited_ms: int


def make_recorded(rows: Iterable[Sequence[Any]], state: State, from_ms: int, until_ms: int) -> Recorded:
    """Rows of the history (`ENDED_COLUMNS` of `store/tables/history.py`) and the live jobs of a state, as one trace."""
    found = Recorded(Trace("history"), until_ms - from_ms, settled_ms=until_ms - from_ms)
    ended = [(*row[:6], json.loads(row[6])) for row in rows]
    waits = _Waits(ended)
    jobs: list[_Row] = []
    runs: dict[str, list[int]] = {}
    for job_id, tenant, submitted_ms, started_ms, ended_ms, attempts, detail in ended:
        spec = from_plain(JobSpec, detail["spec"])
        if spec.elsewhere:
            continue
        if not started_ms:
            found.never_ran += 1
            continue
        found.retried += attempts > 1
        runs.setdefault(_top(tenant), []).append(ended_ms - started_ms)
        # It could not start before its begin time, nor before its dependencies had ended.
        after = [waits.done_ms(job_id, spec, each) for each in spec.after]
        ready_ms = min(started_ms, max([submitted_ms, detail.get("begin_ms", 0), *after]))
        limit_ms = detail["limit_ms"]
        waited_ms = started_ms - ready_ms if attempts == 1 else UNKNOWN
        jobs.append(_row(from_ms, job_id, spec, tenant, ready_ms, started_ms, ended_ms, limit_ms, waited_ms))
    median = {tenant: sorted(times)[len(times) // 2] for tenant, times in runs.items()}
    every = sorted(time for times in runs.values() for time in times)
    for record in state.jobs.values():
        if record.held or record.pending or record.doomed or record.job.spec.elsewhere:
            # It waits for a user or for another job, whatever the policy.
            continue
        found.live += 1
        usual_ms = median.get(_top(record.job.spec.tenant), every[len(every) // 2] if every else HOUR_MS)
        row = _live_row(record, from_ms, until_ms, usual_ms)
        if record.phase is None:
            found.settled_ms = min(found.settled_ms, row.submit_ms)
        jobs.append(row)
    jobs.sort(key=lambda job: (job.submit_ms, job.id))
    _fill(found, jobs)
    return found


class _Waits:
    """When the jobs that others waited for had ended."""

    def __init__(self, ended: list[tuple[Any, ...]]) -> None:
        self._rows = ended
        self._ends: dict[int, int] = {row[0]: row[4] for row in ended}
        self._arrays: dict[tuple[int, int], int] = {}
        self._names: dict[tuple[str, str], tuple[list[int], list[int]]] | None = None

    def done_ms(self, job_id: int, spec: JobSpec, after: After) -> int:
        """When the last of them had ended; 0: the record does not say."""
        if after.kind is AfterKind.ALONE:
            ids, last_ms = self._namesakes().get((spec.user, spec.name), ([], []))
            place = bisect_left(ids, job_id)
            return last_ms[place - 1] if place else 0
        if not after.tasks:
            return self._ends.get(after.job_id, 0)
        key = (after.job_id, after.tasks)
        if key not in self._arrays:
            self._arrays[key] = max([self._ends.get(each, 0) for each in task_ids(after)])
        return self._arrays[key]

    def _namesakes(self) -> dict[tuple[str, str], tuple[list[int], list[int]]]:
        """By user and name: the ids in order, and for each the end of the last job up to it."""
        if self._names is None:
            self._names = {}
            for row in sorted(self._rows, key=lambda row: row[0]):
                spec = row[6]["spec"]
                ids, last_ms = self._names.setdefault((spec.get("user", ""), spec.get("name", "")), ([], []))
                ids.append(row[0])
                last_ms.append(max(row[4], last_ms[-1] if last_ms else 0))
        return self._names


def _row(
    from_ms: int,
    job_id: int,
    spec: JobSpec,
    tenant: str,
    ready_ms: int,
    started_ms: int,
    ended_ms: int,
    limit_ms: int,
    waited_ms: int,
) -> _Row:
    counted = ready_ms >= from_ms
    # What ran before the record begins is left out.
    run_ms = max(1, ended_ms - max(started_ms, from_ms))
    limit_ms = 0 if limit_ms >= NO_LIMIT_MS else limit_ms
    plain = replace(spec, recipe="", recipe_bytes=0, name="", after=(), after_one=False)
    submit_ms = max(0, ready_ms - from_ms)
    return _Row(
        submit_ms, job_id, plain, run_ms, limit_ms, tenant, counted, waited_ms if counted else UNKNOWN
    )


def _live_row(record: JobRecord, from_ms: int, until_ms: int, usual_ms: int) -> _Row:
    """A job that has not ended: a running one is half-way, a waiting one is like the others of its tenant."""
    job = record.job
    ready_ms = min(until_ms, max(job.submitted_ms, record.begin_ms))
    waited_ms = UNKNOWN
    if record.phase is None:
        run_ms = min(usual_ms, record.limit_ms)
        started_ms, ended_ms = until_ms, until_ms + run_ms
    else:
        started_ms = record.started_ms
        waited_ms = max(0, started_ms - ready_ms) if record.attempt == 1 else UNKNOWN
        ended_ms = started_ms + min(2 * max(1, until_ms - started_ms), record.limit_ms)
    return _row(
        from_ms, job.id, job.spec, job.spec.tenant, ready_ms, started_ms, ended_ms, record.limit_ms, waited_ms
    )


def _top(tenant: str) -> str:
    return tenant.partition("/")[0]


def _fill(found: Recorded, jobs: list[_Row]) -> None:
    trace = found.trace
    specs: dict[JobSpec, int] = {}
    for job in jobs:
        trace.spec.append(specs.setdefault(job.spec, len(specs)))
        trace.submit_ms.append(job.submit_ms)
        trace.run_ms.append(job.run_ms)
        trace.limit_ms.append(job.limit_ms)
        trace.deadline_ms.append(0)
        found.tenant.append(job.tenant)
        found.counted.append(job.counted)
        found.waited_ms.append(job.waited_ms)
        found.carried += not job.counted
    trace.specs = list(specs)
    trace.rows = len(jobs)
