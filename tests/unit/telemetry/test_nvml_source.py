"""NVML through a stand-in with the answers that a real H200 gave: whole, shared by MPS, cut by MIG; never set."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.telemetry.sources.nvml import NvmlSource


class Refused(Exception):
    """NVML's own error."""


class Recorded:
    """The module `pynvml`, with one GPU. A call that could change the card fails the test."""

    NVMLError = Refused
    NVML_SUCCESS = 0
    NVML_TEMPERATURE_GPU = NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_DEVICE_MIG_ENABLE = NVML_FEATURE_ENABLED = 1
    NVML_FI_DEV_MEMORY_TEMP = 82
    NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION = 83
    NVML_FI_DEV_PCIE_COUNT_TX_BYTES = 197
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 138
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_GRAPHICS_UTIL, NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_SM_OCCUPANCY = 1, 2, 3
    NVML_GPM_METRIC_ANY_TENSOR_UTIL, NVML_GPM_METRIC_DRAM_BW_UTIL = 5, 10

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.samples = 0
        self.gone = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if "Set" in name or "Clear" in name or "Reset" in name:
            pytest.fail(f"{name} changes a setting of the card")
        if name.startswith("NVML_FI"):
            raise AttributeError(name)

        def unsupported(*_arguments: Any) -> Any:
            if name in self.answers:
                return self.answers[name]
            raise Refused(name)

        return unsupported

    def nvmlInit(self) -> None:  # noqa: N802
        if self.gone:
            raise Refused("no driver")

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.159"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return f"handle {index}"

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        return "GPU-1" if handle == "handle 0" else handle

    def nvmlDeviceGetName(self, _handle: str) -> str:  # noqa: N802
        return "NVIDIA H200"

    def nvmlDeviceGetPciInfo(self, _handle: str) -> Any:  # noqa: N802
        return SimpleNamespace(busId="00000000:1B:00.0")

    def nvmlDeviceGetMemoryInfo(self, _handle: str) -> Any:  # noqa: N802
        if self.gone:
            raise Refused("lost")
        return SimpleNamespace(used=5 << 30, free=135 << 30)

    def nvmlDeviceGetFieldValues(self, _handle: str, fields: list[tuple[int, int]]) -> list[Any]:  # noqa: N802
        known = {82: 46, 83: 123_456_789, 197: 10 << 20}
        return [
            SimpleNamespace(
                nvmlReturn=0 if field in known else 3,
                valueType=3,
                value=SimpleNamespace(ullVal=known.get(field)),
            )
            for field, _scope in fields
        ]

    def nvmlGpmSampleAlloc(self) -> list[int]:  # noqa: N802
        self.samples += 1
        return [-1]

    def nvmlGpmSampleFree(self, _sample: Any) -> None:  # noqa: N802
        self.samples -= 1

    def nvmlGpmSampleGet(self, _handle: str, sample: list[int]) -> None:  # noqa: N802
        sample[0] = 0

    def nvmlGpmMigSampleGet(self, _handle: str, instance: int, sample: list[int]) -> None:  # noqa: N802
        sample[0] = instance

    def c_nvmlGpmMetricsGet_t(self) -> Any:  # noqa: N802
        return SimpleNamespace(metrics=[SimpleNamespace() for _ in range(333)])

    def nvmlGpmMetricsGet(self, asked: Any) -> Any:  # noqa: N802
        told = {
            0: (98.1, 93, 13.6, 88.8, 10.5),
            5: (98.1, 87.0, 0, 82.5, 0),
            9: (29.3, 25.8, 0, 24.1, float("nan")),
        }
        for number in range(asked.numMetrics):
            asked.metrics[number].nvmlReturn = 0
            asked.metrics[number].value = told[asked.sample2[0]][number]
        return asked


GPM = {"nvmlGpmQueryDeviceSupport": SimpleNamespace(isSupportedDevice=1)}


def process(pid: int, mib: int | None, instance: int | None = None) -> Any:
    return SimpleNamespace(
        pid=pid, usedGpuMemory=None if mib is None else mib << 20, gpuInstanceId=instance, computeInstanceId=0
    )


def test_a_whole_gpu_tells_everything_it_supports() -> None:
    nvml = Recorded(
        **GPM,
        nvmlDeviceGetUtilizationRates=SimpleNamespace(gpu=93, memory=11),
        nvmlDeviceGetPowerUsage=612_345,
        nvmlDeviceGetTemperature=51,
        nvmlDeviceGetClockInfo=1980,
        nvmlDeviceGetCurrentClocksEventReasons=4,
        nvmlDeviceGetMigMode=[0, 0],
        nvmlDeviceGetComputeRunningProcesses=[process(77, 4500)],
    )
    source = NvmlSource(nvml)
    first, second = source.look(0)[0], source.look(10_000)[0]

    assert 930 == first.values["busy"]
    assert 612.345 == first.values["power"]
    assert (46, 123_456, 10_240) == tuple(
        first.values[name] for name in ("memory_temperature", "energy", "pcie_sent")
    )
    assert "nvlink_sent" not in first.values, "a field that is refused leaves a hole"
    assert "sm_active" not in first.values, "one GPM sample tells nothing"
    assert (930, 136, 888, 105) == tuple(
        second.values[name] for name in ("sm_active", "sm_occupancy", "tensor_active", "dram_active")
    )
    assert [(77, 4500, None)] == [(each.pid, each.memory_mib, each.accounted) for each in second.processes]
    assert ("NVIDIA H200", "580.159", "00000000:1B:00.0", False) == (
        second.model, second.driver, second.pci, second.mps,
    )  # fmt: skip
    source.close()
    assert 0 == nvml.samples


def test_accounts_are_read_where_they_are_on() -> None:
    nvml = Recorded(
        nvmlDeviceGetMigMode=[0, 0],
        nvmlDeviceGetAccountingMode=1,
        nvmlDeviceGetAccountingStats=SimpleNamespace(startTime=0, gpuUtilization=57),
        nvmlDeviceGetComputeRunningProcesses=[process(77, None)],
    )
    (look,) = NvmlSource(nvml).look(60_000)

    assert [(77, None, 570)] == [(each.pid, each.memory_mib, each.accounted) for each in look.processes]


def test_clients_of_mps_are_seen_with_their_memory() -> None:
    nvml = Recorded(
        nvmlDeviceGetMigMode=[0, 0],
        nvmlDeviceGetComputeRunningProcesses=[process(50, 30)],
        nvmlDeviceGetMPSComputeRunningProcesses=[process(77, 1000), process(78, 2000)],
    )
    (look,) = NvmlSource(nvml).look(0)

    assert look.mps
    assert [(50, 30), (77, 1000), (78, 2000)] == [(each.pid, each.memory_mib) for each in look.processes]


def test_a_cut_gpu_tells_slice_by_slice() -> None:
    class Cut(Recorded):
        def nvmlDeviceGetMigDeviceHandleByIndex(self, _handle: str, index: int) -> str:  # noqa: N802
            return ("MIG-a", "MIG-b")[index]

        def nvmlDeviceGetGpuInstanceId(self, device: str) -> int:  # noqa: N802
            return {"MIG-a": 5, "MIG-b": 9}[device]

    nvml = Cut(
        **GPM,
        nvmlDeviceGetMigMode=[1, 1],
        nvmlDeviceGetMaxMigDeviceCount=2,
        nvmlDeviceGetComputeInstanceId=0,
        nvmlDeviceGetComputeRunningProcesses=[process(77, 1000, 5), process(78, 2000, 9)],
    )
    source = NvmlSource(nvml)
    source.look(0)
    (look,) = source.look(10_000)

    assert {"MIG-a": 981, "MIG-b": 293} == look.slices_busy
    assert {77: "MIG-a", 78: "MIG-b"} == {each.pid: each.instance for each in look.processes}
    assert "busy" not in look.values
    source.close()
    assert 0 == nvml.samples


def test_a_gpu_that_is_lost_leaves_a_hole_and_comes_back() -> None:
    nvml = Recorded(nvmlDeviceGetMigMode=[0, 0])
    source = NvmlSource(nvml)
    assert 1 == len(source.look(0))
    nvml.gone = True
    assert [] == source.look(1)
    assert [] == source.look(2)
    nvml.gone = False
    assert 1 == len(source.look(3))


def test_gpus_stand_where_the_node_has_them() -> None:
    nvml = Recorded(nvmlDeviceGetMigMode=[0, 0])

    assert [3] == [each.gpu for each in NvmlSource(nvml, lambda: ["x", "y", "z", "GPU-1"]).look(0)]
    assert [] == NvmlSource(nvml, lambda: ["x"]).look(0)
