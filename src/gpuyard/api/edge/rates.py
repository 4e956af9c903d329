"""How much one user may ask for: a bucket of requests that fills with time, and a number under way at once.

Each process counts for itself. Root and the owner of the server, over its socket, are not held back.
"""

import time
from collections.abc import Callable

from gpuyard.api.messages.problems import Problem
from gpuyard.config.values import Limits

_PEOPLE_MAX = 10_000
LOGINS_PER_S = 1.0
LOGINS_BURST = 20.0
"""Attempts to log in from one address: each may have keys fetched from the identity provider."""


class Buckets:
    """One bucket for each name; a request takes one token from it."""

    def __init__(self, per_s: float, most: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._most = most
        self._now_s = now_s
        self._left: dict[str, tuple[float, float]] = {}

    def wait_s(self, name: str) -> float:
        """Take one; 0: it was there, else how long until one is."""
        now_s = self._now_s()
        left, at_s = self._left.get(name, (self._most, now_s))
        left = min(self._most, left + (now_s - at_s) * self._per_s)
        if left < 1:
            self._left[name] = (left, now_s)
            return (1 - left) / self._per_s
        if len(self._left) >= _PEOPLE_MAX:
            # Full buckets are as good as none.
            self._left = {
                key: (n, t)
                for key, (n, t) in self._left.items()
                if n + (now_s - t) * self._per_s < self._most
            }
        self._left[name] = (left - 1, now_s)
        return 0.0


class Rates:
    """The limits of one server."""

    def __init__(self, limits: Limits, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._logins = Buckets(LOGINS_PER_S, LOGINS_BURST, now_s)
        self._under_way: dict[str, int] = {}
        self.renew(limits)

    def renew(self, limits: Limits) -> None:
        """Other limits from now on; all users begin with full buckets."""
        self._at_once_max = limits.at_once
        self._writes = Buckets(limits.submits_per_s, limits.submits_per_s * limits.burst_s, self._now_s)
        self._reads = Buckets(limits.reads_per_s, limits.reads_per_s * limits.burst_s, self._now_s)

    def enter(self, name: str, method: str) -> Problem | None:
        """Count a request that begins, or say why it may not. A request that got in has to `leave`."""
        if self._under_way.get(name, 0) >= self._at_once_max:
            return _too_many(f"{name} has {self._at_once_max} requests under way already", 1.0)
        wait_s = (self._reads if method in ("GET", "HEAD") else self._writes).wait_s(name)
        if wait_s:
            return _too_many(f"{name} asks too often", wait_s)
        self._under_way[name] = self._under_way.get(name, 0) + 1
        return None

    def leave(self, name: str) -> None:
        """It is answered."""
        left = self._under_way[name] - 1
        if left:
            self._under_way[name] = left
        else:
            del self._under_way[name]

    def login(self, address: str) -> Problem | None:
        """Count an attempt to log in."""
        wait_s = self._logins.wait_s(address)
        return _too_many("too many logins from this address", wait_s) if wait_s else None


def _too_many(text: str, wait_s: float) -> Problem:
    whole_s = max(1, int(wait_s + 0.999))
    return Problem(
        429,
        text,
        f"Ask again in {whole_s} s. `auth.limits` in yard.yaml says how much one user may ask for.",
        headers={"Retry-After": str(whole_s)},
    )
