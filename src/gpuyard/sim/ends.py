"""Ends to come, soonest first.

A calendar: an end goes into the list of its day, and a day is sorted when it comes. A heap would compare every end with
a dozen others, on its way in and on its way out; here most are compared only with those of their day.
"""

from bisect import bisect_left, insort
from heapq import heappop, heappush

from gpuyard.core.jobs.records import JobRecord

NEVER_MS = 1 << 62
"""Later than anything in a trace."""

End = tuple[int, int, int, JobRecord]
"""The time, job and attempt of an end. Ends at the same time are taken by job id."""


class Ends:
    """When attempts will end. A day is the time in which a few jobs arrive."""

    __slots__ = ("_at", "_day", "_day_ms", "_days", "_order", "_today", "next_ms")

    def __init__(self, day_ms: int) -> None:
        self._day_ms = max(1, day_ms)
        self._days: dict[int, list[End]] = {}
        """The days after today by number, unsorted."""
        self._order: list[int] = []
        """The numbers of these days, as a heap."""
        self._day = -1
        self._today: list[End] = []
        """Today's ends, the soonest first."""
        self._at = 0
        """How many of today's ends are over."""
        self.next_ms = NEVER_MS
        """When the soonest end is due; `NEVER_MS`: there is none."""

    def __bool__(self) -> bool:
        return self.next_ms < NEVER_MS

    def push(self, end: End) -> None:
        """Add an end."""
        at_ms = end[0]
        day = at_ms // self._day_ms
        if day <= self._day:
            insort(self._today, end, self._at)
        else:
            others = self._days.get(day)
            if others is not None:
                others.append(end)
            else:
                self._days[day] = [end]
                heappush(self._order, day)
        if at_ms < self.next_ms:
            self.next_ms = at_ms
            if self._at == len(self._today):
                self._turn()

    def take(self, until_ms: int) -> list[End]:
        """Today's ends that are due before then, soonest first. There is at least one: `next_ms` says so."""
        today, at = self._today, self._at
        if today[-1][0] < until_ms:
            self._turn()
            return today[at:] if at else today
        self._at = end = bisect_left(today, (until_ms,), at)
        self.next_ms = today[end][0]
        return today[at:end]

    def _turn(self) -> None:
        """Go to the next day with ends."""
        self._at = 0
        if self._order:
            self._day = heappop(self._order)
            self._today = self._days.pop(self._day)
            self._today.sort()
            self.next_ms = self._today[0][0]
        else:
            self._today = []
            self.next_ms = NEVER_MS
