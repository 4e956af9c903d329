"""How the GPUs of a node are linked, and what is next to them: as NVIDIA's driver says, or as the emulation has it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpuyard.engines.contract import GpuPlace, Transient
from gpuyard.engines.local.cores import cores_text, read_domains, spread
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.model import Node

_ITSELF, _NVLINK = "X", "NV"
_WAYS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""What `nvidia-smi topo -m` calls the nearest thing that two GPUs have in common, by NVML's number for it."""
_LINKS_MAX = 18


def read(
    node: str,
    readings: Sequence[GpuReading],
    domains: Callable[[], Mapping[int, Collection[int]]] = read_domains,
) -> tuple[GpuPlace, ...]:
    """The GPUs of this machine. What the driver leaves out is not known. `domains`: the cores of each NUMA node."""
    import pynvml  # type: ignore[import-untyped]  # noqa: PLC0415  # only where there are GPUs

    if not readings:
        return ()
    near = domains()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise Transient(f"the GPUs cannot be read: {error}") from error
    try:
        handles = [_handle(pynvml, reading.uuid) for reading in readings]
        return tuple(
            [
                GpuPlace(
                    node,
                    gpu,
                    reading.memory_mib,
                    tuple([_way(pynvml, readings, handles, gpu, other) for other in range(len(handles))]),
                    _pcie(pynvml, handles[gpu]),
                    reading.numa,
                    cores_text(set(near.get(reading.numa, ()))),
                )
                for gpu, reading in enumerate(readings)
            ]
        )
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def pretend_places(node: Node, readings: Sequence[GpuReading]) -> tuple[GpuPlace, ...]:
    """Emulated GPUs: NVLink groups and NUMA domains split them evenly, in order."""
    near = spread(tuple(range(node.cpu_milli // 1000)), node.numa_domains)

    def way(gpu: int, other: int) -> str:
        linked = node.nvlink_group_size
        if gpu == other:
            return _ITSELF
        if linked and gpu // linked == other // linked:
            return _NVLINK
        return "NODE" if readings[gpu].numa == readings[other].numa else "SYS"

    return tuple(
        [
            GpuPlace(
                node.name,
                gpu,
                reading.memory_mib,
                tuple([way(gpu, other) for other in range(len(readings))]),
                numa=reading.numa,
                cores=cores_text(set(near.get(reading.numa, ()))),
                emulated=True,
            )
            for gpu, reading in enumerate(readings)
        ]
    )


def _handle(nvml: Any, uuid: str) -> Any:
    """None: it has fallen off the bus, or was removed."""
    with suppress(nvml.NVMLError):
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    return None


def _way(nvml: Any, readings: Sequence[GpuReading], handles: Sequence[Any], gpu: int, other: int) -> str:
    if gpu == other:
        return _ITSELF
    if handles[gpu] is None or handles[other] is None:
        return ""
    if other in readings[gpu].linked:
        count = _nvlinks(nvml, handles[gpu], handles[other])
        return f"{_NVLINK}{count}" if count else _NVLINK
    with suppress(nvml.NVMLError):
        return _WAYS.get(int(nvml.nvmlDeviceGetTopologyCommonAncestor(handles[gpu], handles[other])), "")
    return ""


def _nvlinks(nvml: Any, handle: Any, other: Any) -> int:
    """How many links go to another GPU; where they go to switches, all that are up. 0: the driver does not say."""
    up = [link for link in range(_LINKS_MAX) if _asked(nvml, "nvmlDeviceGetNvLinkState", handle, link) == 1]
    ends = [_asked(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link) for link in up]
    bus = getattr(_asked(nvml, "nvmlDeviceGetPciInfo", other), "busId", "")
    return len([end for end in ends if end is not None and end.busId == bus]) or len(up)


def _pcie(nvml: Any, handle: Any) -> str:
    if handle is None:
        return ""
    generation = _asked(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle)
    width = _asked(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle)
    return f"{generation}.0 x{width}" if generation and width else ""


def _asked(nvml: Any, call: str, *words: Any) -> Any:
    """What the driver answers; None: nothing."""
    with suppress(nvml.NVMLError):
        return getattr(nvml, call)(*words)
    return None
