"""What the GPUs of this machine do now: load, temperature, memory by attempt. What the driver omits is unknown."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from gpuyard.engines.contract import GpuSignals, Transient
from gpuyard.engines.machine.nvml import GpuReading, list_processes

_MIB_BITS = 20
_MILLIWATTS = 1000


def read(
    node: str, readings: Sequence[GpuReading], attempt_of: Callable[[int], str]
) -> tuple[GpuSignals, ...]:
    """The signals of these GPUs; `attempt_of` gives the attempt of a process."""
    import pynvml  # type: ignore[import-untyped]  # noqa: PLC0415  # only where there are GPUs

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if not readings:
            return ()
        raise Transient(f"the GPUs cannot be read: {error}") from error
    try:
        return tuple(
            [_of_gpu(pynvml, node, gpu, reading, attempt_of) for gpu, reading in enumerate(readings)]
        )
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def pretend_signals(node: str, readings: Sequence[GpuReading]) -> tuple[GpuSignals, ...]:
    """Emulated GPUs exist, and do nothing that could be measured."""
    return tuple(
        [GpuSignals(node, gpu, reading.memory_mib, emulated=True) for gpu, reading in enumerate(readings)]
    )


def _of_gpu(
    nvml: Any, node: str, gpu: int, reading: GpuReading, attempt_of: Callable[[int], str]
) -> GpuSignals:
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(reading.uuid)
    except nvml.NVMLError:
        # It has fallen off the bus, or was removed: the next look at the node says so.
        return GpuSignals(node, gpu, reading.memory_mib)

    def asked(call: Callable[[], int]) -> int | None:
        with suppress(nvml.NVMLError):
            return call()
        return None

    used: dict[str, int] = {}
    for process in list_processes(nvml, handle):
        # The driver does not say how much where processes are hidden from it.
        used_mib = (process.usedGpuMemory or 0) >> _MIB_BITS
        key = attempt_of(process.pid)
        used[key] = used.get(key, 0) + used_mib
    others_mib = used.pop("", 0)
    return GpuSignals(
        node=node,
        gpu=gpu,
        memory_mib=reading.memory_mib,
        busy_pct=asked(lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
        memory_used_mib=asked(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used) >> _MIB_BITS),
        power_w=asked(lambda: round(nvml.nvmlDeviceGetPowerUsage(handle) / _MILLIWATTS)),
        temperature_c=asked(lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
        attempts=tuple(sorted(used.items())),
        others_mib=others_mib,
    )
