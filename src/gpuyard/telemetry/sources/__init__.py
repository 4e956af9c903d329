"""Where signals come from. A source is asked for what it sees now, and leaves out what it cannot see."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuyard.telemetry.attribution import FULL


@dataclass(frozen=True, slots=True)
class GpuCard:
    """What a GPU is, for labels."""

    uuid: str = ""
    model: str = ""
    pci: str = ""
    driver: str = ""


@dataclass(frozen=True, slots=True)
class ProcessOnGpu:
    """A process that has memory on a GPU."""

    pid: int
    memory_mib: int | None
    """None: the driver does not say."""
    accounted: int | None = None
    """How busy it kept the GPU, in parts of a thousand, by the driver's accounts; None: it keeps none."""
    instance: str = ""
    """The UUID of the MIG device that it is on; empty: on the whole GPU."""
    attempt: str = ""
    """Whose it is, where the source itself knows."""


@dataclass(frozen=True, slots=True)
class GpuLook:
    """One GPU at one moment."""

    gpu: int
    """Its place on the node."""
    uuid: str
    values: Mapping[str, int | float | None]
    """By the name of the signal."""
    processes: tuple[ProcessOnGpu, ...] = ()
    slices_busy: Mapping[str, int] | None = None
    """How busy its MIG devices were, by their UUIDs; None: it is not cut, or does not say."""
    model: str = ""
    pci: str = ""
    driver: str = ""
    mps: bool = False
    """Whether its processes come through MPS."""


class GpuSource(Protocol):
    """Something that sees GPUs."""

    def look(self, now_ms: int) -> Sequence[GpuLook]:
        """Every GPU, as it is now."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


@dataclass(frozen=True, slots=True)
class AttemptPlace:
    """Where the processes of an attempt are, as its engine knows."""

    key: str
    group: str = ""
    """Its cgroup of v2, as a folder; empty: it has none."""
    groups_v1: Mapping[str, str] | None = None
    """Its cgroups of v1 by controller, as folders."""
    pids: tuple[int, ...] = ()
    """Processes below which everything is its own, for attempts without a cgroup."""
    devices: tuple[str, ...] = ()
    """UUIDs of its GPUs or MIG devices on this node."""
    cut: tuple[int, ...] = ()
    """Numbers of the GPUs of which it has slices, where the engine says so."""
    milli: int = FULL
    """The share that it was granted of each of them, in parts of a thousand."""
    started_ms: int = 0
    script: str = ""
    """What it does on emulated GPUs (`sources/emulated.py`)."""


class MachineSource(Protocol):
    """Something that sees a machine and its processes: its kernel, or what others have kept of it."""

    def node(self) -> Mapping[str, int | float]:
        """The machine's own signals."""
        ...

    def attempt(self, place: AttemptPlace, /) -> Mapping[str, int | float]:
        """What the processes of an attempt took."""
        ...

    def attempt_of(self, places: Sequence[AttemptPlace], /) -> Callable[[int], str]:
        """A function that names the attempt of a process; empty: it is nobody's."""
        ...

    def name_of(self, pid: int, /) -> str:
        """The name of a process's program; empty: it is not known."""
        ...
