"""What jobs wait for enters the log: the leader looks every second or so, adds up, and tells it every five minutes.

Reasons are values of a pass and no events, so what is not told here is known to nobody later. Between two looks half of
the time counts as the one before and half as the one after. A leader that begins tells of the time since the last
event, in which nobody looked, as that.
"""

import logging
import time
from collections.abc import Callable

from gpuyard.control.clock import Rounds
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.core.explain.causes import Elsewhere, Look, Waiting
from gpuyard.core.jobs.records import JobRecord
from gpuyard.model import Outcome, WaitCause, WaitLine, WaitsSeen
from gpuyard.model.units import DAY_MS, HOUR_MS, MILLI, MINUTE_MS
from gpuyard.store import Fenced, StoreError

TELL_MS = 5 * MINUTE_MS
"""Between two events, while anything waits."""
LINES_MAX = 500
"""Lines of one event."""
BACK_MS = 30 * DAY_MS
"""How far back a leader that begins tells of time in which nobody looked."""
LOOK_S = 1.0
REST = 100
"""A look that took long is followed by a rest of so many times as long."""
CRASHES = frozenset({Outcome.FAILED.value, Outcome.NODE_FAIL.value, Outcome.OUT_OF_MEMORY.value})
"""Ends of attempts after which a job that waits again waits for that."""
_log = logging.getLogger(__name__)


class WaitMeter:
    """What the leader has seen and not told yet. Called from one thread."""

    def __init__(
        self,
        replica: Replica,
        epoch: Callable[[], int | None],
        now_ms: Callable[[], int],
        elsewhere: Elsewhere = lambda _record: WaitCause.UNKNOWN,
    ) -> None:
        """`epoch`: of this process while it leads. `elsewhere`: why a job of an observed cluster waits."""
        self._replica = replica
        self._epoch = epoch
        self._now_ms = now_ms
        self._elsewhere = elsewhere
        self._crashed: dict[int, tuple[int, bool]] = {}
        """By job that waits again: how many attempts it had, and whether the last one crashed."""
        self._led = 0
        self._looked_ms = self._told_ms = 0
        self._before: dict[Waiting, int] = {}
        self._sums: dict[tuple[int, Waiting], int] = {}
        """By hour and by what waits: jobs times milliseconds, twice."""
        self._rounds = Rounds("yard-waits", self._round)

    def start(self) -> None:
        """Begin to look."""
        self._rounds.start(LOOK_S)

    def close(self) -> None:
        """Tell what was seen, and end."""
        self._rounds.close()
        self._safely(lambda: self._tell_all(self._now_ms()))

    def _round(self) -> float:
        began_s = time.thread_time()
        self._safely(lambda: self.look(self._now_ms()))
        return max(LOOK_S, REST * (time.thread_time() - began_s))

    def _safely(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Fenced:
            self._led = 0
        except StoreError as error:
            # What was seen is told when the store can take it again.
            _log.warning("what jobs wait for was not told: %s", error)

    # -- looking -------------------------------------------------------------------------------------------------

    def look(self, now_ms: int) -> None:
        """Add up what has been waited for since the last look, and tell it if it is time."""
        epoch, replica = self._epoch(), self._replica
        if epoch is None:
            self._led = 0
            return
        with replica.lock:
            state = replica.state
            # Mostly nothing waits.
            waits = state.queue.count or state.deferred
            look = Look(state, replica.policy.place, replica.judged.by_id()) if waits else None
        seen = {} if look is None else look.counted(self._has_crashed, self._elsewhere)
        if self._led != epoch:
            self._sums, self._crashed = {}, {}
            self._begin(look, now_ms)
            self._led = epoch
        else:
            span_ms = now_ms - self._looked_ms
            for counted in (self._before, seen):
                for key, jobs in counted.items():
                    self._add(key, jobs, self._looked_ms, self._looked_ms + span_ms)
        self._before, self._looked_ms = seen, now_ms
        if now_ms - self._told_ms >= TELL_MS or now_ms // HOUR_MS != self._told_ms // HOUR_MS:
            self._tell_all(now_ms)

    def _add(self, key: Waiting, jobs: int, from_ms: int, until_ms: int) -> None:
        """Half of these jobs waited in this span."""
        while from_ms < until_ms:
            hour_ms = from_ms // HOUR_MS * HOUR_MS
            end_ms = min(until_ms, hour_ms + HOUR_MS)
            at = (hour_ms, key)
            self._sums[at] = self._sums.get(at, 0) + jobs * (end_ms - from_ms)
            from_ms = end_ms

    def _begin(self, look: Look | None, now_ms: int) -> None:
        """Jobs that wait have waited since the last event, and nobody looked."""
        told = self._replica.store.read_back([WaitsSeen.__name__], None, 1)
        last_ms = max([event.until_ms for _seq, event in told if isinstance(event, WaitsSeen)], default=0)
        last_ms = max(last_ms, now_ms - BACK_MS)
        self._told_ms = min(now_ms, last_ms)
        if look is None:
            return
        for record in look.records():
            # Since when a job waits again, its record does not say.
            if not record.attempt:
                from_ms = max(last_ms, record.job.submitted_ms)
                self._add(look.key(record, WaitCause.UNKNOWN), 2, from_ms, now_ms)

    def _has_crashed(self, record: JobRecord) -> bool:
        known = self._crashed.get(record.id)
        if known is None or known[0] != record.attempt:
            rows = self._replica.store.tries(record.id, record.attempt)
            known = (record.attempt, bool(rows) and rows[-1].outcome in CRASHES)
            self._crashed[record.id] = known
        return known[1]

    # -- telling -------------------------------------------------------------------------------------------------

    def _tell_all(self, now_ms: int) -> None:
        epoch = self._epoch()
        if epoch is None or self._led != epoch:
            return
        by_hour: dict[int, list[WaitLine]] = {}
        for (hour_ms, key), twice in sorted(self._sums.items()):
            line = WaitLine(*key, twice * key.gpu_milli // (2 * MILLI), twice // 2)
            if line.job_ms:
                by_hour.setdefault(hour_ms, []).append(line)
        spans = [
            (max(hour_ms, self._told_ms), min(hour_ms + HOUR_MS, now_ms), lines[first : first + LINES_MAX])
            for hour_ms, lines in by_hour.items()
            for first in range(0, len(lines), LINES_MAX)
        ]

        def make(draft: Draft) -> None:
            at_ms = max(now_ms, draft.state.now_ms)
            for from_ms, until_ms, lines in spans:
                draft.add(WaitsSeen(at_ms, min(from_ms, until_ms), until_ms, tuple(lines)))

        if spans:
            self._replica.commit(epoch, make)
        self._sums, self._told_ms = {}, now_ms
        # Jobs that wait no longer are forgotten, and looked up again should they come back.
        self._crashed = {}
