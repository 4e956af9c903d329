"""How long to wait for what should happen at once: a limit that only says "never", also on a busy machine.

A test waits for a condition and ends when it holds; the limit is for the case that it never does. On a machine with
twice as much to do as it has cores everything takes twice as long, so limits grow with its load.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_LOOK_S = 0.02

Found = TypeVar("Found")


def patient(s: float, running: Callable[[], int] | None = None) -> float:
    """So many seconds of a machine that has nothing else to do, on this machine now."""
    cores = len(os.sched_getaffinity(0))
    return s * max(1.0, os.getloadavg()[0] / cores, (running or _running)() / cores)


def _running() -> int:
    """How many want a core in this moment: the mean of a minute knows nothing yet of what has just begun."""
    try:
        return int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[0])
    except OSError:
        return 0


class Patience:
    """A limit that grows when the machine gets busy after the wait has begun."""

    def __init__(self, s: float, patient: Callable[[float], float] = patient) -> None:
        self._s = s
        self._patient = patient
        self._began_s = time.monotonic()
        self._limit_s = patient(s)

    def left_s(self) -> float:
        """How long is still to be waited; 0 when it is over."""
        self._limit_s = max(self._limit_s, self._patient(self._s))
        return max(0.0, self._began_s + self._limit_s - time.monotonic())

    def __bool__(self) -> bool:
        """Whether to wait on."""
        return self.left_s() > 0


def until(
    what: Callable[[], Found],
    s: float = 60.0,
    say: Callable[[], object] = lambda: "it did not come true in time",
) -> Found:
    """Wait until something holds; what it came to. `say` is asked for words when it never does."""
    patience = Patience(s)
    while True:
        began_s = time.monotonic()
        if found := what():
            return found
        assert patience, say()
        # A look that is costly is not taken all the time: it would keep from its work what is waited for.
        time.sleep(max(_LOOK_S, time.monotonic() - began_s))
