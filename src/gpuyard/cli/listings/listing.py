"""One result in five forms: `-o table|wide|json|yaml|csv`.

People get a table that fits their terminal, pipes get aligned text without a single escape sequence, and
programs get data in which no number was rounded for the eye.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuyard.cli.line.options import Output
from gpuyard.cli.listings.tables import GAP, align_cells, write_csv, write_document
from gpuyard.cli.terminal.streams import style_text, takes_colours, terminal_width
from gpuyard.cli.terminal.visible_text import visible_text
from gpuyard.tables import Grid

__all__ = ["Listing", "Output", "flatten_record", "print_listing", "show"]


@dataclass(frozen=True, slots=True)
class Listing:
    """A result with what each form needs; only the form that was asked for is made."""

    document: Mapping[str, Any]
    """For json and yaml."""
    records: Callable[[], Iterable[Mapping[str, Any]]]
    """For csv: one mapping a row, which may hold mappings of its own."""
    grids: Callable[[bool], Sequence[Grid]]
    """For table and, when called with True, wide."""


def print_listing(listing: Listing, output: Output) -> None:
    """Print a result on standard output."""
    match output:
        case Output.JSON | Output.YAML:
            write_document(listing.document, output)
        case Output.CSV:
            rows = [dict(flatten_record(record)) for record in listing.records()]
            names = list(dict.fromkeys(key for row in rows for key in row))
            write_csv(names, ([row.get(name) for name in names] for row in rows))
        case Output.TABLE | Output.WIDE:
            show(listing.grids(output is Output.WIDE))


def show(grids: Sequence[Grid]) -> None:
    """Print tables on standard output, an empty line between them."""
    drawn = sys.stdout.isatty() or takes_colours(sys.stdout)
    for number, grid in enumerate(grids):
        if number:
            print()
        lines = (
            _drawn(grid, terminal_width(sys.stdout))
            if drawn
            else _padded(grid, [grid.headers, *_cells(grid)])
        )
        print("\n".join(lines))


def flatten_record(record: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    """Mappings within a mapping as columns of their own: `wait_s_mean`."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from flatten_record(value, f"{before}{key}_")
        else:
            yield f"{before}{key}", value


def _header_lines(grid: Grid) -> list[list[str]]:
    """The header with a line for each word, so that a long one does not make its column wide."""
    words = [header.split() for header in grid.headers]
    tallest = max(map(len, words))
    stacked = [[""] * (tallest - len(each)) + each for each in words]
    return [list(line) for line in zip(*stacked, strict=True)]


def _cells(grid: Grid) -> list[list[str]]:
    return [[visible_text(cell) for cell in row] for row in grid.rows]


def _padded(grid: Grid, rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines."""
    return align_cells(rows, [column.right for column in grid.columns])[0]


# ----------------------------------------------------------------------
# On a terminal


def _drawn(grid: Grid, width: int) -> list[str]:
    """A table in colour, in the widest form that fits."""
    lines = [style_text(grid.title, "bold", sys.stdout), ""] if grid.title else []
    for number, (part, heads) in enumerate(_fitting(grid, width)):
        rows = [*heads, *_cells(part)]
        padded = _padded(part, rows)
        lines += [""] if number else []
        lines += [style_text(line, "bold", sys.stdout) for line in padded[: len(heads)]]
        lines += [_marked(part, row, line, rows) for row, line in enumerate(padded[len(heads) :])]
    return lines


def _fitting(grid: Grid, width: int) -> list[tuple[Grid, list[list[str]]]]:
    """The table and its header lines: as it is, with a stacked header, or with rows and columns swapped.

    Where even that is too wide, it is swapped and in parts, with as many columns each as fit.
    """
    forms = [(grid, [grid.headers]), (grid, _header_lines(grid))]
    turned = grid.turned() if grid.turns else grid
    forms.append((turned, [turned.headers]))
    fits = [form for form in forms if _width(*form) <= width]
    if fits or not grid.turns:
        return fits[:1] or forms[1:2]
    parts: list[list[int]] = [[0]]
    for place in range(1, len(turned.columns)):
        part = turned.part([*parts[-1], place])
        if len(parts[-1]) > 1 and _width(part, [part.headers]) > width:
            parts.append([0])
        parts[-1].append(place)
    grids = [turned.part(places) for places in parts]
    return [(each, [each.headers]) for each in grids]


def _marked(grid: Grid, row: int, line: str, rows: Sequence[Sequence[str]]) -> str:
    """A line with the best cells of its columns highlighted."""
    text, end = "", 0
    for place, cells in enumerate(zip(*rows, strict=True)):
        begin, end = end, end + max(map(len, cells)) + len(GAP)
        cell = line[begin:end]
        best = grid.rows[row][place] if (row, place) in grid.best else ""
        text += cell.replace(best, style_text(best, "bold green", sys.stdout)) if best else cell
    return text


def _width(grid: Grid, heads: Sequence[Sequence[str]]) -> int:
    return max(map(len, _padded(grid, [*heads, *_cells(grid)])))
