"""When one job breaks an MPS server, whoever shares it fails too: who is to blame, and who is to run again.

The driver tells all clients of a GPU of a fatal fault without saying whose it was; the daemon's logs tell when. Who
failed first by a clear margin is taken for the cause, and has failed. The others lost their GPU under them, as if their
node had failed, and run again. Where several failed at the same moment nobody can tell: each of them gets one more try.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from gpuyard.engines.local.mps import Daemon
from gpuyard.model import Outcome

LOGS = ("control.log", "server.log")
SETTLE_MS = 1_000
"""How long the others are waited for before the first one is judged."""
SAME_MS = 500
"""Ends that are no further apart came at the same moment."""
SLACK_MS = 2_000
"""How far the daemon's clock and ours may differ."""
WINDOW_MS = 30_000
"""How long after a fault an end is put down to it."""
_TAIL_BYTES = 256 * 1024

_FAULT = re.compile(
    rb"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d{3}) [^\]]*\].*"
    rb"(?:fatal exception|exited with status [1-9]|\bFAULT\b)",
    re.MULTILINE,
)


class Faults:
    """Remembers who failed in which fault."""

    def __init__(self, daemon: Callable[[str, int], Daemon], now_ms: Callable[[], int]) -> None:
        self._daemon = daemon
        self._now_ms = now_ms
        self._failed: dict[tuple[str, int], dict[str, int]] = {}
        """By GPU and user: when each attempt failed in a fault."""

    def judged(self, key: str, plan: dict[str, Any], end: dict[str, Any]) -> dict[str, Any] | None:
        """The end of an attempt as it is to be reported; None: it is too early to say."""
        shares = plan.get("held", {}).get("mps", ())
        if end["outcome"] != Outcome.FAILED.value or not shares:
            return end
        gpu, uid = shares[0]
        ended_ms: int = end["ended_ms"]
        at_ms = self._fault_ms(gpu, uid, end["started_ms"], ended_ms)
        if at_ms is None:
            return end
        row = self._failed.setdefault((gpu, uid), {})
        row[key] = ended_ms
        if self._now_ms() < ended_ms + SETTLE_MS:
            return None
        same = {other: ms for other, ms in row.items() if at_ms - SLACK_MS <= ms <= at_ms + WINDOW_MS}
        first_ms = min(same.values())
        suspects = [other for other, ms in same.items() if ms <= first_ms + SAME_MS]
        if key in suspects and (len(suspects) == 1 or plan.get("append")):
            return end
        why = f"a fault of another job broke the MPS server that they shared ({end['why']})"
        return end | {"outcome": Outcome.NODE_FAIL.value, "why": why}

    def _fault_ms(self, gpu: str, uid: int, started_ms: int, ended_ms: int) -> int | None:
        """When the last fault was to which an end can be put down; None: there was none."""
        able = [
            ms
            for ms in _times(self._daemon(gpu, uid).log)
            if started_ms - SLACK_MS <= ms <= ended_ms + SLACK_MS and ended_ms - ms <= WINDOW_MS
        ]
        return max(able, default=None)


def _times(folder: str) -> Iterator[int]:
    """When faults were logged, by this machine's clock."""
    for name in LOGS:
        try:
            with open(os.path.join(folder, name), "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - _TAIL_BYTES))
                text = file.read(_TAIL_BYTES)
        except OSError:
            # No daemon has been here, or its user has taken the log away.
            continue
        for second, milli in _FAULT.findall(text):
            # The log is its user's to write: what is no time is no fault.
            with suppress(ValueError, OverflowError):
                when = time.strptime(second.decode(), "%Y-%m-%d %H:%M:%S")
                yield int(time.mktime(when)) * 1000 + int(milli)
