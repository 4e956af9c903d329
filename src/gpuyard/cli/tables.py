"""Listings of the yard: one list of records in five forms, quick for ten thousand of them.

Unlike `listing`, which draws small results richly, this writes plain lines: columns are padded once, a terminal gets a
bold header and lines cut to its width, a pipe gets clean text, and nothing heavy is imported.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

GAP = "  "
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_CONTROL = dict.fromkeys((*range(32), 127, *range(128, 160)), "?")


class Column(NamedTuple):
    """A header and how a record's cell is made."""

    header: str
    cell: Callable[[Mapping[str, Any]], str]
    right: bool = False
    wide: bool = False
    """Only in the wide form."""


def emit(records: Sequence[Mapping[str, Any]], columns: Sequence[Column], output: str) -> None:
    """Print records on standard output, in a form that `listing.Output` names."""
    match output:
        case "json":
            import json

            print(json.dumps(records, indent=2))
        case "yaml":
            import yaml

            print(
                yaml.safe_dump([dict(each) for each in records], sort_keys=False, allow_unicode=True), end=""
            )
        case "csv":
            _csv(records)
        case _:
            wide = output == "wide"
            chosen = [column for column in columns if wide or not column.wide]
            table(chosen, [[column.cell(each) for column in chosen] for each in records], cut=not wide)


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, cut: bool = True) -> None:
    """Aligned text. On a terminal lines are cut to its width, unless all of it was asked for."""
    heads = [column.header for column in columns]
    lines = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    # The last column of the left kind needs no padding.
    form = GAP.join(
        [
            f"{{:>{width}}}" if column.right else "{}" if column is columns[-1] else f"{{:<{width}}}"
            for column, width in zip(columns, widths, strict=True)
        ]
    ).format
    terminal = sys.stdout.isatty()
    most = os.get_terminal_size(sys.stdout.fileno()).columns if terminal and cut else 0
    texts = [form(*line).rstrip().translate(_CONTROL) for line in lines]
    if most > 0:
        texts = [text if len(text) <= most else text[: most - 1] + "…" for text in texts]
    if terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        texts[0] = f"{_BOLD}{texts[0]}{_PLAIN}"
    sys.stdout.write("\n".join(texts) + "\n")


def _csv(records: Sequence[Mapping[str, Any]]) -> None:
    import csv

    names = list(dict.fromkeys(name for each in records for name in each))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for each in records:
        writer.writerow([_flat(each.get(name)) for name in names])


def _flat(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else value


def span(ms: int) -> str:
    """A span of time in a few letters: `42s`, `12m05s`, `3h20m`, `2d04h`."""
    seconds = max(0, ms) // 1000
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}h"


def clock(ms: int | None) -> str:
    """A time of this machine's clock: `14:05:09` today, else with its date."""
    if not ms:
        return "-"
    then, now = time.localtime(ms / 1000), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


def number(value: int | float) -> str:
    """`8`, `0.25`."""
    return f"{value:g}"
