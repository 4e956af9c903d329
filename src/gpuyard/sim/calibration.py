"""How good past estimates were, and how far to stretch new ones so that nine jobs of ten start in time.

A run forward knows chance but not its own mistakes: jobs of one kind run long together, and users submit in waves. So
each estimate is compared with what happened, and the next ones are stretched by what would have been right for the last
ones (conformal prediction). Only what is known by then counts: jobs that have started, and jobs that still wait
although they should have started.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from gpuyard.model.units import MINUTE_MS
from gpuyard.sim.forecast import find_quantile

ONE = 1000
"""A stretch of 1: estimates stand as they are."""

SCORES_MAX = 100
"""Only the last scores count, since habits change."""

SCORES_MIN = 30
"""With fewer scores, the first stretch is used."""

FIRST: Mapping[int, int] = {50: 1000, 90: 1100}
"""The first stretch: what was right on one recorded week (docs/benchmarks.md)."""

LEAST: Mapping[int, int] = {50: 500, 90: 1100}
"""The least stretch. The median may be off either way; a promise that held is no reason to promise more."""

FLOOR_MS = MINUTE_MS
"""The least wait that counts: for a job that should start at once, a second late is not infinitely late."""

STRETCH_MAX = 20 * ONE


class GivenEstimate(NamedTuple):
    """An estimate that was given, before it was stretched."""

    at_ms: int
    waits_ms: Mapping[int, int]
    """By percent."""


class Track:
    """Estimates that were given, and the scores of those that are settled."""

    def __init__(self) -> None:
        self._open: dict[int, GivenEstimate] = {}
        self._scores: dict[int, deque[int]] = {percent: deque(maxlen=SCORES_MAX) for percent in FIRST}

    @property
    def open(self) -> tuple[int, ...]:
        """Jobs that have an estimate and have not started yet."""
        return tuple(self._open)

    @property
    def count(self) -> int:
        """How many estimates were compared with what happened."""
        return min(len(scores) for scores in self._scores.values())

    def give(self, job_id: int, given: GivenEstimate) -> None:
        """Note an estimate. Only the first of a job counts, so that frequent questions about it do not weigh more."""
        self._open.setdefault(job_id, given)
        while len(self._open) > 10 * SCORES_MAX:
            del self._open[next(iter(self._open))]

    def started(self, job_id: int, at_ms: int) -> None:
        """A job has started."""
        given = self._open.pop(job_id, None)
        if given is not None:
            for percent, scores in self._scores.items():
                scores.append(_score(at_ms - given.at_ms, given.waits_ms[percent]))

    def gone(self, job_id: int) -> None:
        """A job ended without a start: nothing is learned from it."""
        self._open.pop(job_id, None)

    def stretch(self, percent: int, now_ms: int) -> int:
        """The factor for a wait, in thousandths."""
        first = FIRST[percent]
        scores = list(self._scores[percent])
        # A job that waits longer than estimated is a miss already, by at least this much.
        for given in self._open.values():
            score = _score(now_ms - given.at_ms, given.waits_ms[percent])
            if score > first:
                scores.append(score)
        if len(scores) < SCORES_MIN:
            return first
        found = find_quantile(sorted(scores), percent, len(scores))
        return first if found is None else max(LEAST[percent], min(found, STRETCH_MAX))

    def stretched(self, percent: int, wait_ms: int, now_ms: int) -> int:
        """A wait, stretched."""
        if wait_ms <= 0:
            return wait_ms
        return max(0, (wait_ms + FLOOR_MS) * self.stretch(percent, now_ms) // ONE - FLOOR_MS)


def _score(wait_ms: int, told_ms: int) -> int:
    return (wait_ms + FLOOR_MS) * ONE // (told_ms + FLOOR_MS)
