"""What this process has written, counted as it is written: starts, waits, ends, preemptions. For `/metrics`.

Every event is written by one process, so the counts of several servers add up to the yard's. They begin at 0 with the
process, as counters of Prometheus may. Most events cost one look-up here.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuyard.core import State
from gpuyard.model import AttemptEnded, AttemptStarted, AttemptStopping, Event, Outcome, StopCause
from gpuyard.store import HistoryRow
from gpuyard.telemetry.exposition import labels_text


class Histogram:
    """Values counted by their size, as Prometheus has them. Filled by one thread, read by any."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` rise; values above the last one are counted too."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum: float = 0
        """Of all values."""

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


def histogram_lines(name: str, help: str, rows: Iterable[tuple[Mapping[str, str], Histogram]]) -> list[str]:
    """One metric with all its histograms, each under its labels; without any, nothing."""
    lines: list[str] = []
    for named, each in rows:
        counts, total = list(each.counts), 0
        for bound, count in zip((*each.bounds, None), counts, strict=True):
            total += count
            le = "+Inf" if bound is None else repr(float(bound))
            lines.append(f"{name}_bucket{labels_text(**named, le=le)} {total}")
        own = labels_text(**named) if named else ""
        lines += [f"{name}_sum{own} {float(each.sum)!r}", f"{name}_count{own} {total}"]
    return [f"# HELP {name} {help}", f"# TYPE {name} histogram", *lines] if lines else []


WAITS_S = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 72 * 3600)


class Tally:
    """Counts by the labels that they have in `/metrics`."""

    def __init__(self) -> None:
        self.started: Counter[str] = Counter()
        """Attempts, by class."""
        self.waits: dict[str, Histogram] = {}
        """How long jobs waited for their first start, in seconds, by class."""
        self.attempts = Counter({outcome.value.lower(): 0 for outcome in Outcome})
        """Attempts that ended, by outcome."""
        self.preempted = Counter({cause.value: 0 for cause in StopCause if cause.preempts})
        """Attempts that had to make room, by cause."""
        self.ended: Counter[tuple[str, str]] = Counter()
        """Jobs that ended, by tenant and state."""

    def note(self, state: State, events: Sequence[Event], ended: Iterable[HistoryRow]) -> None:
        """Count what was written just now: the events, and the rows of the jobs that they ended."""
        gone: dict[int, HistoryRow] = {}
        for row in ended:
            gone[row.id] = row
            self.ended[row.tenant, row.state.lower()] += 1
        for event in events:
            count = _COUNTED.get(type(event))
            if count is not None:
                count(self, state, event, gone)

    def _start(self, state: State, event: AttemptStarted, gone: dict[int, HistoryRow]) -> None:
        record, row = state.jobs.get(event.job_id), gone.get(event.job_id)
        if record is not None:
            klass, since_ms = record.klass.name, max(record.job.submitted_ms, record.job.begin_ms)
        elif row is not None:
            # Another scheduler's job, which ended before it was told of.
            klass, since_ms = row.klass, row.submitted_ms
        else:
            return
        self.started[klass] += 1
        if event.attempt == 1:
            waits = self.waits.get(klass)
            if waits is None:
                waits = self.waits[klass] = Histogram(WAITS_S)
            waits.add(max(0, event.at_ms - since_ms) / 1000)

    def _stop(self, _state: State, event: AttemptStopping, _gone: dict[int, HistoryRow]) -> None:
        if event.cause.preempts:
            self.preempted[event.cause.value] += 1

    def _end(self, _state: State, event: AttemptEnded, _gone: dict[int, HistoryRow]) -> None:
        self.attempts[event.outcome.value.lower()] += 1


_COUNTED: dict[type, Any] = {
    AttemptStarted: Tally._start,
    AttemptStopping: Tally._stop,
    AttemptEnded: Tally._end,
}
