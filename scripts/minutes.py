"""Say how CI's minutes are spent: one row for each rig, from the reports of a run.

    make test-rigs PYTEST='.venv/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder --junitxml=build/rigs.xml'
    python scripts/minutes.py build/rigs.xml [build/test.xml]

A row has the tests that need one kind of server, and how long its workers were busy with them, installing and starting
what they need included. The wall time is about that divided by the number of workers. A test of a file that no row
names is in the last row, so that the sum is always whole. With `--most`, a larger sum is exit code 1. With
`--longest` the files that take long are printed instead, the longest first, for `tests/longest.txt`: workers begin
with those.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from xml.etree import ElementTree

ROWS = (
    ("Slurm", ("slurm.*", "*.test_slurm*", "e2e.test_noise", "e2e.test_clusters")),
    ("images (podman, runc)", ("*images*",)),
    ("console (Chromium)", ("e2e.test_console*", "e2e.test_auth", "e2e.test_description")),
    ("PostgreSQL", ("unit.store.*", "e2e.test_leaders", "e2e.test_backups", "e2e.test_update", "e2e.test_kills")),
    ("Prometheus, rsyslog, receivers", ("e2e.test_prometheus", "e2e.test_rsyslog", "e2e.test_log_sinks")),
    ("an identity provider", ("e2e.test_oidc",)),
    ("packages", ("e2e.test_package", "e2e.test_upgrade", "e2e.test_first_day")),
    ("the contract with engines", ("contract.*",)),
    ("no server", ("unit.*", "property.*", "architecture.*", "sim.*", "golden.*", "planted.*", "hardware.*")),
    ("a yard alone", ("e2e.*",)),
)  # fmt: skip
REST = "others"
LONG_S = 5.0
"""A file that takes a worker less is not worth a place of its own."""


def row_of(test: str) -> str:
    """The row of a test's module, `tests.e2e.test_top`."""
    module = test.removeprefix("tests.")
    for row, patterns in ROWS:
        if any(fnmatch(module, pattern) for pattern in patterns):
            return row
    return REST


def read_report(path: Path) -> Iterator[tuple[str, float]]:
    """The module and the seconds of each test of a report that pytest wrote."""
    for case in ElementTree.parse(path).iter("testcase"):
        module = [part for part in case.get("classname", "").split(".") if not part[:1].isupper()]
        yield ".".join(module), float(case.get("time", 0))


def list_longest(reports: list[Path]) -> list[str]:
    """The files below tests/ that take long, the longest first."""
    seconds = Counter[str]()
    for path in reports:
        for module, spent_s in read_report(path):
            seconds[module.removeprefix("tests.").replace(".", "/") + ".py"] += spent_s
    return sorted(
        (file for file in seconds if seconds[file] >= LONG_S), key=lambda file: (-seconds[file], file)
    )


def table(seconds: Counter[str], tests: Counter[str], wall_s: float) -> str:
    """The rows, longest first, as Markdown."""
    lines = ["| what the tests need | tests | minutes of a worker |", "|---|---|---|"]
    for row, spent_s in sorted(seconds.items(), key=lambda each: (-each[1], each[0])):
        lines.append(f"| {row} | {tests[row]} | {spent_s / 60:.1f} |")
    lines.append(
        f"| together | {tests.total()} | {seconds.total() / 60:.1f}, {wall_s / 60:.1f} by the clock |"
    )
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    """Print the table; whether it is within the budget."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT", help="a JUnit report of pytest")
    parser.add_argument("--most", type=float, metavar="MINUTES", help="exit code 1 where the clock says more")
    parser.add_argument("--longest", action="store_true", help="print the files that take long instead")
    asked = parser.parse_args(words)
    if asked.longest:
        print("\n".join(list_longest(asked.reports)))
        return 0
    seconds, tests, wall_s = Counter[str](), Counter[str](), 0.0
    for path in asked.reports:
        for suite in ElementTree.parse(path).iter("testsuite"):
            wall_s += float(suite.get("time", 0))
        for module, spent_s in read_report(path):
            seconds[row_of(module)] += spent_s
            tests[row_of(module)] += 1
    print(table(seconds, tests, wall_s))
    return int(asked.most is not None and wall_s > 60 * asked.most)


if __name__ == "__main__":
    sys.exit(main())
