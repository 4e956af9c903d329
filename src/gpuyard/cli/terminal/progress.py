"""Shows on a terminal's standard error what a long run is doing: how far, how fast, how long still.

The bar is drawn from within the run, at most four times a second and without a thread of its own, so that it
takes no time from what is being measured. In a pipe or a log file there is none.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import TracebackType

from gpuyard.cli.terminal.streams import style_text, terminal_width
from gpuyard.quantities import percent_text

REDRAW_S = 0.25

MARGIN = 3
"""Columns that the bar leaves free."""

_ERASE_LINE = "\r\x1b[2K"

JOBS_MIN = 5000
"""Shorter runs are over before a bar could be read."""


@contextmanager
def show_busy(what: str) -> Iterator[None]:
    """A line that stays while something takes its time. It does not move: that would take a thread."""
    if not _watched():
        yield
        return
    line = f"{what} …"[: terminal_width(sys.stderr) - 1]
    print(style_text(line, "dim", sys.stderr), end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(_ERASE_LINE, end="", file=sys.stderr, flush=True)


def _watched() -> bool:
    """Whether standard error is a terminal on which a line can be erased again."""
    return sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


class Bar:
    """Progress of one simulation after another."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._shown = jobs >= JOBS_MIN and _watched()
        self._name = ""
        self._began_s = self._drawn_s = 0.0

    def __enter__(self) -> "Bar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._name:
            print(_ERASE_LINE, end="", file=sys.stderr, flush=True)

    def begin(self, name: str) -> "Bar | None":
        """The next simulation starts. Returns the function that reports its progress; None: no terminal."""
        if not self._shown:
            return None
        self._name = name
        self._began_s = self._drawn_s = monotonic()
        self._draw(0, f"{self._jobs:,} jobs")
        return self

    def __call__(self, done: int, jobs: int) -> None:
        """`done` of `jobs` have ended."""
        now_s = monotonic()
        if now_s - self._drawn_s >= REDRAW_S:
            self._drawn_s = now_s
            self._draw(done, pace(done, jobs, now_s - self._began_s))

    def _draw(self, done: int, note: str) -> None:
        """One line over the one before. A bar that wraps could not be erased, so it leaves room for the ^C."""
        percent = f"{percent_text(100 * done / self._jobs):>5}"
        room = terminal_width(sys.stderr) - MARGIN - len(f"{self._name}  {percent} {note}")
        bar = f"{'#' * (max(0, room) * done // self._jobs):.<{room}} " if room > 0 else ""
        line = f"{self._name} {bar}{percent} "[: terminal_width(sys.stderr) - MARGIN]
        note = note[: max(0, terminal_width(sys.stderr) - MARGIN - len(line))]
        print(
            f"{_ERASE_LINE}{line}{style_text(note, 'dim', sys.stderr)}", end="", file=sys.stderr, flush=True
        )


def pace(done: int, jobs: int, elapsed_s: float) -> str:
    """`62,000 of 100,000 jobs, 31,000/s, 1 s left`."""
    said = f"{done:,} of {jobs:,} jobs"
    if done <= 0 or elapsed_s <= 0:
        return said
    speed = done / elapsed_s
    return f"{said}, {speed:,.0f}/s, {clock((jobs - done) / speed)} left"


def clock(seconds: float) -> str:
    """`8 s`, `4:05`, `1:02:03`."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}" if minutes else f"{rest} s"
