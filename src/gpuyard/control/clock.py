"""Time: as text in answers; and that of the log, which is the machine's but passes as time does.

Events never go back in time. Where the machine's clock was set forward and back again, all that came after would bear
one and the same time, and every job would seem to take no time at all. So time goes on from the latest that was told,
by a clock that cannot be set, until the machine's own has caught up. Nor does it follow one that was set ahead before
the log says so (`ClockSet`): else all that runs would have run for a time that never was.

How the time of the log stood to the clock that cannot be set is kept from one server to the next (`ClockRecord`).
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuyard.engines.machine import files, processes
from gpuyard.errors import error_text
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
SLACK_MS = 1_000
"""How far the clocks may have parted before the record of how they stood is written again."""


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


class ClockRecord:
    """How the clocks stood, for the next server. One server's, in one file; used by one thread at a time.

    A clock that was set while no server ran looks like time that passed, unless the next server knows how much did: by
    the clock of the machine since its boot, from the moment that is written here. After a boot, or on another machine,
    nobody knows, and the machine's clock counts. The record need not outlive the machine: it is written again only
    where the clocks have parted by more than a second.
    """

    def __init__(self, path: Path, yard: str, boot_id: Callable[[], str] = processes.boot_id) -> None:
        """`yard` is the name in the store: another yard's log has another time."""
        self._path = str(path)
        self._of = {"yard": yard, "boot": boot_id()}
        self._kept: tuple[int, ...] = ()
        self._unable = False

    def found(self, skipped_ms: int, elapsed_ms: Callable[[], int] = since_boot_ms) -> Instant | None:
        """Where the clocks stood when it was written, by a log that left out so much; None: it is not known."""
        said: dict[str, Any] = {}
        with suppress(OSError):
            said = files.read(self._path) or {}
        if {name: said.get(name) for name in self._of} != self._of:
            return None
        names = ("log_ms", "wall_ms", "elapsed_ms", "skipped_ms")
        numbers: list[int] = [said[name] for name in names if type(said.get(name)) is int]
        if len(numbers) < len(names):
            return None
        log_ms, wall_ms, at_ms, left_out_ms = numbers
        if at_ms > elapsed_ms():
            return None
        # Another server may have written since that a clock was set.
        return Instant(log_ms + skipped_ms - left_out_ms, wall_ms, at_ms)

    def keep(self, clock: Steady, skipped_ms: int) -> None:
        """Write where the clocks stand, if that is new."""
        if clock.ahead_ms:
            # The log has not said so yet; a server that comes after this one is to find out.
            return
        now = clock.instant
        stand = (now.log_ms - now.elapsed_ms, now.wall_ms - now.elapsed_ms, skipped_ms)
        if self._kept and all([abs(a - b) < SLACK_MS for a, b in zip(stand, self._kept, strict=True)]):
            return
        said = {"log_ms": now.log_ms, "wall_ms": now.wall_ms, "elapsed_ms": now.elapsed_ms}
        try:
            files.overwrite(self._path, {**self._of, **said, "skipped_ms": skipped_ms})
        except OSError as error:
            if not self._unable:
                _log.info("how the clocks stand is not kept for the next start: %s", error_text(error))
            self._unable = True
            return
        self._kept, self._unable = stand, False
