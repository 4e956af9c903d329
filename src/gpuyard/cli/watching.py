"""`--watch`: a listing again and again on a terminal, each time over the one before."""

import io
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stdout

from gpuyard.errors import BadInput, YardError

_HOME, _ERASE_LINE, _ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_OTHER_SCREEN, _BACK = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
"""The screen that programs draw on, without a cursor, long lines cut and not folded; and back."""


APART_S = 0.5
"""Between two pictures, however much happens."""


class _Screen(io.StringIO):
    """Collects what a listing writes, and passes for the terminal that it will be shown on."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return sys.__stdout__.fileno() if sys.__stdout__ is not None else 1


def repeated(show: Callable[[], None], every_s: int | None, news: threading.Event | None = None) -> None:
    """Show a listing once, or every `every_s` seconds until Ctrl-C. A yard that goes away is waited for.

    `news`: set where there is something to show before that.
    """
    if every_s is None:
        show()
        return
    if not sys.stdout.isatty():
        raise BadInput(
            "--watch draws on a terminal, and standard output is none",
            "Leave out --watch, or call it in a loop of your own.",
        )
    out = sys.stdout
    out.write(_OTHER_SCREEN)
    try:
        while True:
            out.write(_frame(_drawn(show), every_s))
            out.flush()
            if news is None:
                time.sleep(every_s)
            else:
                time.sleep(APART_S)
                news.wait(max(0.0, every_s - APART_S))
                news.clear()
    except KeyboardInterrupt:
        return
    finally:
        out.write(_BACK)
        out.flush()


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


def _frame(text: str, every_s: int) -> str:
    """One picture: as many lines as the terminal has; the first says what it is."""
    width, height = os.get_terminal_size(sys.stdout.fileno())
    lines = text.splitlines()
    if len(lines) > height - 2:
        lines = [*lines[: height - 3], f"… and {len(lines) - height + 3} more"]
    head = f"every {every_s} s, Ctrl-C ends it · {time.strftime('%H:%M:%S')}"[:width]
    return _HOME + "".join([f"{line}{_ERASE_LINE}\r\n" for line in (head, *lines)]) + _ERASE_BELOW
