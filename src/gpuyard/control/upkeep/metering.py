"""Measured use enters the log: for each attempt and clock hour, and for the rest when it has ended.

Of an hour that is not over some is told before, every few minutes, as far as the log has room for it.

Only the leader tells. What was told is in the log and nowhere else: a leader reads it there when it is elected, and
what it tells after that is fenced by its epoch. So no hour is told twice, whichever process dies, and when. It tells of
samples that are on disk. Each attempt that was seen is owed its end: a row beside the series has what is needed for it,
so that an attempt which ends while the yard is down gets its curves and its last event at the next start.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby

from gpuyard.control.replica.labels import node_key, parse_attempt_key
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.control.upkeep.measured_use import SIGNALS, Hold, Told, Use, find_untold, join_spans
from gpuyard.core.jobs.records import JobRecord
from gpuyard.ledger.nodes import count_parts
from gpuyard.model import AttemptMeasured
from gpuyard.model.units import HOUR_MS, MILLI, MINUTE_MS
from gpuyard.store import Fenced, StoreError
from gpuyard.telemetry.samples import LATE_MS
from gpuyard.telemetry.series import RAW, SETTLE_MS, Owed, Series

WORK_S = 0.2
"""CPU time for this in one round: what is due beyond it waits for the next."""
EARLY_MS = 5 * MINUTE_MS
"""How often something is told of an hour that is not over."""
EARLY_PER_H = 600
"""How many events an hour that may come to, for all attempts together: beyond, each is told of less often."""
PIECE = 64
"""Attempts in one transaction."""
MARGIN_MS = 5 * MINUTE_MS
"""Samples around an hour that tell what its first and last ones stand for."""
FORGET_MS = LATE_MS + 5 * MINUTE_MS
"""How long after its end an attempt may still be corrected: later samples are not taken."""
_KEPT_MS = RAW.kept_ms + 2 * HOUR_MS
"""How long it is remembered what was told of an hour: later there are no samples of it."""
_log = logging.getLogger(__name__)


class Meter:
    """What a server knows of attempts that are owed events. Called from one thread."""

    def __init__(
        self,
        replica: Replica,
        epoch: Callable[[], int | None],
        early_per_h: int = EARLY_PER_H,
        log_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`epoch`: of this process while it leads. `early_per_h`: events about hours that are not over; 0: none.
        `log_ms`: the time of the log; left out, that of its last event.
        """
        self._early_per_h = early_per_h
        self._log_ms = log_ms
        self._replica = replica
        self._epoch = epoch
        self._led = 0
        """The epoch in which the log was read."""
        self._told: dict[tuple[int, int], dict[int, Told]] = {}
        """By job and attempt, and by hour."""
        self._next: dict[str, int] = {}
        """The first hour of each attempt that was not looked at."""
        self._early: dict[str, int] = {}
        """Up to when each attempt was looked at in an hour that was not over."""
        self._found_over: dict[str, int] = {}
        """When this process first saw that an attempt has ended."""
        self._late: dict[str, set[int]] = {}
        """Hours of nodes of which samples came late, and that are to be looked at again."""
        self.ready = False
        """Whether all that was due when this process began to lead is told."""

    def round(self, series: Series, now_ms: int, seen: Iterable[str]) -> None:
        """Note the attempts that are seen, keep the curves of those that ended, and tell what is due."""
        epoch = self._epoch()
        try:
            self._note(series, seen)
            self._end(series, now_ms)
            if epoch is not None:
                self._tell(series, epoch, now_ms)
            else:
                self._led = 0
        except Fenced:
            self._led = 0
        except StoreError as error:
            # What is owed is told when the store can take it again.
            _log.warning("measured use was not told: %s", error)
        for owed in [each for each in series.owed.values() if each.over_ms]:
            found_ms = self._found_over.setdefault(owed.attempt, now_ms)
            if epoch is not None and self._next.get(owed.attempt, 0) >= owed.over_ms:
                found_ms = owed.over_ms
            # A process that does not lead has nothing to tell, and may lead before it is too late.
            if now_ms > found_ms + FORGET_MS:
                series.settle(owed.attempt)
                for known in (self._next, self._found_over, self._early):
                    known.pop(owed.attempt, None)
                self._told.pop((owed.job_id, owed.number), None)

    # -- attempts ------------------------------------------------------------------------------------------------

    def _note(self, series: Series, seen: Iterable[str]) -> None:
        new = [key for key in seen if key not in series.owed]
        if not new:
            return
        replica = self._replica
        with replica.lock:
            for key in new:
                known = parse_attempt_key(replica.store.yard, key)
                record = replica.state.running.get(known[0]) if known is not None else None
                if record is not None and known is not None and record.attempt == known[1]:
                    holds = json.dumps(self._holds(record), separators=(",", ":"))
                    series.owe(Owed(key, *known, record.started_ms, holds))

    def _holds(self, record: JobRecord) -> list[Hold]:
        found = []
        for grant in record.grants:
            node = self._replica.state.nodes.node[grant.node]
            parts = count_parts(node.gpu_model, node.gpus, grant)
            full = MILLI if grant.slices else min(MILLI, max(1, grant.milli))
            found.append(Hold(node_key(node.cluster, node.name), parts, full))
        return found

    def _end(self, series: Series, now_ms: int) -> None:
        """Find out which attempts have ended, and keep the curves that nobody has kept."""
        replica = self._replica
        with replica.lock:
            running = replica.state.running
            gone = [
                owed
                for owed in series.owed.values()
                if not owed.over_ms
                and ((record := running.get(owed.job_id)) is None or record.attempt != owed.number)
            ]
        for owed in gone:
            over_ms = self._over_ms(owed) or now_ms
            series.owe(owed._replace(over_ms=over_ms))
            if not series.kept(owed.attempt):
                nodes = [hold.node for hold in _holds(owed)]
                series.keep(owed.attempt, nodes, owed.started_ms, over_ms + 1, now_ms)

    def _over_ms(self, owed: Owed) -> int:
        """When an attempt ended; 0: nobody knows any more."""
        store = self._replica.store
        row = store.history.find(owed.job_id)
        if row is not None and row.attempts == owed.number:
            return row.ended_ms
        tries = [each for each in store.tries.of_job(owed.job_id, owed.number) if each.attempt == owed.number]
        return tries[-1].ended_ms if tries else 0

    # -- telling -------------------------------------------------------------------------------------------------

    def _tell(self, series: Series, epoch: int, now_ms: int) -> None:
        if self._led != epoch:
            self._read(series, now_ms)
            self._led = epoch
        due = self._due(series, now_ms)
        began_s = time.thread_time()
        for hour_ms, group in groupby(due, key=lambda each: each[0]):
            some = [owed for _hour, owed in group]
            for first in range(0, len(some), PIECE):
                if time.thread_time() > began_s + WORK_S:
                    return
                self._tell_some(series, epoch, hour_ms, some[first : first + PIECE], now_ms)
        self.ready = True
        self._late = {}

    def _due(self, series: Series, now_ms: int) -> list[tuple[int, Owed]]:
        """Hours of attempts that are over, or are to be looked at again; the oldest first, nodes together."""
        for node, late in series.take_late().items():
            self._late.setdefault(node, set()).update(late)
        found = []
        most = self._early_per_h
        early_ms = max(EARLY_MS, HOUR_MS * len(series.owed) // most) if most else HOUR_MS
        for owed in series.owed.values():
            begin_ms = self._next.get(owed.attempt)
            if begin_ms is None:
                oldest_ms = min(
                    [series.oldest_ms(hold.node) or now_ms for hold in _holds(owed)], default=now_ms
                )
                begin_ms = self._next[owed.attempt] = _hour(max(owed.started_ms, oldest_ms))
            settled_ms = now_ms - SETTLE_MS
            until_ms = owed.over_ms or now_ms
            hours = [
                hour_ms
                for hour_ms in range(begin_ms, until_ms, HOUR_MS)
                if (min(hour_ms + HOUR_MS, owed.over_ms) if owed.over_ms else hour_ms + HOUR_MS) <= settled_ms
            ]
            told_ms = max(begin_ms, owed.started_ms, self._early.get(owed.attempt, 0))
            if not owed.over_ms and not hours and settled_ms - told_ms >= early_ms:
                hours.append(begin_ms)
            if self._late:
                again = {hour_ms for hold in _holds(owed) for hour_ms in self._late.get(hold.node, ())}
                hours += [hour_ms for hour_ms in again if owed.started_ms - HOUR_MS < hour_ms < begin_ms]
            found += [(hour_ms, owed) for hour_ms in hours]
        return sorted(found, key=lambda each: (each[0], each[1].holds, each[1].attempt))

    def _tell_some(self, series: Series, epoch: int, hour_ms: int, some: list[Owed], now_ms: int) -> None:
        on: dict[str, dict[str, int]] = {}
        for owed in some:
            for hold in _holds(owed):
                on.setdefault(hold.node, {})[owed.attempt] = owed.started_ms
        # What is told has to be there after a crash: the same samples are counted again then.
        series.save(on)
        from_ms, to_ms = hour_ms - MARGIN_MS, hour_ms + HOUR_MS + MARGIN_MS
        seen = {
            node: series.of_attempts(node, started, SIGNALS, from_ms, to_ms) for node, started in on.items()
        }
        events, settled_ms = [], now_ms - SETTLE_MS
        for owed in some:
            holds = _holds(owed)
            from_ms = max(hour_ms, owed.started_ms)
            until_ms = min(hour_ms + HOUR_MS, owed.over_ms or settled_ms)
            told = self._told.setdefault((owed.job_id, owed.number), {}).setdefault(hour_ms, Told())
            signals = [seen[hold.node].get(owed.attempt, {}) for hold in holds]
            use = (
                find_untold(holds, signals, owed.started_ms, from_ms, until_ms, told)
                if from_ms < until_ms
                else None
            )
            if use is not None:
                events.append(_event(owed, from_ms, until_ms, use))
        self._commit(epoch, events)
        for event in events:
            self._note_told(event)
        for owed in some:
            self._early[owed.attempt] = settled_ms
            if owed.over_ms or hour_ms + HOUR_MS <= settled_ms:
                self._next[owed.attempt] = max(self._next[owed.attempt], hour_ms + HOUR_MS)
            hours = self._told[owed.job_id, owed.number]
            for old_ms in [each for each in hours if each < hour_ms - _KEPT_MS]:
                del hours[old_ms]

    def _commit(self, epoch: int, events: list[AttemptMeasured]) -> None:
        def make(draft: Draft) -> None:
            # Samples are of the machine's clock, which may be ahead of the log.
            at_ms = max(self._log_ms(), draft.state.now_ms)
            for event in events:
                draft.add(replace(event, at_ms=at_ms))

        if events:
            self._replica.commit(epoch, make)

    def _note_told(self, event: AttemptMeasured) -> None:
        hours = self._told.setdefault((event.job_id, event.attempt), {})
        told = hours.setdefault(_hour(event.from_ms), Told())
        told.until_ms = max(told.until_ms, event.until_ms)
        told.spans = join_spans([*told.spans, *event.spans])
        told.energy_mj += event.energy_mj or 0
        told.cpu_ms += event.cpu_ms or 0

    def _read(self, series: Series, now_ms: int) -> None:
        """What the log has told of the time of which there are samples: of earlier times nothing is told any more."""
        self._told, self._next = {}, {}
        store = self._replica.store
        since_ms = min(now_ms, series.oldest_ms() or now_ms) - HOUR_MS
        after_seq, before_seq = store.seq_at(since_ms), None
        while found := store.read_back([AttemptMeasured.__name__], before_seq, 1000, after_seq):
            for _seq, event in found:
                assert isinstance(event, AttemptMeasured)
                self._note_told(event)
            before_seq = found[-1][0]


def _holds(owed: Owed) -> list[Hold]:
    return [Hold(*each) for each in json.loads(owed.holds)]


def _hour(at_ms: int) -> int:
    return at_ms // HOUR_MS * HOUR_MS


def _event(owed: Owed, from_ms: int, until_ms: int, use: Use) -> AttemptMeasured:
    return AttemptMeasured(
        0,
        owed.job_id,
        owed.number,
        from_ms,
        until_ms,
        use.held_gpu_ms,
        use.measured_gpu_ms,
        use.used_gpu_ms,
        use.estimated_gpu_ms,
        use.spans,
        use.energy_mj,
        use.cpu_ms,
        use.gpu_memory_mib,
        use.memory_mib,
    )
