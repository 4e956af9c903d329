"""Where text goes: results to standard output, everything else to standard error.

Colour, bars and boxes are for terminals only. Rich knows about NO_COLOR, FORCE_COLOR and dumb terminals.
"""

import os
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from gpuyard.cli.shown import shown_lines

if TYPE_CHECKING:
    from rich.console import Console


@cache
def out() -> "Console":
    """Standard output."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


@cache
def err() -> "Console":
    """Standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def notice(text: str, *, before: str = "", style: str = "") -> None:
    """A line on standard error, with `before` in a style; wrapped on terminals only, so that others can search it."""
    text = shown_lines(text)
    # A result is worth more than messages about it: messages that cannot be written are dropped.
    with suppress(OSError):
        if not sys.stderr.isatty():
            print(before + text, file=sys.stderr, flush=True)
            return
        from rich.text import Text

        err().print(Text.assemble((before, style), text))


def aside(text: str) -> None:
    """A line for a person at a terminal; scripts and log files do without."""
    if sys.stderr.isatty():
        notice(text)


def confirmed(question: str) -> bool:
    """Ask at the terminal whether to go on. The answer is no where nobody answers."""
    while True:
        print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
        if line.strip().lower() in ("", "n", "no"):
            return False
        if line.strip().lower() in ("y", "yes"):
            return True


def give_up_output() -> int:
    """Output cannot be written: its reader has gone, as `head` does, or the disk is full."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
