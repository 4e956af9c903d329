"""The duty `waits`: what jobs wait for enters the log.

The leader looks every second or so, and tells of every five minutes of the clock. Reasons are values of a pass and no
events, so what is not told here is known to nobody later. Between two looks half of the time counts as the one before
and half as the one after. A leader that begins tells of the time since the last event, in which nobody looked, as that.
"""

import time
from collections.abc import Callable

from gpuyard.control.duties.duty import Duty, Turn
from gpuyard.control.projections.waits import PART_MS
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.core.explain.causes import Elsewhere, Look, Waiting
from gpuyard.core.jobs.records import JobRecord
from gpuyard.model import Outcome, WaitCause, WaitLine, WaitsSeen
from gpuyard.model.units import DAY_MS, HOUR_MS, MILLI

LINES_MAX = 500
"""Lines of one event."""
BACK_MS = 30 * DAY_MS
"""How far back a leader that begins tells of time in which nobody looked."""
LOOK_S = 1.0
REST = 100
"""A look that took long is followed by a rest of so many times as long."""
CRASHES = frozenset({Outcome.FAILED.value, Outcome.NODE_FAIL.value, Outcome.OUT_OF_MEMORY.value})
"""Ends of attempts after which a job that waits again waits for that."""


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
        self._skipped_ms = 0
        """By how much the clock had been set ahead at the last look."""
        self._before: dict[Waiting, int] = {}
        self._sums: dict[tuple[int, int, Waiting], int] = {}
        """By when a stretch of time begins, how long it is, and what waits: jobs times milliseconds, twice."""

    def close(self) -> None:
        """Tell what was seen."""
        now_ms = self._now_ms()
        self._tell(now_ms, now_ms)

    def round(self) -> float:
        """One look; the pause until the next one. What could not be told is told when the store can take it again."""
        began_s = time.thread_time()
        self.look(self._now_ms())
        return max(LOOK_S, REST * (time.thread_time() - began_s))

    def let_go(self) -> None:
        """Another server leads: this one begins anew when it leads again."""
        self._led = 0

    # -- looking -------------------------------------------------------------------------------------------------

    def look(self, now_ms: int) -> None:
        """Add up what has been waited for since the last look, and tell it if it is time."""
        epoch, replica = self._epoch(), self._replica
        if epoch is None:
            self.let_go()
            return
        with replica.lock:
            state = replica.state
            # Mostly nothing waits.
            waits = state.queue.count or state.deferred
            look = Look(state, replica.policy.place, replica.judged.by_id()) if waits else None
            before_ms, self._skipped_ms = self._skipped_ms, state.skipped_ms
            # The clock may have been set since the time was asked for.
            now_ms = max(now_ms, state.now_ms)
        seen = {} if look is None else look.counted(self._has_crashed, self._elsewhere)
        if self._led != epoch:
            self._sums, self._crashed = {}, {}
            self._begin(look, now_ms)
            self._led = epoch
        else:
            # Nobody waited in a time that never was.
            self._looked_ms += max(0, self._skipped_ms - before_ms)
            span_ms = now_ms - self._looked_ms
            for counted in (self._before, seen):
                for key, jobs in counted.items():
                    self._add(key, jobs, self._looked_ms, self._looked_ms + span_ms, PART_MS)
        self._before, self._looked_ms = seen, now_ms
        over_ms = now_ms // PART_MS * PART_MS
        if self._told_ms < over_ms:
            self._tell(over_ms, now_ms)

    def _add(self, key: Waiting, jobs: int, from_ms: int, until_ms: int, stretch_ms: int) -> None:
        """Half of these jobs waited in this span, which is told of in stretches of such a length."""
        while from_ms < until_ms:
            begin_ms = from_ms // stretch_ms * stretch_ms
            end_ms = min(until_ms, begin_ms + stretch_ms)
            at = (begin_ms, stretch_ms, key)
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
                self._add(look.key(record, WaitCause.UNKNOWN), 2, from_ms, now_ms, HOUR_MS)

    def _has_crashed(self, record: JobRecord) -> bool:
        known = self._crashed.get(record.id)
        if known is None or known[0] != record.attempt:
            rows = self._replica.store.tries.of_job(record.id, record.attempt)
            known = (record.attempt, bool(rows) and rows[-1].outcome in CRASHES)
            self._crashed[record.id] = known
        return known[1]

    # -- telling -------------------------------------------------------------------------------------------------

    def _tell(self, until_ms: int, now_ms: int) -> None:
        """Tell of the stretches that began before a time."""
        epoch = self._epoch()
        if epoch is None or self._led != epoch:
            return
        by_stretch: dict[tuple[int, int], list[WaitLine]] = {}
        for (begin_ms, stretch_ms, key), twice in sorted(self._sums.items()):
            gpu_ms, job_ms = twice * key.gpu_milli // (2 * MILLI), twice // 2
            line = WaitLine(
                key.tenant, key.pool, key.gpu_milli, key.cause, gpu_ms, job_ms, key.user, key.name
            )
            if line.job_ms and begin_ms < until_ms:
                by_stretch.setdefault((begin_ms, stretch_ms), []).append(line)
        spans = [
            (
                max(begin_ms, self._told_ms),
                min(begin_ms + stretch_ms, now_ms),
                lines[first : first + LINES_MAX],
            )
            for (begin_ms, stretch_ms), lines in by_stretch.items()
            for first in range(0, len(lines), LINES_MAX)
        ]

        def make(draft: Draft) -> None:
            at_ms = max(now_ms, draft.state.now_ms)
            for from_ms, to_ms, lines in spans:
                draft.add(WaitsSeen(at_ms, min(from_ms, to_ms), to_ms, tuple(lines)))

        if spans:
            self._replica.commit(epoch, make)
        self._sums = {at: twice for at, twice in self._sums.items() if at[0] >= until_ms}
        self._told_ms = until_ms
        # Jobs that wait no longer are forgotten, and looked up again should they come back.
        self._crashed = {}


def duty(
    replica: Replica,
    epoch: Callable[[], int | None],
    now_ms: Callable[[], int],
    elsewhere: Elsewhere,
) -> Duty:
    """Of the leader, which tells at its end what it has seen. `elsewhere`: why a job of an observed cluster waits."""
    meter = WaitMeter(replica, epoch, now_ms, elsewhere)

    def look(_turn: Turn) -> float:
        return meter.round()

    return Duty(
        "waits",
        look,
        every_s=LOOK_S,
        first_s=LOOK_S,
        leader=True,
        elsewhere=meter.let_go,
        undone="what jobs wait for was not told",
        close=meter.close,
    )
