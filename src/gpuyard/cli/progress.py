"""Shows on a terminal's standard error what a long run is doing: how far, how fast, how long still.

The bar is drawn from within the run, at most four times a second and without a thread of its own, so that it
takes no time from what is being measured. In a pipe or a log file there is none.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from gpuyard.cli.streams import err

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

REDRAW_S = 0.25

MARGIN = 3
"""Columns that the bar leaves free."""

_ERASE_LINE = "\r\x1b[2K"

JOBS_MIN = 5000
"""Shorter runs are over before a bar could be read."""


@contextmanager
def busy(what: str) -> Iterator[None]:
    """A line that stays while something takes its time. It does not move: that would take a thread."""
    if not _watched():
        yield
        return
    err().print(f"{what} …", style="dim", end="", no_wrap=True, overflow="ellipsis")
    try:
        yield
    finally:
        print(_ERASE_LINE, end="", file=sys.stderr, flush=True)


def _watched() -> bool:
    """Whether standard error is a terminal on which a line can be erased again."""
    return sys.stderr.isatty() and not err().is_dumb_terminal


class Bar:
    """Progress of one simulation after another."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._shown = jobs >= JOBS_MIN and _watched()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._began_s = self._drawn_s = 0.0

    def __enter__(self) -> "Bar":
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[note]}", style="dim"),
                # Room for the ^C that terminals echo: a bar that wraps cannot be erased.
                console=Console(stderr=True, width=max(20, err().width - MARGIN)),
                transient=True,
                auto_refresh=False,
                expand=True,
            )
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def begin(self, name: str) -> "Bar | None":
        """The next simulation starts. Returns the function that reports its progress; None: no terminal."""
        if self._progress is None:
            return None
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=self._jobs, note=f"{self._jobs:,} jobs")
        self._began_s = self._drawn_s = monotonic()
        self._progress.refresh()
        return self

    def __call__(self, done: int, jobs: int) -> None:
        """`done` of `jobs` have ended."""
        now_s = monotonic()
        if self._progress is None or self._task is None or now_s - self._drawn_s < REDRAW_S:
            return
        self._drawn_s = now_s
        self._progress.update(
            self._task, completed=done, note=pace(done, jobs, now_s - self._began_s), refresh=True
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
