"""Time: as text in answers; that of the log, which is the machine's but never stands still and never goes back; and
rounds of work beside the loop.

Events never go back in time. Where the machine's clock was set forward and back again, all that came after would bear
one and the same time, and every job would seem to take no time at all. So time goes on from the latest that was told,
by a clock that cannot be set, until the machine's own has caught up.
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime


def time_text(at_ms: int) -> str | None:
    """A time as RFC 3339 in UTC; None for one that has not come."""
    if not at_ms:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Steady:
    """A clock that goes on where another jumps back. Any thread may ask."""

    def __init__(
        self,
        wall_ms: Callable[[], int],
        since_ms: int = 0,
        elapsed_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        """`since_ms` is the time of the last event."""
        self._wall_ms = wall_ms
        self._elapsed_ms = elapsed_ms
        self._lock = threading.Lock()
        self._told_ms = since_ms
        self._at_ms = elapsed_ms()

    def __call__(self) -> int:
        """Now."""
        with self._lock:
            elapsed_ms = self._elapsed_ms()
            reckoned_ms = self._told_ms + max(0, elapsed_ms - self._at_ms)
            self._told_ms, self._at_ms = max(self._wall_ms(), reckoned_ms), elapsed_ms
            return self._told_ms


class Rounds:
    """Calls a function again and again in a thread of its own, after the pause that the round before asked for."""

    def __init__(self, name: str, take: Callable[[], float]) -> None:
        """`take` is one round, and gives the seconds until the next one. What it raises ends the thread."""
        self._take = take
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._pause_s = 0.0

    def start(self, first_s: float) -> None:
        """Begin after this many seconds."""
        self._pause_s = first_s
        self._thread.start()

    def rest(self, pause_s: float) -> bool:
        """Pause within a round; whether it is time to break off."""
        return self._closing.wait(pause_s)

    def close(self, wait_s: float = 30.0) -> None:
        """Finish the round under way, wait for it at most this long, and begin no more."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=wait_s)

    def _run(self) -> None:
        while not self.rest(self._pause_s):
            self._pause_s = self._take()
