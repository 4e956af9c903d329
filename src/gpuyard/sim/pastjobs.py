"""What the past says about jobs: how long they run, and which ones come next.

Run times are kept as they were: no curve is fitted to them. A draw uses the jobs most similar to the one in question,
and if these are too few, ever broader groups. A job with a time limit is compared by the part of its limit that it
used, since users who ask for a day mostly know why.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

from gpuyard.model import JobSpec
from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS, NO_LIMIT_MS, SECOND_MS

PARTS = 10**9
"""A time limit in parts, so that what was used of it is an integer."""

ENOUGH = 20
"""How many jobs of a group that ran longer make a draw from it useful."""

BLOCK_MS = 4 * HOUR_MS
"""Arrivals come in stretches of this length, so that jobs submitted together stay together."""

DAYS_BACK = 7
"""How many days the stretches come from."""

_SPAN_MIN_MS = 10 * MINUTE_MS
"""A past shorter than this says nothing about how many jobs will come."""

ENOUGH_NAMED = 5
"""The same for jobs of one user and one name, which are mostly the same job again."""

LEVELS = (
    "this user's jobs of this name with as many GPUs and a like time limit",
    "this user's jobs with as many GPUs and a like time limit",
    "this user's jobs with a like time limit",
    "everyone's jobs with as many GPUs and a like time limit",
    "everyone's jobs with a like time limit",
    "all jobs",
    "no job that ran as long",
)


class PastJob(NamedTuple):
    """A job that was submitted."""

    submitted_ms: int
    spec: JobSpec
    gpu_milli: int
    limit_ms: int
    """At most `NO_LIMIT_MS`, which means none."""
    run_ms: int
    """How long it ran; -1: it has not ended yet, or ended without running."""


class RunTimes:
    """Run times by group."""

    def __init__(self, jobs: Iterable[PastJob]) -> None:
        self._groups: dict[tuple[object, ...], list[int]] = {}
        self.count = 0
        for job in jobs:
            if job.run_ms >= 0:
                self.count += 1
                used = _used(job.run_ms, job.limit_ms)
                keys = _keys(job.spec, job.gpu_milli, job.limit_ms)
                for key in keys[0 if job.spec.name else 1 : -1]:
                    self._groups.setdefault(key, []).append(used)
                self._groups.setdefault((), []).append(job.run_ms)
        for values in self._groups.values():
            values.sort()

    def level(self, spec: JobSpec, gpu_milli: int, limit_ms: int, ran_ms: int = 0) -> int:
        """Which of `LEVELS` a draw would come from."""
        return self._found(spec, gpu_milli, limit_ms, ran_ms)[0]

    def _found(
        self, spec: JobSpec, gpu_milli: int, limit_ms: int, ran_ms: int
    ) -> tuple[int, Sequence[int], int]:
        """The narrowest group with enough jobs that ran longer, and the index of the first of them."""
        used = _used(ran_ms, limit_ms)
        keys = _keys(spec, gpu_milli, limit_ms)
        last = len(keys) - 1
        for level, key in enumerate(keys):
            if level == 0 and not spec.name:
                continue
            values = self._groups.get(key, ())
            first = bisect_right(values, used if level < last else ran_ms)
            if len(values) - first >= (ENOUGH_NAMED if level == 0 else ENOUGH if level < last else 1):
                return level, values, first
        return len(keys), (), 0

    def draw(self, spec: JobSpec, gpu_milli: int, limit_ms: int, ran_ms: int, random: Random) -> int:
        """How long a job will have run in all, given that it has run for `ran_ms`."""
        level, values, first = self._found(spec, gpu_milli, limit_ms, ran_ms)
        if not values:
            # No job ever ran this long: assume its limit, or as long again.
            return limit_ms if limit_ms < NO_LIMIT_MS else 2 * ran_ms + HOUR_MS
        value = values[first + int(random.random() * (len(values) - first))]
        if level < len(LEVELS) - 2 and limit_ms < NO_LIMIT_MS:
            value = _of_limit(value, limit_ms)
        return max(ran_ms + 1, min(value, limit_ms))

    def middle(self, spec: JobSpec, gpu_milli: int, limit_ms: int) -> tuple[int, int]:
        """The expected run time of a new job, and the level that it comes from; (-1, level) if nothing is known."""
        level, values, _ = self._found(spec, gpu_milli, limit_ms, -1)
        if not values:
            return -1, level
        limited = level < len(LEVELS) - 2 and limit_ms < NO_LIMIT_MS
        runs = [min(_of_limit(value, limit_ms) if limited else value, limit_ms) for value in values]
        return sum(runs) // len(runs), level


def _used(run_ms: int, limit_ms: int) -> int:
    return (run_ms * PARTS + limit_ms // 2) // limit_ms if limit_ms < NO_LIMIT_MS else run_ms


def _of_limit(parts: int, limit_ms: int) -> int:
    return (parts * limit_ms + PARTS // 2) // PARTS


def _keys(spec: JobSpec, gpu_milli: int, limit_ms: int) -> tuple[tuple[object, ...], ...]:
    """The groups of a job, narrowest first. Limits and GPUs count as equal up to a factor of two."""
    limit = (limit_ms // SECOND_MS).bit_length() if limit_ms < NO_LIMIT_MS else 0
    gpus, submitter = gpu_milli.bit_length(), (spec.tenant, spec.user)
    return (
        (submitter, spec.name, gpus, limit),
        (submitter, gpus, limit),
        (submitter, limit),
        (gpus, limit),
        (limit,),
        (),
    )


class Arrivals:
    """Which jobs come next: stretches of the past again, from the same time of day."""

    def __init__(self, jobs: Iterable[PastJob], now_ms: int) -> None:
        self._jobs = sorted(
            [job for job in jobs if now_ms - (DAYS_BACK + 1) * DAY_MS <= job.submitted_ms < now_ms],
            key=lambda job: job.submitted_ms,
        )
        self._at = [job.submitted_ms for job in self._jobs]
        self._now_ms = now_ms

    def block(self, now_ms: int, number: int, random: Random) -> list[tuple[int, PastJob]]:
        """The jobs of one stretch ahead of now, with their arrival times."""
        if not self._at or self._now_ms - self._at[0] < _SPAN_MIN_MS:
            return []
        begin_ms = now_ms + number * BLOCK_MS
        span_ms = self._now_ms - self._at[0]
        days = min(DAYS_BACK, span_ms // DAY_MS)
        if days:
            ahead = number * BLOCK_MS // DAY_MS
            back_ms = (1 + ahead + int(random.random() * days)) * DAY_MS
            length_ms = BLOCK_MS
        else:
            # Less than a day is known: recent arrivals come again.
            length_ms = min(BLOCK_MS, span_ms)
            back_ms = begin_ms - (self._now_ms - length_ms)
        found = []
        done_ms = 0
        while done_ms < BLOCK_MS:
            first = bisect_left(self._at, begin_ms - back_ms)
            last = bisect_left(self._at, begin_ms - back_ms + min(length_ms, BLOCK_MS - done_ms))
            shift_ms = back_ms + done_ms
            found += [(self._at[row] + shift_ms, self._jobs[row]) for row in range(first, last)]
            done_ms += length_ms
        return found
