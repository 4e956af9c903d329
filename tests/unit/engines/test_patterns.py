"""File names with %-signs."""

import pytest

from gpuyard.engines.patterns import check
from gpuyard.intake import expand_pattern

VALUES = {"j": 128, "A": 120, "a": 7, "x": "train", "N": "n1", "u": "ana"}


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
    ],
)
def test_a_name_is_made(pattern: str, name: str) -> None:
    assert name == expand_pattern(pattern, VALUES)


def test_a_letter_that_stands_for_nothing_is_named() -> None:
    assert [] == check("%x-%j-%A-%a-%N-%u-%t-%%.out")
    assert ["%q stands for nothing and stays as it is"] == check("%q-%q-%j")
