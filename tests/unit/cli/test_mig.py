"""The picture of a GPU that is cut, and what people say and are told about layouts."""

from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli.commands.yard import mig
from gpuyard.cli.commands.yard.mig import picture
from gpuyard.errors import BadInput
from gpuyard.model.mig import MIG_MODELS


def test_a_box_is_as_wide_as_its_memory() -> None:
    drawn = picture(
        8, {0: ("2g.35gb", "3"), 3: ("1g.18gb", "12345"), 4: ("3g.71gb", "1")}, MIG_MODELS["H200"]
    )
    assert "[2g.35gb 3     ]........[1g 123][3g.71gb 1                     ]" == drawn
    assert 64 == len(drawn)


def test_an_a30_has_four_slots() -> None:
    assert "[1g 7  ]........[2g.12gb 8     ]" == picture(
        4, {0: ("1g.6gb", "7"), 2: ("2g.12gb", "8")}, MIG_MODELS["A30"]
    )


@pytest.mark.parametrize(("text", "gpus"), [("0", [0]), (" 2, 0-1,1", [0, 1, 2]), ("7-7", [7])])
def test_gpus_are_read(text: str, gpus: list[int]) -> None:
    assert gpus == mig._gpus(text)


@pytest.mark.parametrize("text", ["", ",", "0-", "3-0", "-1", "x", "0-99999999999", "9" * 5000, "\u0663"])
def test_what_is_no_list_of_gpus_is_refused(text: str) -> None:
    """An empty one too: a script's variable that was never set does not mean all GPUs."""
    with pytest.raises(BadInput, match="is not a list of GPUs"):
        mig._gpus(text)


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(BadInput, match="larger than 1 MiB"):
        mig._names(Path("/dev/zero"))


class Told:
    """A yard that says of its only node what it is told to."""

    def __init__(self, *pins: list[dict[str, Any]]) -> None:
        self.pins = list(pins)

    def mig(self) -> dict[str, Any]:
        """The next answer; the last one again and again."""
        now = self.pins.pop(0) if len(self.pins) > 1 else self.pins[0]
        return {"nodes": [{"node": "n", "pins": now}]}


def pin(gpu: int, profile: str, *, made: bool = True) -> dict[str, Any]:
    """What a yard says of a pinned GPU."""
    return {"gpu": gpu, "layout": profile, "slices": [[profile, 0]], "made": made, "why": "", "took_ms": 0}


def test_apply_waits_until_all_that_was_asked_for_is_made() -> None:
    asked = {0: [["1g.18gb", 0]], 1: [["1g.18gb", 0]]}
    begun = [pin(0, "1g.18gb"), pin(1, "1g.18gb", made=False)]
    yard = Told(begun, [pin(0, "1g.18gb"), pin(1, "1g.18gb"), pin(2, "7g.141gb", made=False)])
    assert {} == mig._made(yard, "n", asked, 60)[1]  # type: ignore[arg-type]
    assert {1: "not made yet"} == mig._made(Told(begun), "n", asked, 0)[1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("after", "says"),
    [([], "GPU 0 was released"), ([pin(0, "7g.141gb")], "GPU 0 was pinned to 7g.141gb")],
)
def test_who_is_overtaken_by_somebody_else_is_told(after: list[dict[str, Any]], says: str) -> None:
    yard = Told([pin(0, "1g.18gb", made=False)], after)
    with pytest.raises(mig.NotMade, match=says):
        mig._made(yard, "n", {0: [["1g.18gb", 0]]}, 60)  # type: ignore[arg-type]
