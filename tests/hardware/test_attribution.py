"""Whose work a real GPU does: loads of known size against what the collector puts down to each of them.

The settings of the card are left as they are: the driver keeps no accounts unless somebody has switched them on.
`python3 -m hardware.test_attribution` prints the figures.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuyard.telemetry.collector import Collector
from gpuyard.telemetry.signals import attempt_subject, gpu_subject
from gpuyard.telemetry.sources import AttemptPlace
from gpuyard.telemetry.sources.kernel import Kernel
from gpuyard.telemetry.sources.nvml import NvmlSource

BURN = Path(__file__).with_name("burn.py")
LOADS = ((16_384, 90), (24_576, 50), (32_768, 20))
"""Memory in MiB and percent of the time of three processes."""
GPM = ("busy", "engine_active", "sm_active", "tensor_active", "power")
RUN_S, SETTLED_S, LOOKS, PAUSE_S = 9.0, 1.0, 6, 1.0


class Load:
    """One process of known need."""

    def __init__(self, python: str, memory_mib: int, duty: int, environment: dict[str, str]) -> None:
        self.duty = duty
        self.process = subprocess.Popen(
            [python, str(BURN), str(memory_mib), str(duty), str(RUN_S)],
            stdout=subprocess.PIPE, text=True, env=os.environ | environment,
        )  # fmt: skip

    def begun(self) -> None:
        assert self.process.stdout is not None
        assert json.loads(self.process.stdout.readline())["begun"]

    def did(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert 0 == self.process.wait(60)
        self.process.stdout.close()
        return found


def measured(
    python: str, loads: Sequence[tuple[int, int]], environment: dict[str, str] | None = None
) -> dict[str, Any]:
    """What the loads did, and what the collector said of each meanwhile: the mean over some looks."""
    running = [Load(python, memory, duty, environment or {}) for memory, duty in loads]
    for load in running:
        load.begun()
    source = NvmlSource()
    uuid = source.look(0)[0].uuid
    places = [
        AttemptPlace(str(number), pids=(load.process.pid,), devices=(uuid,))
        for number, load in enumerate(running)
    ]
    collector = Collector("here", source, lambda: places, Kernel())
    time.sleep(SETTLED_S)
    collector.take(0)
    looks = []
    for _ in range(LOOKS):
        time.sleep(PAUSE_S)
        told = collector.take(round(time.time() * 1000))
        looks.append(told)
    did = [load.did() for load in running]
    collector.close()

    def mean(name: str) -> float | None:
        values = [told[name] for told in looks if told.get(name) is not None]
        return sum(values) / len(values) if values else None  # type: ignore[arg-type]

    return {
        "gpu": {name: mean(f"{gpu_subject(0)}/{name}") for name in GPM},
        "loads": [
            own
            | {"duty": load.duty}
            | {
                name: mean(f"{attempt_subject(str(number))}/{name}")
                for name in ("gpu_memory", "gpu_busy", "gpu_busy_estimated")
            }
            for number, (own, load) in enumerate(zip(did, running, strict=True))
        ],
    }


@contextmanager
def mps() -> Iterator[dict[str, str]]:
    """MPS's daemon with folders of its own: no setting of the card."""
    with tempfile.TemporaryDirectory(prefix="yard-mps-") as folder:
        environment = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=os.environ | environment, check=True)
        try:
            yield environment
        finally:
            subprocess.run(
                ["nvidia-cuda-mps-control"],
                input="quit -t 5\n",
                text=True,
                env=os.environ | environment,
                check=False,
            )


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


def main() -> None:
    python = sys.argv[1] if len(sys.argv) > 1 else "python3"
    for load in LOADS:
        print("alone", json.dumps(measured(python, [load])), flush=True)
    print("in turns", json.dumps(measured(python, LOADS)), flush=True)
    if shutil.which("nvidia-cuda-mps-control"):
        with ExitStack() as stack:
            print("mps", json.dumps(measured(python, LOADS, stack.enter_context(mps()))), flush=True)


if __name__ == "__main__":
    main()
