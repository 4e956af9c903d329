"""`--watch`: a listing again and again on a terminal, each time over the one before."""

import io
import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Protocol

from gpuyard.errors import BadInput, YardError

_HOME, _ERASE_LINE, _ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_OTHER_SCREEN, _BACK = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
"""The screen that programs draw on, without a cursor, long lines cut and not folded; and back."""


class _Screen(io.StringIO):
    """Collects what a listing writes, and passes for the terminal that it will be shown on."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return sys.__stdout__.fileno() if sys.__stdout__ is not None else 1


class Flag(Protocol):
    """A `threading.Event`, which a listing shown once does without."""

    def wait(self, timeout: float) -> bool:
        """Whether it is set, by then."""

    def clear(self) -> None:
        """Set it back."""


class News(Protocol):
    """What tells a listing that something has happened (`cli/connection/change_feed.py`, which a listing shown once
    does without).
    """

    @property
    def told(self) -> Flag:
        """Set where there is something new to show."""

    live: bool
    """Whether it would be told."""
    apart_s: float
    """The least time between two pictures."""
    ages_s: float
    """How long a picture stands while nothing happens: times in it grow old."""

    def start(self) -> None:
        """Begin, once."""

    def close(self) -> None:
        """End."""


def keep_showing(show: Callable[[], None], every_s: int, news: News | None) -> None:
    """Show a listing until Ctrl-C: whenever something has happened, and where nobody tells, every `every_s` seconds.

    The news begin after the first picture, so that a mistake is told at once. A yard that goes away is waited for.
    """
    if not sys.stdout.isatty():
        raise BadInput(
            "--watch draws on a terminal, and standard output is not one",
            "Leave out --watch, or run the command in a loop of your own.",
        )
    out = sys.stdout
    out.write(_OTHER_SCREEN)
    told = True
    try:
        while True:
            live = news is not None and news.live
            out.write(_frame(_drawn(show), every_s, live))
            out.flush()
            if news is None:
                time.sleep(every_s)
            else:
                news.start()
                told = _waited(news, every_s, told)
    except KeyboardInterrupt:
        return
    finally:
        out.write(_BACK)
        out.flush()
        if news is not None:
            news.close()


def _waited(news: News, every_s: int, told: bool) -> bool:
    """Wait for news; whether there were any.

    What an event leads to (a reason, a start) may come a little later and without one, so that the picture after one is
    as soon as without them.
    """
    time.sleep(news.apart_s)
    quiet_s = max(every_s, news.ages_s) if news.live and not told else every_s
    told = news.told.wait(max(0.0, quiet_s - news.apart_s))
    news.told.clear()
    return told


def _drawn(show: Callable[[], None]) -> str:
    screen = _Screen()
    try:
        with redirect_stdout(screen):
            show()
    except BadInput:
        raise
    except YardError as error:
        if error.exit_code == BadInput.exit_code:
            raise
        return f"{error.message}\ntrying again\n"
    return screen.getvalue()


def _frame(text: str, every_s: int, live: bool) -> str:
    """One picture: as many lines as the terminal has; the first says what it is."""
    width, height = os.get_terminal_size(sys.stdout.fileno())
    lines = text.splitlines()
    if len(lines) > height - 2:
        lines = [*lines[: height - 3], f"… and {len(lines) - height + 3} more"]
    often = "live" if live else f"every {every_s} s"
    head = f"{often}, Ctrl-C ends it · {time.strftime('%H:%M:%S')}"[:width]
    return _HOME + "".join([f"{line}{_ERASE_LINE}\r\n" for line in (head, *lines)]) + _ERASE_BELOW
