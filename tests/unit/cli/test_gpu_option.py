"""`-g`: whole GPUs, a share of one, MIG slices."""

from typing import Any

import pytest

from gpuyard.cli.commands.submit.jobfields import _gpus
from gpuyard.errors import BadInput


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("2", {"gpus": 2}),
        ("0", {"gpus": 0}),
        ("0.25", {"gpus": 1, "gpu_milli": 250}),
        (".5", {"gpus": 1, "gpu_milli": 500}),
        ("0.125", {"gpus": 1, "gpu_milli": 125}),
        ("1g.18gb", {"gpus": 1, "mig": "1g.18gb"}),
        ("2x2g.35gb", {"gpus": 2, "mig": "2g.35gb"}),
        ("2 x 1G.18GB+me", {"gpus": 2, "mig": "1g.18gb+me"}),
    ],
)
def test_what_can_be_asked_for(text: str, fields: dict[str, Any]) -> None:
    assert fields == _gpus(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1.5", "a share is less than one GPU"),
        ("0.0001", "a share is less than one GPU"),
        ("0.0", "a share is less than one GPU"),
        ("-1", "is not an ask for GPUs"),
        ("all", "is not an ask for GPUs"),
        ("0x1g.18gb", "is not an ask for GPUs"),
        ("1g", "is not an ask for GPUs"),
    ],
)
def test_what_cannot_is_said_with_what_can(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        _gpus(text)
    assert caught.value.hint
