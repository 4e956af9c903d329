"""Listings of the yard: one list of records in five forms, quick for ten thousand of them.

Columns are padded once, a terminal gets a bold header, coloured states and lines cut to its width, a pipe gets clean
text, and nothing heavy is imported. `align_cells` is the one printer of tables; `listing` lays figures out over it.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuyard.cli.terminal.streams import takes_colours, wrap_text
from gpuyard.cli.terminal.visible_text import visible_text
from gpuyard.tables import Column

GAP = "  "
_WRAPS_MIN = 16
"""A last column that is narrower than that is cut."""
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_GREEN, _YELLOW, _RED, _CYAN, _DIM = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[36m", "\x1b[2m"
STATE_COLOURS = {
    "RUNNING": _GREEN, "UP": _GREEN, "PENDING": _YELLOW, "DRAINED": _YELLOW, "SUSPENDED": _CYAN,
    "COMPLETED": _DIM, "CANCELLED": _DIM,
    "FAILED": _RED, "TIMEOUT": _RED, "NODE_FAIL": _RED, "OUT_OF_MEMORY": _RED, "DOWN": _RED,
}  # fmt: skip
"""On a terminal, for cells of a column STATE."""


def print_records(
    records: Sequence[Mapping[str, Any]],
    columns: Sequence[Column],
    output: str,
    *,
    fields: Sequence[str] = (),
    wanted: str = "",
) -> None:
    """Print records on standard output, in a form that `options.Output` names.

    `fields` are the names of the data, for a csv without rows; `wanted` is what `--columns` said: names of the table
    and of the data, whatever the form.
    """
    if output in ("table", "wide") and not wanted:
        shown = [column for column in columns if output == "wide" or not column.wide]
        format_table(
            shown, [[column.cell(each) for column in shown] for each in records], cut=output == "table"
        )
        return
    names = list(dict.fromkeys([*fields, *(name for each in records for name in each)]))
    if wanted:
        data = frozenset(names)
        by_name = {name_of(column): column for column in columns}
        names = check_columns(wanted, list(dict.fromkeys([*by_name, *names])))
        if output in ("table", "wide"):
            shown = [by_name.get(name) or _data_column(name) for name in names]
            format_table(
                shown, [[column.cell(each) for column in shown] for each in records], cut=output == "table"
            )
            return
        records = [
            {name: each.get(name) if name in data else by_name[name].cell(each) for name in names}
            for each in records
        ]
    if output == "csv":
        write_csv(names, ([each.get(name) for name in names] for each in records))
    elif output == "parquet":
        write_parquet(names, records)
    else:
        write_document([dict(each) for each in records], output)


def _data_column(name: str) -> Column:
    """A column for what the table does not show of itself."""
    return Column(name.upper().replace("_", " "), lambda each: str(flatten_value(each.get(name))) or "-")


def name_of(column: Column) -> str:
    """A column as `--columns` calls it."""
    return column.header.lower().replace(" ", "_")


def check_columns(wanted: str, names: Sequence[str]) -> list[str]:
    """The names that `--columns` gives, checked."""
    asked = [name.strip().lower() for name in wanted.split(",") if name.strip()]
    strange = [name for name in asked if name not in names]
    if not strange and asked:
        return asked
    from gpuyard.errors import BadInput, suggest_end

    if not asked:
        raise BadInput("--columns names no column", f"There are: {', '.join(names)}.")
    close = suggest_end(strange[0], names)
    raise BadInput(f"there is no column {strange[0]!r}{close}", f"There are: {', '.join(names)}.")


def write_document(value: Any, output: str) -> None:
    """A value as JSON or YAML."""
    import json

    if output == "json":
        print(json.dumps(value, indent=2, allow_nan=False))
        return
    import yaml

    # PyYAML takes plain objects alone.
    value = json.loads(json.dumps(value))

    # The C emitter is several times as quick; some builds of PyYAML have none.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True)
    if not text.replace("\n", "").isprintable():
        # Some marks count as text in YAML, and still turn the direction of a terminal's text.
        text = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=False)
    print(text, end="")


def write_csv(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows under their names."""
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([_csv_cell(name) for name in names])
    writer.writerows([[_csv_cell(flatten_value(cell)) for cell in row] for row in rows])


def write_parquet(names: Sequence[str], records: Sequence[Mapping[str, Any]]) -> None:
    """Rows by column, for programs that analyse data."""
    from gpuyard.errors import BadInput

    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        from gpuyard.extras import install_text

        raise BadInput(
            "parquet needs pyarrow, which is not installed here",
            f"Install it with: {install_text('parquet')}\nOr take -o csv.",
        ) from None
    if sys.stdout.isatty():
        raise BadInput(
            "parquet is binary and cannot go to a terminal", "Write it into a file: -o parquet > FILE."
        )
    made = pyarrow.table({name: [each.get(name) for each in records] for name in names})
    parquet.write_table(made, sys.stdout.buffer)


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a text begins with that programs for tables take for a formula."""


def _csv_cell(value: Any) -> Any:
    """A text in which nothing is hidden, and which no program runs: a formula has an apostrophe before it.

    Numbers stay as they are, those in texts too: `-3`, `-$0.50`, `+12.5 %`, and `-` for nothing.
    """
    if not isinstance(value, str):
        return value
    if value.startswith(_FORMULA) and value.strip("+-$%,. 0123456789"):
        return f"'{visible_text(value)}"
    return visible_text(value)


def format_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, cut: bool = True) -> None:
    """Aligned text. On a terminal lines are cut to its width, or go on below, unless all of it was asked for."""
    heads = [column.header for column in columns]
    lines = [heads, *[[visible_text(cell) for cell in row] for row in rows]]
    most = os.get_terminal_size(sys.stdout.fileno()).columns if cut and sys.stdout.isatty() else 0
    if most > 0 and columns[-1].wraps:
        lines = _going_on(lines, most)
    texts, widths = align_cells(lines, [column.right for column in columns])
    if most > 0:
        texts = [text if len(text) <= most else text[: most - 1] + "…" for text in texts]
    if takes_colours(sys.stdout):
        if "STATE" in heads:
            _colour_states(texts, sum(widths[: heads.index("STATE")]) + len(GAP) * heads.index("STATE"))
        texts[0] = f"{_BOLD}{texts[0]}{_PLAIN}"
    sys.stdout.write("\n".join(texts) + "\n")


def align_cells(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> tuple[list[str], list[int]]:
    """Rows of cells as lines, and the widths of their columns; two blanks between two columns, none at the end."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    form = GAP.join(
        [f"{{:{'>' if each else '<'}{width}}}" for each, width in zip(right, widths, strict=True)]
    ).format
    return [form(*line).rstrip() for line in lines], widths


def _going_on(lines: Sequence[list[str]], most: int) -> list[list[str]]:
    """The rows with what is too long in their last cell in lines below, if there is some width for it."""
    room = most - sum(
        [max(map(len, column)) + len(GAP) for column in zip(*[line[:-1] for line in lines], strict=True)]
    )
    if room < _WRAPS_MIN:
        return [*lines]
    found = []
    for *others, last in lines:
        first, *rest = wrap_text(last, "", "", room) if len(last) > room else [last]
        found += [[*others, first], *[[*[""] * len(others), each] for each in rest]]
    return found


def _colour_states(texts: list[str], start: int) -> None:
    """Colour the word at this place in every line but the first."""
    for number, text in enumerate(texts[1:], 1):
        word = text[start:].partition(" ")[0]
        colour = STATE_COLOURS.get(word)
        if colour:
            texts[number] = f"{text[:start]}{colour}{word}{_PLAIN}{text[start + len(word) :]}"


def flatten_value(value: Any) -> Any:
    """A value as one cell: a list with blanks between its items."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return " ".join([str(flatten_value(each)) for each in value])
    if isinstance(value, Mapping):
        return " ".join([f"{name}={flatten_value(each)}" for name, each in value.items()])
    return "" if value is None else value
