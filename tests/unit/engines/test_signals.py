"""What GPUs do now, over a driver that is made up: whose memory it is, and what is not said is not known."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.engines.contract import Transient
from gpuyard.engines.local.gpus import signals
from gpuyard.engines.machine.nvml import GpuReading
from harness.steered import Steered

READINGS = [GpuReading("GPU-a", "NVIDIA H200", 143_771), GpuReading("GPU-b", "NVIDIA H200", 143_771)]


class NVMLError(Exception):
    """As the driver's library names it."""


class Driver(SimpleNamespace):
    """Two GPUs; the second one is cut, so it says nothing about its work."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0
    opened = 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.opened -= 1

    def __getattr__(self, name: str) -> Any:
        def answer(handle: str, *_rest: object) -> Any:
            return self.said(name, handle)

        return answer

    def said(self, name: str, handle: str) -> Any:
        if name == "nvmlDeviceGetHandleByUUID":
            return handle
        if name == "nvmlDeviceGetComputeRunningProcesses":
            return [SimpleNamespace(pid=pid, usedGpuMemory=pid << 20) for pid in (11, 12, 13, 14)]
        if handle == "GPU-b" and name == "nvmlDeviceGetUtilizationRates":
            raise NVMLError("Not Supported")
        return {
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=87),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=5 << 30),
            "nvmlDeviceGetPowerUsage": 412_600,
            "nvmlDeviceGetTemperature": 61,
        }[name]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", found)
    return found


def test_each_gpu_tells_what_it_can(driver: Driver) -> None:
    whose = {11: "y-1-1-1", 12: "y-1-2-1", 13: "y-1-1-1"}
    one, two = signals.read("here", READINGS, lambda pid: whose.get(pid, ""))
    assert (87, 5 << 10, 413, 61) == (one.busy_pct, one.memory_used_mib, one.power_w, one.temperature_c)
    assert (("y-1-1-1", 24), ("y-1-2-1", 12)) == one.attempts
    assert 14 == one.others_mib
    assert (1, None, 61) == (two.gpu, two.busy_pct, two.temperature_c)
    assert 0 == driver.opened


def test_a_driver_that_does_not_answer_is_trouble_and_no_gpus_are_none(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise NVMLError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", Steered(driver, nvmlInit=broken))
    assert () == signals.read("here", [], lambda _pid: "")
    with pytest.raises(Transient, match="Driver Not Loaded"):
        signals.read("here", READINGS, lambda _pid: "")


def test_a_gpu_that_has_gone_says_nothing(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_uuid: str) -> str:
        raise NVMLError("GPU is lost")

    monkeypatch.setitem(sys.modules, "pynvml", Steered(driver, nvmlDeviceGetHandleByUUID=gone))
    one, _two = signals.read("here", READINGS, lambda _pid: "")
    assert (None, None, ()) == (one.busy_pct, one.memory_used_mib, one.attempts)


def test_emulated_gpus_are_marked(driver: Driver) -> None:
    one, _two = signals.pretend_signals("here", READINGS)
    assert (True, None) == (one.emulated, one.busy_pct)
