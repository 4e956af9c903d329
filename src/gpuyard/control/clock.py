"""Time: as text in answers; and that of the log, which is the machine's but passes as time does.

Events never go back in time. Where the machine's clock was set forward and back again, all that came after would bear
one and the same time, and every job would seem to take no time at all. So time goes on from the latest that was told,
by a clock that cannot be set, until the machine's own has caught up. Nor does it follow one that was set ahead before
the log says so (`ClockSet`): else all that runs would have run for a time that never was.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from gpuyard.quantities import span_words

_log = logging.getLogger(__name__)


def time_text(at_ms: int) -> str | None:
    """A time as RFC 3339 in UTC; None for one that has not come."""
    if not at_ms:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


PARTED_MS = 5_000
"""A clock that is set by more than this between two looks is told of."""
TOLD_MS = 3_600_000
"""How long it is told of."""


def clock_ms() -> int:
    """Now, by the clock of this machine."""
    return time.time_ns() // 1_000_000


def since_boot_ms() -> int:
    """Time since this machine was started, also while it slept: a clock that nobody can set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment by three clocks."""

    log_ms: int
    wall_ms: int
    elapsed_ms: int


class Steady:
    """A clock that goes on where another jumps. Any thread may ask."""

    def __init__(
        self,
        wall_ms: Callable[[], int],
        since_ms: int = 0,
        elapsed_ms: Callable[[], int] = since_boot_ms,
        before: Instant | None = None,
    ) -> None:
        """`since_ms` is the time of the last event. `before`: where a server before this one left off, in this boot."""
        self._wall_ms = wall_ms
        self._elapsed_ms = elapsed_ms
        self._lock = threading.Lock()
        self._at_ms = elapsed_ms()
        self._seen_ms = wall_ms()
        self._told_ms = max(since_ms, self._seen_ms)
        self.ahead_ms = 0
        """By how much the machine's clock is ahead because it was set, as of the last look; 0: it was not."""
        self._parted: tuple[int, str] | None = None
        """When the machine's clock was last set, by the clock that cannot be, and how it was told."""
        if before is not None:
            # As if this process had looked then.
            self._told_ms, self._seen_ms, self._at_ms = before.log_ms, before.wall_ms, before.elapsed_ms
            self._look(since_ms)

    @property
    def instant(self) -> Instant:
        """The last look: the time of the log, that of the machine and that since its boot."""
        with self._lock:
            return Instant(self._told_ms, self._seen_ms, self._at_ms)

    @property
    def note(self) -> str:
        """What people should know of the machine's clock; empty: nothing."""
        parted = self._parted
        return parted[1] if parted is not None and self._elapsed_ms() - parted[0] < TOLD_MS else ""

    def _compare(self, wall_ms: int, elapsed_ms: int) -> None:
        """Whether the machine's clock was set since the last look."""
        by_ms = (wall_ms - self._seen_ms) - (elapsed_ms - self._at_ms)
        self._seen_ms = wall_ms
        if abs(by_ms) > PARTED_MS:
            text = (
                f"the clock of this machine was set {span_words(abs(by_ms))} {'ahead' if by_ms > 0 else 'back'}: "
                "attempts are as long as they ran, by a clock that cannot be set; check its time service"
            )
            self._parted = (elapsed_ms, text)
            _log.warning("%s", text)

    def __call__(self) -> int:
        """Now."""
        return self._look(0)

    def go_on(self, at_ms: int) -> None:
        """The log has come to this time, and so does this clock, if it has not yet."""
        self._look(at_ms)

    def _look(self, least_ms: int) -> int:
        with self._lock:
            elapsed_ms, wall_ms = self._elapsed_ms(), self._wall_ms()
            reckoned_ms = max(least_ms, self._told_ms + max(0, elapsed_ms - self._at_ms))
            self._compare(wall_ms, elapsed_ms)
            self.ahead_ms = wall_ms - reckoned_ms if wall_ms - reckoned_ms > PARTED_MS else 0
            self._told_ms = reckoned_ms if self.ahead_ms else max(wall_ms, reckoned_ms)
            self._at_ms = elapsed_ms
            return self._told_ms
