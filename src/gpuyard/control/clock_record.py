"""How the time of the log stood to the clock that cannot be set, kept from one server to the next.

A clock that was set while no server ran looks like time that passed, unless the next server knows how much did: by the
clock of the machine since its boot, from the moment that is written here. After a boot, or on another machine, nobody
knows, and the machine's clock counts.

The record need not outlive the machine: it is written again only where the clocks have parted by more than a second.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpuyard.control.clock import Instant, Steady, since_boot_ms
from gpuyard.engines.machine import files, processes
from gpuyard.errors import error_text

_log = logging.getLogger(__name__)
SLACK_MS = 1_000


class ClockRecord:
    """One server's, in one file. Used by one thread at a time."""

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
