"""The very pass that `decide` makes, watched at one job's turn.

A blocker is true only of the moment at which the job is looked at: with what starts before it entered in the books,
and with what was promised to those ahead of it. So the pass is made once more, and when the job's turn comes, the
books are read before they are put back. Nothing is worked out a second way.
"""

from collections.abc import Callable
from dataclasses import replace

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.decide import rehearse
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.schedule.policy import Backfill, Policy
from gpuyard.core.state.state import State
from gpuyard.model import Grant, Plan, ReasonCode

Look = Callable[[Pass, Backfill], None]
"""What is to be read when the job's turn has come."""


class Watch:
    """A backfill that asks the policy's own, and stops to look."""

    def __init__(self, policy: Policy, record: JobRecord, look: Look) -> None:
        self._policy = policy
        self._record = record
        self._look = look
        self._current: Pass | None = None
        self._asked: Backfill | None = None
        self._entered: tuple[JobRecord, tuple[Grant, ...]] | None = None
        """The last start, which the pass may not have entered in the books if nobody was left to look at."""
        self.name = policy.backfill.name
        self.promises_all = policy.backfill.promises_all
        self.window_ms = 0
        self.settled = False
        self.seen = False
        """Whether the job's turn has come."""

    def begin(self, current: Pass) -> "Watch":
        """One pass, of which this is the backfill too."""
        self._current = current
        self._asked = self._policy.backfill.begin(current)
        return self

    def place(self, record: JobRecord) -> tuple[Grant, ...] | ReasonCode:
        """The policy's answer. The watched job is looked at before it, or, if it was passed over, where it stood."""
        assert self._asked is not None
        if record is self._record or self._is_behind(record):
            self._turn()
        found = self._asked.place(record)
        if type(found) is tuple:
            self._entered = (record, found)
        self.window_ms, self.settled = self._asked.window_ms, self._asked.settled
        return found

    def holds(self) -> tuple[Grant, ...]:
        """As the policy's own says."""
        assert self._asked is not None
        return self._asked.holds()

    def blocked(self, record: JobRecord, code: ReasonCode) -> bool:
        """As the policy's own says."""
        assert self._asked is not None
        goes_on = self._asked.blocked(record, code)
        self.window_ms, self.settled = self._asked.window_ms, self._asked.settled
        return goes_on

    def finish(self) -> None:
        """The pass is over. A job that was not looked at is so now."""
        assert self._current is not None
        if self._entered is not None and not self._entered[0].grants and not self.seen:
            self._current.draft_start(*self._entered)
        self._turn()

    def _turn(self) -> None:
        if not self.seen:
            self.seen = True
            assert self._current is not None
            assert self._asked is not None
            self._look(self._current, self._asked)

    def _is_behind(self, record: JobRecord) -> bool:
        """Whether this job comes after the watched one, as far as that can be told while others start."""
        mine, theirs = self._record, record
        if not mine.entry or mine.group != theirs.group:
            return False
        by_age = not self._policy.order.fair or mine.leaf == theirs.leaf
        return bool(by_age and theirs.entry > mine.entry)


def watch(state: State, policy: Policy, now_ms: int, record: JobRecord, look: Look) -> Plan:
    """Make the pass, and look at the job's turn, or at the end if it has none."""
    if state.queue.order is not policy.order:
        state.reindex(policy.order)
    watched = Watch(policy, record, look)
    return rehearse(state, replace(policy, backfill=watched), now_ms, watched.finish)
