"""What the benchmark programs share: commands that print JSON, tables, and the page they are published on.

Run with `--write`, a program puts its tables into docs/benchmarks.md between its own two marks, so that no
figure there is typed by hand.
"""

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"

Row = dict[str, Any]


def json_of(command: Sequence[str | Path]) -> Row:
    """What a command prints, as JSON. Its complaints go to standard error; a failure ends the benchmark."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{Path(sys.argv[0]).name}: exit code {done.returncode} from: {' '.join(map(str, command))}")
    return json.loads(done.stdout)


def yard(*arguments: object) -> Row:
    """What a `yard` command of this checkout prints with `-o json`."""
    return json_of([sys.executable, "-m", "gpuyard.cli", *map(str, arguments), "-o", "json"])


def best(rows: Iterable[Row]) -> Row:
    """Of repeated runs the one with the least CPU time: other work on the machine only ever adds to it."""
    return min(rows, key=lambda row: row["cpu_s"])


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The e in cost ~ size ** e: the slope of a straight line through the logarithms (least squares)."""
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    rise = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True))
    return rise / sum((a - x) ** 2 for a in xs)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; the first column is text, the others are figures."""
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    lines += [f"| {' | '.join(_said(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def _said(cell: object) -> str:
    if cell is None:
        return "–"
    if not isinstance(cell, float):
        return f"{cell:,}" if isinstance(cell, int) else str(cell)
    return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.3g}" if abs(cell) >= 0.001 else f"{cell:.0f}"


def measured_on() -> str:
    """The machine and the code, in one sentence and without names."""
    commit = _git("rev-parse", "--short", "HEAD") or "unknown"
    changed = " with changes" if _git("status", "--porcelain", "src") else ""
    return (
        f"Measured at commit {commit}{changed} on {os.cpu_count()} {platform.machine()} cores shared with "
        f"other work, Python {platform.python_version()}, {platform.system()}."
    )


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def publish(name: str, text: str, rows: Any, *, write: bool, page: Path = PAGE) -> None:
    """Print the tables and one line of JSON; with `write`, put the tables into the page as well."""
    text = f"{measured_on()}\n\n{text.strip()}"
    print(text, json.dumps(rows), sep="\n\n")
    if write:
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, found, rest = page.read_text(encoding="utf-8").partition(begin)
        _old, closed, after = rest.partition(end)
        if not found or not closed:
            sys.exit(f"{page}: has no place for {name}; give it the lines {begin} and {end}")
        page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
