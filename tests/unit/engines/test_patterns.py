"""File names with %-signs."""

import pytest

from gpuyard.engines.patterns import appends, check_pattern
from gpuyard.intake.sbatch import expand_pattern

VALUES = {"j": 128, "A": 120, "a": 7, "x": "train", "N": "n1", "u": "ana", "J": "128.0", "s": "batch"}


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("slurm-%j.out", "slurm-128.out"),
        ("%x_%A_%a.log", "train_120_7.log"),
        ("%x_%3a.log", "train_007.log"),
        ("%6j", "000128"),
        ("%u/%N.out", "ana/n1.out"),
        ("%5x", "train"),
        ("100%%", "100%"),
        ("%%j", "%j"),
        ("%q-%t", "%q-%t"),
        ("%", "%"),
        ("%999j", "0000000128"),
        ("\\%j", "%j"),
        ("plain", "plain"),
        ("%4s", "batch"),
        ("%J", "128.0"),
        (r"h\\%j", r"h\%j"),
    ],
)
def test_a_name_is_made(pattern: str, name: str) -> None:
    assert name == expand_pattern(pattern, VALUES)


def test_a_letter_that_stands_for_nothing_is_named() -> None:
    assert [] == check_pattern("%x-%j-%A-%a-%N-%u-%t-%%.out")
    assert ["%q stands for nothing and stays as it is"] == check_pattern("%q-%q-%j")
    told = "%a stands for the task's index in the array, and this is not an array: it stays as it is"
    assert [told] == check_pattern("%a-%j", array=False)


@pytest.mark.parametrize(
    ("mode", "restarts", "on"),
    [("", 0, False), ("", 1, True), ("append", 0, True), ("truncate", 1, False)],
)
def test_what_becomes_of_a_file_that_is_there(mode: str, restarts: int, on: bool) -> None:
    assert on is appends(mode, restarts)
