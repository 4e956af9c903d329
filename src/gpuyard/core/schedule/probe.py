"""The same pass that `decide` makes, observed at one job's turn.

A reason is true only for the moment at which the job is examined: with the starts before it drafted, and with the
promises to jobs ahead of it. So the pass is made once more, and at the job's turn the state is read before the drafts
are undone. Nothing is worked out a second way.
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
"""Called with the pass and its backfill when the job's turn has come."""


class TurnProbe:
    """A backfill that forwards to the policy's own and calls `look` at the job's turn."""

    def __init__(self, policy: Policy, record: JobRecord, look: Look) -> None:
        self._policy = policy
        self._record = record
        self._look = look
        self._current: Pass | None = None
        self._asked: Backfill | None = None
        self._entered: tuple[JobRecord, tuple[Grant, ...]] | None = None
        """The last start, which the pass may not have drafted if no job was left to examine."""
        self.name = policy.backfill.name
        self.promises_all = policy.backfill.promises_all
        self.window_ms = 0
        self.settled = False
        self.seen = False
        """Whether the job's turn has come."""

    def begin(self, current: Pass) -> "TurnProbe":
        """Begin a pass with this object as its backfill."""
        self._current = current
        self._asked = self._policy.backfill.begin(current)
        return self

    def place(self, record: JobRecord) -> tuple[Grant, ...] | ReasonCode:
        """The policy's answer. `look` comes before the watched job's turn, or, if it is passed over, where it stood."""
        assert self._asked is not None
        if record is self._record or self._is_behind(record):
            self._turn()
        found = self._asked.place(record)
        if type(found) is tuple:
            self._entered = (record, found)
        self.window_ms, self.settled = self._asked.window_ms, self._asked.settled
        return found

    def holds(self) -> tuple[Grant, ...]:
        """Forward to the policy's own backfill."""
        assert self._asked is not None
        return self._asked.holds()

    def blocked(self, record: JobRecord, code: ReasonCode) -> bool:
        """Forward to the policy's own backfill."""
        assert self._asked is not None
        goes_on = self._asked.blocked(record, code)
        self.window_ms, self.settled = self._asked.window_ms, self._asked.settled
        return goes_on

    def finish(self) -> None:
        """The pass is over: call `look` now if the job's turn never came."""
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
        """Whether this job comes after the watched one, as far as that is known while other jobs start."""
        mine, theirs = self._record, record
        if not mine.entry or mine.group != theirs.group or self._current is None:
            return False
        line = self._current.state.queue.line
        return bool(line(mine) == line(theirs) and theirs.entry > mine.entry)


def probe_turn(state: State, policy: Policy, now_ms: int, record: JobRecord, look: Look) -> Plan:
    """Make the pass and call `look` at the job's turn, or at the end if it has none."""
    if state.queue.order is not policy.order:
        state.reindex(policy.order)
    probe = TurnProbe(policy, record, look)
    return rehearse(state, replace(policy, backfill=probe), now_ms, probe.finish)
