"""The running jobs by what a pass asks about them: who could be stopped, until when they are protected, when they end.

A pass on a large fleet must not look at every running job. What is known here is brought up to date from the log of
jobs that started, ended or are expected to end at another time (`State.moved`), a few after each event.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from heapq import heappop, heappush

from gpuyard.core.fleet.nodes import NEVER_MS
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state.state import State
from gpuyard.model import JobClass

_DOUBLINGS_MAX = 10
"""A job preempted again and again is left alone for up to 2^10 times its minimum run time."""

_ONE_BY_ONE_MAX = 128
"""Changes up to this number are sorted in one by one; with more, the list is sorted again."""


def protected_until_ms(victim: JobRecord) -> int:
    """The end of a victim's minimum run time, which doubles with each preemption so that two jobs cannot thrash."""
    return victim.started_ms + (victim.klass.min_run_ms << min(victim.preemptions, _DOUBLINGS_MAX))


class Group:
    """The preemptible running jobs of one tenant, or of one user there, and one class."""

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

    __slots__ = ("_ends", "_log", "_now_ms", "_protected", "_read", "group_of", "groups", "prices")

    def __init__(self, state: State) -> None:
        self._log: list[int] = []
        self._read = 0
        self._now_ms = 0
        self._protected: list[tuple[int, int, int]] = []
        """A heap of (end of protection, id, attempt); jobs that have ended are removed when they come to the top."""
        self._ends: dict[int, _Ends] = {}
        """The expected ends below a tenant, for the tenants that were asked about."""
        self.groups: dict[tuple[int, str], Group] = {}
        self.group_of: dict[int, Group] = {}
        """The group of each preemptible running job."""
        self.prices: object = None
        """What `victims` keeps about nodes. It names groups by their bits, so it goes when the groups go."""
        state.moved = self._log
        self._enter(state.running.values())

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
        self._enter(found)
        for number, ends in self._ends.items():
            ends.change(changed, [r for r in found if number in state.tenants.chain[r.party]])

    def _enter(self, records: Iterable[JobRecord]) -> None:
        groups, group_of, protected = self.groups, self.group_of, self._protected
        for record in records:
            klass = record.klass
            if not klass.preemptible:
                continue
            key = (record.party, klass.name)
            group = groups.get(key)
            if group is None:
                group = groups[key] = Group(record, 1 << len(groups))
            group.count += 1
            group_of[record.id] = group
            heappush(protected, (protected_until_ms(record), record.id, record.attempt))

    def next_unprotected_ms(self, state: State, now_ms: int) -> int:
        """When the next running job loses its protection."""
        protected, running = self._protected, state.running
        while protected:
            until_ms, job_id, attempt = protected[0]
            record = running.get(job_id)
            if until_ms > now_ms and record is not None and record.attempt == attempt:
                return until_ms
            heappop(protected)
        return NEVER_MS

    def ends_below(self, state: State, number: int) -> list[tuple[int, int]]:
        """The expected ends of the running jobs of a tenant and of the tenants below it, with their ids, in order."""
        ends = self._ends.get(number)
        if ends is None:
            chain = state.tenants.chain
            ends = self._ends[number] = _Ends()
            ends.change(set(), [r for r in state.running.values() if number in chain[r.party]])
        return ends.rows


class _Ends:
    """Expected ends, sorted."""

    __slots__ = ("_known", "rows")

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []
        self._known: dict[int, int] = {}
        """The end under which each job is in the list."""

    def change(self, changed: set[int], now: list[JobRecord]) -> None:
        """Take out the jobs that have changed, and take in those that run now."""
        known, rows = self._known, self.rows
        gone = [(known.pop(job_id), job_id) for job_id in changed if job_id in known]
        for record in now:
            known[record.id] = record.end_ms
        if len(gone) + len(now) > _ONE_BY_ONE_MAX:
            self.rows = sorted([(end_ms, job_id) for job_id, end_ms in known.items()])
            return
        for row in gone:
            del rows[bisect_left(rows, row)]
        for record in now:
            insort(rows, (record.end_ms, record.id))


def running_jobs(state: State, now_ms: int) -> RunningJobs:
    """The running jobs of a state, brought up to date."""
    known = state.caches.get("running")
    if not isinstance(known, RunningJobs) or not known.fits(state, now_ms):
        known = state.caches["running"] = RunningJobs(state)
    known.refresh(state, now_ms)
    return known
