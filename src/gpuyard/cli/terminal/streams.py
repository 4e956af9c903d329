"""Where text goes: results to standard output, everything else to standard error.

Colour, bars and boxes are for terminals only. NO_COLOR refuses colour, FORCE_COLOR asks for it in a pipe too.
"""

import os
import sys
from contextlib import suppress

from gpuyard.cli.terminal.visible_text import visible_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    # For the type checker alone: `typing` would take a seventh of the time that `yard --help` takes.
    from typing import TextIO

_STYLES = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33",
    "bold red": "1;31", "bold yellow": "1;33", "bold green": "1;32",
}  # fmt: skip
_COLUMNS = 80


def takes_colours(stream: "TextIO") -> bool:
    """Whether text on this stream may have colours."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def style_text(text: str, style: str, stream: "TextIO") -> str:
    """The text in one of `_STYLES`, if the stream may have colours."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style and text and takes_colours(stream) else text


def terminal_width(stream: "TextIO") -> int:
    """The width of the terminal; 80 where there is none, or where it does not say."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def wrap_text(text: str, first: str, rest: str, width: int) -> list[str]:
    """Words in lines, the first of which begins otherwise. Blanks that may not break a line become blanks."""
    lines, line = [], first
    for word in text.split(" ") if "\xa0" in text else text.split():
        if len(line) + len(word) > width and line.strip() and line != first:
            lines.append(line.rstrip())
            line = rest
        line += f"{word.lstrip(chr(0xA0)) if line == rest else word} "
    return [each.replace("\xa0", " ") for each in [*lines, line.rstrip()]]


def result(text: str, first: str = "", rest: str = "") -> None:
    """A sentence of a result after `first`; on terminals alone in lines of whole words, that begin with `rest`."""
    line = first + text
    if sys.stdout.isatty() and len(line) > (width := terminal_width(sys.stdout)):
        line = "\n".join(wrap_text(text, first, rest, width))
    print(line)


def print_notice(text: str, *, before: str = "", style: str = "") -> None:
    """A line on standard error, with `before` in a style; wrapped on terminals only, so that others can search it."""
    text = visible_lines(text)
    # A result is worth more than messages about it: messages that cannot be written are dropped.
    with suppress(OSError):
        if sys.stderr.isatty():
            width = terminal_width(sys.stderr)
            lines = [
                wrap_text(line, "", "", width) if len(line) > width else [line]
                for line in (before + text).split("\n")
            ]
            text = "\n".join([part for parts in lines for part in parts])[len(before) :]
        print(style_text(before, style, sys.stderr) + text, file=sys.stderr, flush=True)


def print_aside(text: str) -> None:
    """A line for a person at a terminal; scripts and log files do without."""
    if sys.stderr.isatty():
        print_notice(text)


def confirm(question: str) -> bool:
    """Ask at the terminal whether to go on. The answer is no where nobody answers."""
    while True:
        print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            # What comes next, the prompt of a shell, begins a line of its own.
            print(file=sys.stderr)
            raise
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
