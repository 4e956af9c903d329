"""Tables, before anybody knows where they are shown: columns, and grids of texts.

Light: every listing of the command line begins with it. `cli.listings` prints tables, and pages of reports draw them.
Slurm's commands have fields with a width instead (`cli.slurm.language.columns`), as their formats ask for.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import itemgetter
from typing import Any


class Column:
    """A header and how a record's cell is made."""

    __slots__ = ("cell", "header", "right", "wide", "wraps")

    def __init__(
        self,
        header: str,
        cell: Callable[[Any], str],
        right: bool = False,
        wide: bool = False,
        wraps: bool = False,
    ) -> None:
        self.header = header
        self.cell = cell
        self.right = right
        self.wide = wide
        """Only in the wide form."""
        self.wraps = wraps
        """Of the last column: sentences, which go on in the next line where a terminal is too narrow."""


class Grid:
    """A table whose cells are made. The first column names the rows."""

    __slots__ = ("best", "columns", "rows", "title", "turns")

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Sequence[Sequence[str]],
        *,
        best: Collection[tuple[int, int]] = (),
        title: str = "",
        turns: bool = True,
    ) -> None:
        self.columns = columns
        self.rows = rows
        self.best = best
        """Cells that stand out, by the places of their rows and columns."""
        self.title = title
        """Printed on a terminal only, so that a pipe holds nothing but the table."""
        self.turns = turns
        """Whether rows may become columns where the table is too wide."""

    @property
    def headers(self) -> list[str]:
        """The first line."""
        return [column.header for column in self.columns]

    def turned(self) -> "Grid":
        """Rows as columns: a terminal has more lines than it has columns."""
        first, *others = self.columns
        names = [row[0] for row in self.rows]
        columns = [
            Column(first.header, itemgetter(0)),
            *[Column(name, itemgetter(place), right=True) for place, name in enumerate(names, 1)],
        ]
        rows = [[column.header, *[row[place] for row in self.rows]] for place, column in enumerate(others, 1)]
        return Grid(
            columns, rows, best={(column - 1, row + 1) for row, column in self.best}, title=self.title
        )

    def part(self, places: Sequence[int]) -> "Grid":
        """Some of its columns, without the title."""
        best = {(row, places.index(column)) for row, column in self.best if column in places}
        rows = [[row[place] for place in places] for row in self.rows]
        return Grid([self.columns[place] for place in places], rows, best=best)


def grid(columns: Sequence[Column], records: Iterable[Any], *, title: str = "", turns: bool = True) -> Grid:
    """A table of records."""
    rows = [[column.cell(record) for column in columns] for record in records]
    return Grid(columns, rows, title=title, turns=turns)
