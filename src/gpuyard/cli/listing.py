"""One result in five forms: `-o table|wide|json|yaml|csv`.

People get a table that fits their terminal, pipes get aligned text without a single escape sequence, and
programs get data in which no number was rounded for the eye.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

GAP = "  "
"""Between two columns in a pipe."""


class Output(str, Enum):
    """How a result is printed."""

    TABLE = "table"
    """For people."""
    WIDE = "wide"
    """For people who want all of it."""
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    """One line a row, names joined with underscores."""

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class Column:
    """A header and its cells."""

    header: str
    cells: Sequence[str]
    align: Literal["left", "right"] = "right"
    best: Sequence[bool] = ()
    """Which cells stand out; empty: none."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. The first column names the rows."""

    columns: Sequence[Column]
    title: str = ""
    """Printed on a terminal only, so that a pipe holds nothing but the table."""
    turns: bool = True
    """Whether rows may become columns where the table is too wide."""

    @property
    def rows(self) -> int:
        return len(self.columns[0].cells)

    def turned(self) -> "Grid":
        """Rows as columns: a terminal has more lines than it has columns."""
        names, *figures = self.columns
        first = Column(names.header, [column.header for column in figures], "left")
        rest = [
            Column(
                name,
                [column.cells[row] for column in figures],
                "right",
                [bool(column.best) and column.best[row] for column in figures],
            )
            for row, name in enumerate(names.cells)
        ]
        return Grid([first, *rest], self.title)


@dataclass(frozen=True, slots=True)
class Listing:
    """A result with what each form needs; only the form that was asked for is made."""

    document: Mapping[str, Any]
    """For json and yaml."""
    records: Callable[[], Iterable[Mapping[str, Any]]]
    """For csv: one mapping a row, which may hold mappings of its own."""
    grids: Callable[[bool], Sequence[Grid]]
    """For table and, when called with True, wide."""
    notes: Sequence[str] = field(default=())
    """Lines under the tables on a terminal."""


def emit(listing: Listing, output: Output) -> None:
    """Print a result on standard output."""
    match output:
        case Output.JSON:
            import json

            print(json.dumps(listing.document, indent=2, allow_nan=False))
        case Output.YAML:
            import yaml

            print(yaml.safe_dump(listing.document, sort_keys=False, allow_unicode=True), end="")
        case Output.CSV:
            _emit_csv([dict(flat(record)) for record in listing.records()])
        case Output.TABLE | Output.WIDE:
            show(listing.grids(output is Output.WIDE), listing.notes)


def show(grids: Sequence[Grid], notes: Sequence[str] = ()) -> None:
    """Tables for whoever or whatever reads standard output."""
    from gpuyard.cli.streams import out

    if not out().is_terminal:
        for number, grid in enumerate(grids):
            print("\n" * bool(number) + "\n".join(aligned(grid)))
        return
    for grid in grids:
        _draw(grid)
    for note in notes:
        out().print(note)


def flat(record: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    """Mappings within a mapping as columns of their own: `wait_s_mean`."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{key}_")
        else:
            yield f"{before}{key}", value


def _emit_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    import csv

    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([[_cell(row.get(column)) for column in columns] for row in rows])


def _cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def aligned(grid: Grid) -> list[str]:
    """The table as plain lines; two spaces between columns, because a cell such as `41 min` holds one."""
    columns = [[column.header, *column.cells] for column in grid.columns]
    widths = [max(map(len, cells)) for cells in columns]
    lines = []
    for row in zip(*columns, strict=True):
        padded = [
            cell.ljust(width) if column.align == "left" else cell.rjust(width)
            for cell, width, column in zip(row, widths, grid.columns, strict=True)
        ]
        lines.append(GAP.join(padded).rstrip())
    return lines


# ----------------------------------------------------------------------
# On a terminal


def _draw(grid: Grid) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from gpuyard.cli.streams import out

    width = out().width
    if grid.turns and _width(grid) > width and _width(grid.turned()) < _width(grid):
        grid = grid.turned()
    table = Table(
        box=box.SIMPLE_HEAD,
        title=grid.title or None,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        pad_edge=False,
        padding=(0, 1),
    )
    for column in grid.columns:
        table.add_column(
            Text(column.header), justify=column.align, overflow="fold", no_wrap=_width(grid) <= width
        )
    for row in range(grid.rows):
        table.add_row(
            *(
                Text(column.cells[row], style="bold green" if column.best and column.best[row] else "")
                for column in grid.columns
            )
        )
    out().print(table)


def _width(grid: Grid) -> int:
    """Of the table on a terminal, where a header may take one line a word."""
    words = [max(map(len, [*column.header.split(), *column.cells, ""])) for column in grid.columns]
    return sum(words) + 2 * (len(words) - 1) + 2
