"""The running jobs by what a pass asks of them: which could be stopped, until when they are protected, when they end.

A pass on a large fleet must not look at every running job. What is known here is brought up to date from the log of
jobs that started, ended or are expected to end at another time (`State.moved`), a few after each event.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from gpuyard.core.caches import Caches, CacheSlot
from gpuyard.core.fleet.nodes import NEVER_MS
from gpuyard.core.fleet.walls import shelters
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.sorted_ends import End, SortedEnds
from gpuyard.core.state.state import State
from gpuyard.model import JobClass

_DOUBLINGS_MAX = 10
"""A job preempted again and again is left alone for up to 2^10 times its minimum run time."""


def protected_until_ms(victim: JobRecord) -> int:
    """The end of a victim's minimum run time, which doubles with each preemption so that two jobs cannot thrash."""
    return victim.started_ms + (victim.klass.min_run_ms << min(victim.preemptions, _DOUBLINGS_MAX))


def is_preemptible(state: State, record: JobRecord) -> bool:
    """Whether a running job may ever be stopped for another: its class and the pools that it runs in allow it."""
    return record.klass.preemptible and not shelters(state.settings.walls, state.nodes, record.grants)


class VictimGroup:
    """The preemptible running jobs of one tenant, or of one user there, of one class and one priority."""

    __slots__ = ("bit", "count", "klass", "leaf", "party")

    def __init__(self, record: JobRecord, bit: int) -> None:
        self.leaf = record.leaf
        self.party = record.party
        self.klass: JobClass = record.klass
        self.bit = bit
        """The group as a set of one."""
        self.count = 0


class RunningJobs:
    """What is known of the running jobs. Derived, and kept in `State.caches`."""

    __slots__ = (
        "_below",
        "_leaves",
        "_log",
        "_now_ms",
        "_protected",
        "_read",
        "_rows",
        "caches",
        "group_of",
        "groups",
    )

    def __init__(self, state: State) -> None:
        self._log: list[int] = []
        self._read = 0
        self._now_ms = 0
        self._protected: list[tuple[int, int, int]] = []
        """A heap of (end of protection, id, attempt); jobs that have ended are removed when they come to the top."""
        self._below: dict[int, dict[int, SortedEnds]] = {}
        """By tenant and GPU model: the ends of its jobs and of those below it, where somebody has asked."""
        self._leaves: dict[tuple[int, int], SortedEnds] | None = None
        """By tenant and GPU model: the ends of its own jobs, with what they use on nodes that are up; None: nobody has
        asked."""
        self._rows: dict[int, list[tuple[SortedEnds, End]]] = {}
        """The ends of each job, for the jobs that are in one of these lists."""
        self.groups: dict[tuple[int, str, int], VictimGroup] = {}
        self.group_of: dict[int, VictimGroup] = {}
        """The group of each preemptible running job."""
        self.caches = Caches()
        """What names groups by their bits, and so goes when the groups go: what `victims` keeps about nodes."""
        state.moved = self._log
        self._enter(state, state.running.values())

    def fits(self, state: State, now_ms: int) -> bool:
        """Whether this can be brought up to date: its log is the state's, and time has not gone back."""
        return self._log is state.moved and now_ms >= self._now_ms

    def refresh(self, state: State, now_ms: int) -> None:
        """Take in the jobs that have changed."""
        self._now_ms = now_ms
        log = self._log
        if self._read == len(log):
            return
        changed = set(log[self._read :])
        self._read = len(log)
        running = state.running
        for job_id in changed:
            group = self.group_of.pop(job_id, None)
            if group is not None:
                group.count -= 1
        found = [running[job_id] for job_id in changed if job_id in running]
        self._enter(state, found)
        if self._below or self._leaves is not None:
            for job_id in changed:
                for ends, row in self._rows.pop(job_id, ()):
                    ends.remove(row)
            for record in found:
                self._list(state, record)

    def _enter(self, state: State, records: Iterable[JobRecord]) -> None:
        groups, group_of, protected = self.groups, self.group_of, self._protected
        for record in records:
            if not is_preemptible(state, record):
                continue
            klass = record.klass
            key = (record.party, klass.name, klass.priority)
            group = groups.get(key)
            if group is None:
                group = groups[key] = VictimGroup(record, 1 << len(groups))
            group.count += 1
            group_of[record.id] = group
            heappush(protected, (protected_until_ms(record), record.id, record.attempt))

    def next_unprotected_ms(self, state: State, now_ms: int) -> int:
        """When the next running job loses its protection."""
        protected, running = self._protected, state.running
        while protected:
            until_ms, job_id, attempt = protected[0]
            record = running.get(job_id)
            # An attempt that was found to have begun earlier is in the heap twice.
            stands = (
                record is not None and record.attempt == attempt and protected_until_ms(record) == until_ms
            )
            if stands and until_ms > now_ms:
                return until_ms
            heappop(protected)
        return NEVER_MS

    # -- ends ----------------------------------------------------------------------------------------------------

    def _list(self, state: State, record: JobRecord) -> None:
        """Put a job's end into every list that it belongs to."""
        row, model = (record.end_ms, record.id, record.shape.gpu_milli), record.model
        lists = [self._below[n] for n in state.tenants.chain[record.party] if n in self._below]
        rows = self._rows.setdefault(record.id, [])
        for by_model in lists:
            ends = by_model.get(model)
            if ends is None:
                ends = by_model[model] = SortedEnds([])
            ends.add(row)
            rows.append((ends, row))
        if self._leaves is not None:
            ends = self._leaves.get((record.leaf, model))
            if ends is None:
                ends = self._leaves[record.leaf, model] = SortedEnds([])
            claim = (record.end_ms, record.id, record.shape.gpu_milli - state.stranded_milli(record))
            ends.add(claim)
            rows.append((ends, claim))

    def _sorted(self, rows: list[End]) -> SortedEnds:
        ends = SortedEnds(rows)
        for row in rows:
            self._rows.setdefault(row[1], []).append((ends, row))
        return ends

    def ends_below(self, state: State, number: int) -> dict[int, SortedEnds]:
        """The expected ends of the running jobs of a tenant and of the tenants below it, by GPU model."""
        found = self._below.get(number)
        if found is None:
            by_model: dict[int, list[End]] = {}
            for r in state.running.values():
                if number in state.tenants.chain[r.party]:
                    by_model.setdefault(r.model, []).append((r.end_ms, r.id, r.shape.gpu_milli))
            found = self._below[number] = {model: self._sorted(rows) for model, rows in by_model.items()}
        return found

    def ends_of_leaves(self, state: State) -> dict[tuple[int, int], SortedEnds]:
        """The expected ends of the running jobs by tenant and GPU model, and what they then no longer claim."""
        if self._leaves is None:
            by_leaf: dict[tuple[int, int], list[End]] = {}
            for r in state.running.values():
                claim = r.shape.gpu_milli - state.stranded_milli(r)
                by_leaf.setdefault((r.leaf, r.model), []).append((r.end_ms, r.id, claim))
            self._leaves = {key: self._sorted(rows) for key, rows in by_leaf.items()}
        return self._leaves


_RUNNING: CacheSlot[RunningJobs] = CacheSlot("running jobs")


def find_running(state: State, now_ms: int) -> RunningJobs:
    """The running jobs of a state, brought up to date."""
    known = state.caches.get(_RUNNING)
    if known is None or not known.fits(state, now_ms):
        known = state.caches.put(_RUNNING, RunningJobs(state))
    known.refresh(state, now_ms)
    return known
