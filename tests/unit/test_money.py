"""Money as people read it: one rule for digits, and csv that no program runs."""

import io
from contextlib import redirect_stdout

import pytest

from gpuyard.cli.listings.tables import write_csv
from gpuyard.money import digits, rate_usd, usd


@pytest.mark.parametrize(
    ("amounts", "texts"),
    [
        ([0, 1_230_000, 1_234_567_890], ["$0.00", "$1.23", "$1,234.57"]),
        ([500_000, 2_500_000], ["$0.50", "$2.50"]),
        # One amount that cents would hide makes all of them finer, so that they are seen to add up.
        ([60_400, 395_800, 99_543_800, 100_000_000], ["$0.0604", "$0.3958", "$99.5438", "$100.0000"]),
        ([-4_321, 0], ["-$0.0043", "$0.0000"]),
    ],
)
def test_amounts_side_by_side_have_as_many_digits(amounts: list[int], texts: list[str]) -> None:
    assert texts == [usd(each, digits(amounts)) for each in amounts]


def test_what_a_job_may_take_is_rounded_up_and_a_rate_keeps_its_digits() -> None:
    assert ["$1.01", "$0.0001", "$0.00"] == [usd(each, up=True) for each in (1_000_001, 1, 0)]
    assert ["$2.50", "$0.000125", "$1,000.00"] == [rate_usd(each) for each in (2_500_000, 125, 10**9)]


def test_a_cell_of_csv_is_no_formula_and_a_number_stays_one() -> None:
    harmful = ["=cmd|' /C calc'!A0", "+1+HYPERLINK(1)", "-2+cmd", "@SUM(A1)", "\t=1+x"]
    numbers = [-3, -0.5, "-3", "-$0.0043", "-12.5 %"]
    written = io.StringIO()
    with redirect_stdout(written):
        write_csv(
            ["=name", "tenant,a"],
            [["=1+x", 'say "hi"'], *[[text, number] for text, number in zip(harmful, numbers, strict=True)]],
        )

    head, first, *rest = written.getvalue().splitlines()
    assert ('\'=name,"tenant,a"', '\'=1+x,"say ""hi"""') == (head, first)
    assert all(line.startswith(("'=", "'+", "'-", "'@", "'\\t")) for line in rest)
    assert ["-3", "-0.5", "-3", "-$0.0043", "-12.5 %"] == [line.rpartition(",")[2] for line in rest]
