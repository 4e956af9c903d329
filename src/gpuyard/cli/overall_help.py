"""The page that `yard --help` prints, made from the table of commands alone, so that it comes at once."""

import os
import sys

from gpuyard.cli.lazy import ALIASES, SECTIONS

ABOUT = "Schedule, share, watch and price GPUs; try a policy in simulation before anyone feels it."
_OPTIONS = {"--version": "Print the version and exit.", "-h, --help": "Show this message and exit."}
_WIDTH, _WIDTH_MAX = 80, 100


def page() -> str:
    """The overall help, for the width of this terminal."""
    width = min(_WIDTH_MAX, _columns())
    left = max(map(len, [*_OPTIONS, *(name for entries in SECTIONS.values() for name in entries)]))
    lines = [
        "Usage: yard [OPTIONS] COMMAND [ARGS]...",
        "",
        *_wrapped(ABOUT, "  ", "  ", width),
        "",
        "Options:",
    ]
    for name, text in _OPTIONS.items():
        lines += _wrapped(text, f"  {name:<{left}}  ", " " * (left + 4), width)
    for section, entries in SECTIONS.items():
        lines += ["", f"{section}:"]
        for name, entry in entries.items():
            lines += _wrapped(entry.help, f"  {name:<{left}}  ", " " * (left + 4), width)
    lines += ["", *_wrapped(_aliases(), "", "", width)]
    return "\n".join(lines)


def _aliases() -> str:
    """Other words that are understood, in one line."""
    words: dict[str, list[str]] = {}
    for alias, name in ALIASES.items():
        words.setdefault(name, []).append(alias)
    return (
        "Also understood: "
        + "; ".join([f"{', '.join(them)} for {name}" for name, them in words.items()])
        + "."
    )


def _columns() -> int:
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said) > 0:
        return max(40, int(said))
    try:
        return max(40, os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError):
        return _WIDTH


def _wrapped(text: str, first: str, rest: str, width: int) -> list[str]:
    """Words in lines, the first of which begins otherwise."""
    lines, line = [], first
    for word in text.split():
        if len(line) + len(word) > width and line.strip() and line != first:
            lines.append(line.rstrip())
            line = rest
        line += f"{word} "
    return [*lines, line.rstrip()]
