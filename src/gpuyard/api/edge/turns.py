"""Turns: requests that take long are served one at a time for each person, and few at a time in all.

A user with too many of them waiting gets an answer at once: try again later.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpuyard.api.messages.problems import Problem
from gpuyard.control.access.people import Person

WAITING_MAX = 8
"""Requests of one kind that one person may have waiting."""
ALL_WAITING_MAX = 64
"""The same for all users together."""


class Turns:
    """The turns of one kind of request. Used by the event loop alone."""

    def __init__(self, what: str, at_once: int, retry_s: int = 2) -> None:
        self._what = what
        self._at_once = at_once
        self._retry_s = retry_s
        self._free = asyncio.Semaphore(at_once)
        self._locks: dict[str, asyncio.Lock] = {}
        self._there: Counter[str] = Counter()

    @asynccontextmanager
    async def of(self, person: Person) -> AsyncIterator[None]:
        """Wait for a turn; it lasts as long as the context. Raises a 429 where too many wait."""
        name = person.key
        if self._there[name] > WAITING_MAX:
            raise self._too_many(f"{person.name} has {WAITING_MAX} {self._what} waiting already")
        if self._there.total() >= ALL_WAITING_MAX + self._at_once:
            raise self._too_many(f"{ALL_WAITING_MAX} {self._what} wait already")
        self._there[name] += 1
        lock = self._locks.setdefault(name, asyncio.Lock())
        try:
            async with lock, self._free:
                yield
        finally:
            self._there[name] -= 1
            if not self._there[name]:
                del self._there[name], self._locks[name]

    def _too_many(self, text: str) -> Problem:
        return Problem(
            429,
            text,
            f"Each takes a while, and one at a time is served for each user. Ask again in {self._retry_s} s.",
            headers={"Retry-After": str(self._retry_s)},
        )
