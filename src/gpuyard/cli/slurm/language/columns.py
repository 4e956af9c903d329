"""Format strings of `squeue` and `sinfo`: `%.18i %9P` after -o, `JobID:10,Name:.20` after -O.

A field has a width (none: as long as it is), is aligned left or, after a dot, right, and is cut to its width. Text
between the fields is printed as it is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gpuyard.cli.terminal.visible_text import visible_text

LONG_WIDTH = 20
"""The width of a field of -O that gives none."""
WIDTH_MAX = 10_000
"""A column is no wider, whatever a format asks for."""


class Field(NamedTuple):
    """Something that can be shown of a job or a node."""

    head: str
    text: Callable[[Any], str]
    cut: bool = True
    """Whether it is cut to the width of its column; a duration is not."""


class Place(NamedTuple):
    """The place of a field in the line, with what follows it."""

    field: Field
    width: int = 0
    right: bool = False
    after: str = ""

    def template(self, *, cut: bool) -> str:
        """Its part of a line for the % operator: one template per line is quicker than piece by piece."""
        side = "" if self.right else "-"
        width = min(self.width, WIDTH_MAX)
        most = f".{width}" if cut else ""
        how = f"%{side}{width}{most}s" if width else "%s"
        return how + self.after.replace("%", "%%")


class Format(NamedTuple):
    """A whole line."""

    before: str
    columns: list[Place]
    unknown: list[str]
    """Names that were asked for and are no fields."""

    def header(self) -> str:
        """The line of headings. They are cut in any case."""
        parts = [column.template(cut=True) for column in self.columns]
        return self._template(parts) % tuple([column.field.head for column in self.columns])

    def lines(self, things: Iterable[object]) -> list[str]:
        """One for each job or node."""
        template = self._template([column.template(cut=column.field.cut) for column in self.columns])
        texts = [column.field.text for column in self.columns]
        return [template % tuple([visible_text(text(thing)) for text in texts]) for thing in things]

    def _template(self, parts: list[str]) -> str:
        return self.before.replace("%", "%%") + "".join(parts)


def parse_short_format(text: str, fields: Mapping[str, Field]) -> Format:
    """The format of `%.18i %R`. A letter that means nothing stays as it is and is named in `unknown`."""
    before, *parts = text.replace("%%", "\0").split("%")
    found = Format(before.replace("\0", "%"), [], [])
    lead = found.before
    columns = found.columns
    for part in parts:
        right = part.startswith(".")
        rest = part[1:] if right else part
        digits = len(rest) - len(rest.lstrip("0123456789"))
        width, letter, after = int(rest[:digits] or 0), rest[digits : digits + 1], rest[digits + 1 :]
        after = after.replace("\0", "%")
        if letter in fields:
            columns.append(Place(fields[letter], width, right, after))
            continue
        found.unknown.append(letter.replace("\0", "%"))
        plain = f"%{part}".replace("\0", "%")
        if columns:
            columns[-1] = columns[-1]._replace(after=columns[-1].after + plain)
        else:
            lead += plain
    return found._replace(before=lead)


def parse_long_format(text: str, fields: Mapping[str, Field]) -> Format:
    """The format of `JobID:10,Name:.20,State:8 |`: the width after a colon, and after it the separator."""
    found = Format("", [], [])
    for part in text.split(","):
        name, _, how = part.partition(":")
        field = fields.get(name.strip().lower())
        if field is None:
            found.unknown.append(name)
            continue
        right = how.startswith(".")
        rest = how[1:] if right else how
        digits = len(rest) - len(rest.lstrip("0123456789"))
        width = int(rest[:digits]) if digits else LONG_WIDTH
        found.columns.append(Place(field, width, right, rest[digits:]))
    return found


class Cell(NamedTuple):
    """A field of `sacct` or `sshare`: its heading, its width, and its alignment."""

    head: str
    width: int
    text: Callable[[Any], str]
    left: bool = False

    @property
    def wide(self) -> int:
        """The width that it has in a line."""
        return min(self.width, WIDTH_MAX)

    def put(self, text: str) -> str:
        """Cut with a `+` where it is too long."""
        width = self.wide
        if len(text) > width:
            text = text[: width - 1] + "+"
        return text.ljust(width) if self.left else text.rjust(width)

    def heading(self) -> str:
        """Cut without one."""
        width = self.wide
        return (self.head.ljust if self.left else self.head.rjust)(width)[:width]


class Parsable(NamedTuple):
    """Whether and how lines are made for programs."""

    on: bool = False
    delimiter: str = "|"
    at_end: bool = False
    """-p ends each line with the delimiter, -P does not."""


def format_cells(
    cells: Sequence[Cell], things: Sequence[Any], how: Parsable, *, header: bool = True
) -> list[str]:
    """A table as `sacct` and `sshare` print it."""
    lines = []
    if how.on:
        end = how.delimiter if how.at_end else ""
        if header:
            lines.append(how.delimiter.join([cell.head for cell in cells]) + end)
        return lines + [
            how.delimiter.join([visible_text(cell.text(thing)) for cell in cells]) + end for thing in things
        ]
    if header:
        lines.append("".join([cell.heading() + " " for cell in cells]))
        lines.append("".join(["-" * cell.wide + " " for cell in cells]))
    return lines + [
        "".join([cell.put(visible_text(cell.text(thing))) + " " for cell in cells]) for thing in things
    ]
