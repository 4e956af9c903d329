"""Whose work a real GPU does: loads of known size against what the collector puts down to each of them."""

import os
import shutil
from typing import Any

import pytest

from .attribution import LOADS, measured, mps


def check_memory(found: dict[str, Any]) -> None:
    for load in found["loads"]:
        assert abs(load["gpu_memory"] - load["memory_mib"]) <= 0.05 * load["memory_mib"], load


@pytest.fixture(scope="module")
def python() -> str:
    from .conftest import python_with_torch  # noqa: PLC0415

    return os.environ.get("GPU_PYTHON") or python_with_torch()


@pytest.mark.parametrize("load", LOADS, ids=lambda load: f"{load[1]} percent")
def test_alone_the_work_is_measured(python: str, load: tuple[int, int]) -> None:
    found = measured(python, [load])
    check_memory(found)
    (own,) = found["loads"]
    assert own["gpu_busy_estimated"] is None
    assert abs(own["gpu_busy"] - own["busy"]) <= 100, own


def test_taking_turns_memory_is_exact_and_work_is_marked(python: str) -> None:
    found = measured(python, LOADS)
    check_memory(found)
    assert {True} == {
        (load["gpu_busy"] is None) != (load["gpu_busy_estimated"] is None) for load in found["loads"]
    }


@pytest.mark.skipif(shutil.which("nvidia-cuda-mps-control") is None, reason="there is no MPS here")
def test_under_mps_memory_is_exact_and_work_is_an_estimate(python: str) -> None:
    with mps() as environment:
        found = measured(python, LOADS, environment)
    check_memory(found)
    assert {None} == {load["gpu_busy"] for load in found["loads"]}
    assert None not in {load["gpu_busy_estimated"] for load in found["loads"]}
