"""The picture of a GPU that is cut."""

from gpuyard.cli.mig import picture
from gpuyard.model.mig import MOLDS


def test_a_box_is_as_wide_as_its_memory() -> None:
    drawn = picture(8, {0: ("2g.35gb", "3"), 3: ("1g.18gb", "12345"), 4: ("3g.71gb", "1")}, MOLDS["H200"])
    assert "[2g.35gb 3     ]........[1g 123][3g.71gb 1                     ]" == drawn
    assert 64 == len(drawn)


def test_an_a30_has_four_slots() -> None:
    assert "[1g 7  ]........[2g.12gb 8     ]" == picture(
        4, {0: ("1g.6gb", "7"), 2: ("2g.12gb", "8")}, MOLDS["A30"]
    )
