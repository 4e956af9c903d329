"""What NVIDIA's driver knows about the GPUs of this machine. No driver, no GPUs: that is no error."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpuyard.engines.contract import Transient
from gpuyard.errors import error_text


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU as the driver or the emulation describes it."""

    uuid: str
    name: str
    memory_mib: int
    numa: int = 0
    minor: int = -1
    """The number in the name of its device, /dev/nvidia0; -1: the driver does not say, or it is emulated."""
    linked: tuple[int, ...] = ()
    """Other GPUs, by their place in the list, that NVLink connects it to."""
    pids: tuple[int, ...] = ()
    """Processes that compute on it."""


def read_gpus() -> list[GpuReading]:
    """Every GPU the driver shows, in its order. Only processes that compute count: a desktop is no job."""
    try:
        import pynvml  # type: ignore[import-untyped]  # noqa: PLC0415  # only where there are GPUs
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [_read(pynvml, place, handles) for place in range(len(handles))]
    except pynvml.NVMLError as error:
        raise Transient(f"the GPUs cannot be read: {error}") from error
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read(nvml: Any, place: int, handles: list[Any]) -> GpuReading:
    handle = handles[place]
    return GpuReading(
        uuid=nvml.nvmlDeviceGetUUID(handle),
        name=nvml.nvmlDeviceGetName(handle),
        memory_mib=nvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
        numa=_numa(nvml.nvmlDeviceGetPciInfo(handle).busId),
        minor=_minor(nvml, handle),
        linked=tuple(i for i, other in enumerate(handles) if i != place and _linked(nvml, handle, other)),
        pids=tuple(sorted({process.pid for process in list_processes(nvml, handle)})),
    )


def list_processes(nvml: Any, handle: Any) -> list[Any]:
    """Processes that compute on a GPU, on all its slices."""
    with suppress(nvml.NVMLError):
        return list(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    return []


def _linked(nvml: Any, one: Any, other: Any) -> bool:
    with suppress(nvml.NVMLError):
        return bool(nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == 0)
    return False


def _minor(nvml: Any, handle: Any) -> int:
    with suppress(nvml.NVMLError):
        return int(nvml.nvmlDeviceGetMinorNumber(handle))
    return -1


MINORS = "/proc/driver/nvidia-caps/mig-minors"
"""Which device of /dev/nvidia-caps opens which slice: lines like `gpu0/gi5/ci0/access 49`."""


def find_capabilities(slices: Sequence[str]) -> tuple[int, ...]:
    """Numbers of the devices in /dev/nvidia-caps that open these MIG devices, by their UUIDs."""
    import pynvml  # noqa: PLC0415

    names = []
    try:
        pynvml.nvmlInit()
        for uuid in slices:
            device = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            gpu = pynvml.nvmlDeviceGetMinorNumber(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device))
            instance = f"gpu{gpu}/gi{pynvml.nvmlDeviceGetGpuInstanceId(device)}"
            names += [
                f"{instance}/access",
                f"{instance}/ci{pynvml.nvmlDeviceGetComputeInstanceId(device)}/access",
            ]
    except pynvml.NVMLError as error:
        raise Transient(f"the capabilities of {', '.join(slices)} cannot be read: {error}") from error
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    return minors_of(names)


def minors_of(names: Sequence[str], table: str = MINORS) -> tuple[int, ...]:
    """The numbers of capabilities by the names that the driver's own table has for them."""
    try:
        with open(table, encoding="ascii") as file:
            known = dict([line.split() for line in file if len(line.split()) == 2])
    except OSError as error:
        raise Transient(f"the capabilities of slices cannot be read: {error_text(error)}") from error
    if missing := [name for name in names if name not in known]:
        raise Transient(f"{table} has no {missing[0]}")
    return tuple(sorted([int(known[name]) for name in names]))


def _numa(bus_id: str) -> int:
    """The NUMA node of a PCI device; 0 where the kernel does not say. NVML writes the domain with eight digits."""
    with suppress(OSError, ValueError):
        short = bus_id.lower()[-12:]
        with open(f"/sys/bus/pci/devices/{short}/numa_node", encoding="ascii") as file:
            return max(0, int(file.read()))
    return 0
