"""NVML as a stand-in with the answers that a real H200 gave."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class Refused(Exception):
    """NVML's own error."""


class Recorded:
    """The module `pynvml`, with one GPU, or more that are alike. A call that could change a card fails."""

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

    def __init__(self, gpus: int = 1, **answers: Any) -> None:
        self.gpus = gpus
        self.answers = answers
        self.samples = 0
        self.gone = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # A list of events is called a set, and changes nothing.
        if "Set" in name.replace("EventSet", "") or "Clear" in name or "Reset" in name:
            raise AssertionError(f"{name} changes a setting of the card")
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
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return f"handle {index}"

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        kind, _, index = handle.partition(" ")
        return f"GPU-{int(index) + 1}" if kind == "handle" else handle

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
