"""Help pages, made from the table of commands and from what each command declares."""

import sys
from collections.abc import Iterable, Sequence

from gpuyard.cli.line.commands import ALIASES, CommandEntry, list_sections
from gpuyard.cli.terminal.streams import terminal_width, wrap_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    # For the type checker alone: `typing` would take a seventh of the time that `yard --help` takes.
    from typing import Any

ABOUT = "Schedule, share, watch and price GPUs; try a policy in simulation before you put it in force."
_HELP = ("-h, --help", "Show this message and exit.")
_OPTIONS = {"--version": "Print the version and exit.", _HELP[0]: _HELP[1]}
_BAD_USE = 2
_WIDTH_MIN, _WIDTH_MAX = 40, 100
_NAMES_MAX = 30
"""Names that are longer get a line of their own."""
_TOGETHER = "\xa0"


def help_page() -> str:
    """The overall help, for the width of this terminal."""
    width = _width()
    parts = list_sections()
    left = max(map(len, [*_OPTIONS, *(name for entries in parts.values() for name in entries)]))
    lines = ["Usage: yard [OPTIONS] COMMAND [ARGS]...", "", *wrap_text(ABOUT, "  ", "  ", width), ""]
    for section, rows in {
        "Options": _OPTIONS,
        **{name: {each: entry.help for each, entry in part.items()} for name, part in parts.items()},
    }.items():
        lines += [f"{section}:"]
        for name, text in rows.items():
            lines += wrap_text(text, f"  {name:<{left}}  ", " " * (left + 4), width)
        lines += [""]
    return "\n".join([*lines, *wrap_text(_aliases(), "", "", width)])


def print_page(page: str, *, asked: bool) -> int:
    """Print a page of help: the answer if it was asked for; else what is said instead of one. The exit code."""
    print(page, file=sys.stdout if asked else sys.stderr, flush=True)
    return 0 if asked else _BAD_USE


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


def command_page(path: str, entry: CommandEntry, about: str, declared: "Sequence[Any]") -> str:
    """The help of a command that declares these parameters, or of a group of commands."""
    operands = [each for each in declared if not each.on_off[0]]
    usage = ["COMMAND [ARGS]..."] if entry.below else [each.usage for each in operands]
    lines = wrap_text(
        " ".join([f"Usage: {path} [OPTIONS]", *usage]), "", " " * len(f"Usage: {path} "), _width()
    )
    lines += ["", *_paragraphs(entry.about or about)]
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for each in declared:
        section = "Arguments" if each in operands else getattr(each.says, "section", "") or "Options"
        sections.setdefault(section, []).append(_row(each))
    sections["Options"].append(_HELP)
    sections["Commands"] = [(name, below.help) for name, below in entry.below.items()]
    for section, rows in sections.items():
        if rows:
            lines += ["", f"{section}:", *_table(rows)]
    return "\n".join(lines)


def _row(parameter: "Any") -> tuple[str, str]:
    """An option or an operand, and what is said of it."""
    says, (on, off) = parameter.says, parameter.on_off
    names = ", ".join(sorted(on, key=lambda name: name.startswith("--")))
    names = f"{names} / {', '.join(off)}" if off else names
    more = []
    if not parameter.required and (shown := _default(parameter.default, on)):
        more.append(f"default: {shown}")
    if says.min is not None and says.max is not None:
        more.append(f"{says.min} to {says.max}")
    if parameter.required and on:
        more.append("required")
    # What stands in brackets stays on one line.
    bracket = f"  [{'; '.join(more)}]".replace(" ", _TOGETHER)[1:] if more else ""
    return " ".join([names, parameter.metavar]).strip(), f"{says.help} {bracket}".strip()


def _default(value: "Any", names: list[str]) -> str:
    """A default as it would be typed; empty for a flag that is off, and where there is none."""
    if value is None or value is False:
        return ""
    return names[0].lstrip("-") if value is True else str(getattr(value, "value", value))


def _table(rows: list[tuple[str, str]]) -> list[str]:
    """Names on the left, what they mean on the right."""
    width = _width() - 2
    left = min(max(len(name) for name, _ in rows), _NAMES_MAX)
    lines: list[str] = []
    for name, text in rows:
        indent = " " * (left + 4)
        if len(name) > left:
            lines.append(f"  {name}")
        first = indent if len(name) > left else f"  {name:<{left}}  "
        lines += wrap_text(text, first, indent, width)
    return lines


def _paragraphs(text: str) -> Iterable[str]:
    r"""A docstring in lines; a paragraph that begins with `\b` keeps its own."""
    first, *rest = text.strip().splitlines()
    margin = min([len(line) - len(line.lstrip()) for line in rest if line.strip()], default=0)
    for place, part in enumerate("\n".join([first, *[line[margin:] for line in rest]]).split("\n\n")):
        if place:
            yield ""
        if part.startswith("\b"):
            yield from [f"  {line}".rstrip() for line in part.splitlines()[1:]]
        else:
            yield from wrap_text(part, "  ", "  ", _width() - 2)


def _width() -> int:
    return min(_WIDTH_MAX, max(_WIDTH_MIN, terminal_width(sys.stdout)))
