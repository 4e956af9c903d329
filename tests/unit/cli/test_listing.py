"""Tables: what fits, what stands beside what, and what stands out."""

from operator import itemgetter

import pytest

from gpuyard.cli.listings import listing
from gpuyard.cli.terminal import progress
from gpuyard.tables import Column, Grid


def columns(*headers: str) -> list[Column]:
    """Columns of rows of texts, the first to the left."""
    return [Column(header, itemgetter(place), right=place > 0) for place, header in enumerate(headers)]


GRID = Grid(
    columns("policy", "wait mean", "cost"),
    [["fifo", "3.2 h", "$10"], ["default", "41 min", "$9"]],
    best={(1, 1)},
)


def drawn(grid: Grid, width: int) -> list[str]:
    return listing._drawn(grid, width)


def test_a_table_takes_the_widest_form_that_fits() -> None:
    assert [
        "policy   wait mean  cost",
        "fifo         3.2 h   $10",
        "default     41 min    $9",
    ] == drawn(GRID, 80)
    assert [
        "           wait",
        "policy     mean  cost",
        "fifo      3.2 h   $10",
        "default  41 min    $9",
    ] == drawn(GRID, 22)


def test_a_table_that_is_too_wide_is_turned() -> None:
    rows = [[*row, used] for row, used in zip(GRID.rows, ("90 %", "79 %"), strict=True)]
    wide = Grid(columns(*GRID.headers, "utilisation"), rows)
    assert [
        "policy        fifo  default",
        "wait mean    3.2 h   41 min",
        "cost           $10       $9",
        "utilisation   90 %     79 %",
    ] == drawn(wide, 30)


def test_a_table_that_is_too_wide_either_way_comes_in_parts() -> None:
    rows = [[f"policy-{number}", "90 %", "y" * 30] for number in range(5)]
    grid = Grid(columns("policy", "utilisation", "x"), rows)
    lines = drawn(grid, 40)
    assert 5 == sum(line.count("policy-") for line in lines)
    assert 5 == sum(line.startswith("policy ") for line in lines)


def test_the_best_of_a_column_stands_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    for grid in (GRID, GRID.turned()):
        assert "\x1b[1;32m41 min\x1b[0m" in "\n".join(drawn(grid, 80))


def test_nested_figures_become_columns() -> None:
    assert {"a": 1, "b_c": 2, "b_d_e": 3} == dict(
        listing.flatten_record({"a": 1, "b": {"c": 2, "d": {"e": 3}}})
    )


def test_how_far_how_fast_and_how_long_still() -> None:
    assert "62,000 of 100,000 jobs, 31,000/s, 1 s left" == progress.pace(62_000, 100_000, 2.0)
    assert "0 of 100 jobs" == progress.pace(0, 100, 1.0)
    assert ["8 s", "1:00", "1:02:03"] == [progress.clock(seconds) for seconds in (8.2, 59.9, 3723)]


def test_a_bar_fits_the_terminal_and_is_erased(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "60"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    with progress.Bar(10_000) as bar:
        assert bar.begin("fifo") is bar
        bar._draw(5000, "5,000 of 10,000 jobs")
    *lines, last = capsys.readouterr().err.split("\r\x1b[2K")
    assert ["", "fifo ......", "fifo ######"] == [line[:11] for line in lines]
    assert lines[2].endswith(" 50 % 5,000 of 10,000 jobs")
    assert 57 == len(lines[2])
    assert "" == last
