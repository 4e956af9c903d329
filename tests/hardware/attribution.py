"""Loads of known size on a real GPU, and what the collector puts down to each of them meanwhile.

    PYTHONPATH=src:tests python3 -m hardware.attribution [PYTHON_WITH_TORCH]

prints the figures in about two minutes. It needs NVIDIA's Python bindings of NVML and PyTorch, and no other package.
The settings of the card are left as they are: the driver keeps no accounts unless somebody has switched them on.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    """One process of known need. It waits, with its memory taken, until it is told to go."""

    def __init__(self, python: str, memory_mib: int, duty: int, environment: dict[str, str]) -> None:
        self.duty = duty
        self.process = subprocess.Popen(
            [python, str(BURN), str(memory_mib), str(duty), str(RUN_S)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | environment,
        )  # fmt: skip

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the load ended with {self.process.wait(60)}; what it said stands above")
        found: dict[str, Any] = json.loads(line)
        return found

    def begun(self) -> None:
        assert self._line()["begun"]

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def did(self) -> dict[str, Any]:
        found = self._line()
        assert 0 == self.process.wait(60)
        return found

    def end(self) -> None:
        """Nothing of it is left on the GPU."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def measured(
    python: str, loads: Sequence[tuple[int, int]], environment: dict[str, str] | None = None
) -> dict[str, Any]:
    """What the loads did, and what the collector said of each meanwhile: the mean over some looks."""
    running: list[Load] = []
    source = NvmlSource()
    try:
        running += [Load(python, memory, duty, environment or {}) for memory, duty in loads]
        for load in running:
            load.begun()
        return _looked_at(source, running)
    finally:
        source.close()
        for load in running:
            load.end()


def _looked_at(source: NvmlSource, running: Sequence[Load]) -> dict[str, Any]:
    gpus = source.look(round(time.time() * 1000))
    if not gpus:
        raise SystemExit("NVML shows no GPU on this machine")
    uuid = gpus[0].uuid
    places = [
        AttemptPlace(str(number), pids=(load.process.pid,), devices=(uuid,))
        for number, load in enumerate(running)
    ]
    collector = Collector("here", source, lambda: places, Kernel())
    for load in running:
        load.go()
    time.sleep(SETTLED_S)
    collector.take(round(time.time() * 1000))
    looks = []
    for _ in range(LOOKS):
        time.sleep(PAUSE_S)
        looks.append(collector.take(round(time.time() * 1000)))
    did = [load.did() for load in running]

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
    with tempfile.TemporaryDirectory(prefix="yard-mps-", ignore_cleanup_errors=True) as folder:
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


ROW = "| {} | {} | {:,} | {:,} | {} | {} | {} | {} | {:.1f} |"
HEAD = """
| GPU is | load % | memory MiB | told | own work | its part of the GPU's | told | by | own TFLOP |
|---|---:|---:|---:|---:|---:|---:|---|---:|"""


def rows(name: str, found: dict[str, Any]) -> Iterator[str]:
    """A line of a table for each load: what it did, and what was told of it; work in percent of the time."""
    whole, busy = sum([load["tflop"] for load in found["loads"]]), found["gpu"]["busy"] or 0
    for load in found["loads"]:
        told = load["gpu_busy"] if load["gpu_busy"] is not None else load["gpu_busy_estimated"]
        yield ROW.format(
            name, load["duty"], load["memory_mib"], round(load["gpu_memory"] or 0), f"{load['busy'] / 10:.1f}",
            f"{busy * load['tflop'] / whole / 10:.1f}" if whole else "-",
            "-" if told is None else f"{told / 10:.1f}",
            "measured" if load["gpu_busy"] is not None else "estimated", load["tflop"],
        )  # fmt: skip


def main() -> None:
    python = sys.argv[1] if len(sys.argv) > 1 else "python3"
    table = []
    for load in LOADS:
        found = measured(python, [load])
        print("alone", json.dumps(found), flush=True)
        table += rows("one's own", found)
    found = measured(python, LOADS)
    print("in turns", json.dumps(found), flush=True)
    table += rows("time-sliced", found)
    if shutil.which("nvidia-cuda-mps-control"):
        with mps() as environment:
            found = measured(python, LOADS, environment)
        print("mps", json.dumps(found), flush=True)
        table += rows("under MPS", found)
    else:
        print("there is no nvidia-cuda-mps-control here: nothing was measured under MPS")
    print(HEAD, *table, sep="\n")


if __name__ == "__main__":
    main()
