"""This machine: CPUs and memory within the bounds set on this process, its GPUs."""

import hashlib
import os
import socket
from contextlib import suppress
from dataclasses import dataclass

from gpuyard.engines.local.attempt import cgroups
from gpuyard.engines.local.translate import MachineReading
from gpuyard.engines.machine import nvml
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.model import CATALOGUE


@dataclass(frozen=True, slots=True)
class EmulatedGpus:
    """Emulated GPUs: everything about them is real but the computing."""

    count: int
    model: str


def hostname() -> str:
    """The name of this machine, without its domain."""
    return socket.gethostname().split(".")[0] or "localhost"


def emulated(gpus: EmulatedGpus, node: str) -> list[GpuReading]:
    """Readings of emulated GPUs, the same ones every time."""
    known = CATALOGUE.get(gpus.model)
    linked = known is not None and known.nvlink
    return [
        GpuReading(
            uuid=f"GPU-emulated-{hashlib.sha256(f'{node}/{i}'.encode()).hexdigest()[:12]}-{i}",
            name=gpus.model,
            memory_mib=known.memory_mib if known else 0,
            linked=tuple(j for j in range(gpus.count) if j != i) if linked else (),
        )
        for i in range(gpus.count)
    ]


def read_gpus(emulate: EmulatedGpus | None, node: str) -> list[GpuReading]:
    """The GPUs of this machine, or the emulated ones in their place."""
    return emulated(emulate, node) if emulate is not None else nvml.read_gpus()


def read_machine(name: str) -> MachineReading:
    """CPUs and memory that this process, and so its jobs, may use."""
    cpu_milli = len(os.sched_getaffinity(0)) * 1000
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for cpu_bound, memory_bound in _bounds():
        cpu_milli = min(cpu_milli, cpu_bound or cpu_milli)
        memory_bytes = min(memory_bytes, memory_bound or memory_bytes)
    return MachineReading(name=name, cpu_milli=cpu_milli, memory_mib=memory_bytes >> 20)


def _bounds() -> list[tuple[int, int]]:
    """(CPU in thousandths, memory in bytes) of every group around this process; 0: no bound."""
    found = []
    path = (cgroups.mount() or "") + cgroups.own_path().rstrip("/")
    while len(path) > 1:
        cpu = memory = 0
        with suppress(OSError, ValueError), open(f"{path}/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
            cpu = int(quota) * 1000 // int(period)
        with suppress(OSError, ValueError), open(f"{path}/memory.max", encoding="ascii") as file:
            memory = int(file.read())
        found.append((cpu, memory))
        path = os.path.dirname(path)
    return found


def free_port() -> int:
    """A port that no process listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
