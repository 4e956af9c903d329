"""Clusters, pools, nodes and how their GPUs are wired."""

from dataclasses import dataclass
from enum import Enum, StrEnum

from gpuyard.model.placement import Taint


class Market(Enum):
    """How a pool's machines are paid for."""

    RESERVED = "reserved"
    ON_DEMAND = "on-demand"
    SPOT = "spot"


class Capability(Enum):
    """What an engine may or may not be able to do. An ask for a missing capability is refused, never ignored."""

    GANG = "gang"
    """Several tasks of one job, all or none."""
    SUSPEND = "suspend"
    """Suspend an attempt and continue it."""
    LIMITS = "limits"
    """Memory and CPU limits are enforced. Without it they are only counted, and the engine says so."""
    SHARES = "shares"
    """Parts of a GPU."""
    SLICES = "slices"
    """GPUs are cut into MIG slices, on demand or to a pinned layout."""
    INDICES = "indices"
    """An attempt gets exactly the GPUs that its launch names. Without it, it gets as many on the same node, and
    `AttemptReport.gpus` says which."""
    IMAGES = "images"
    """Jobs in container images."""
    NEW_LIMITS = "new limits"
    """An attempt that runs gets another time limit."""


class Level(StrEnum):
    """How near to each other the nodes of a gang are, from the nearest."""

    SWITCH = "switch"
    RACK = "rack"
    FABRIC = "fabric"


@dataclass(frozen=True, slots=True)
class Node:
    """One machine. Its GPUs are alike and numbered from 0.

    `nvlink_group_size` consecutive GPUs are linked (0: no NVLink), `numa_domains` split the GPUs evenly in order.
    """

    name: str
    cluster: str
    pool: str
    gpu_model: str
    gpus: int
    cpu_milli: int
    memory_mib: int
    nvlink_group_size: int = 0
    numa_domains: int = 1
    switch: str = ""
    rack: str = ""
    features: tuple[str, ...] = ()
    """What jobs may ask for by name besides GPUs, cores and memory: labels with an empty value."""
    labels: tuple[tuple[str, str], ...] = ()
    """What the engine says of it, by key. What the configuration and people say, and what follows from the rest, is
    added by `core.fleet.marks`."""
    taints: tuple[Taint, ...] = ()
    """What of the engine keeps jobs away from it."""
    """What jobs may ask for by name besides GPUs, cores and memory."""
    fabric: str = ""
    """The network that it is on: no gang is on two. Nodes of a cluster without a name for it are on the same."""

    def place(self, level: Level) -> str:
        """The name of its switch, rack or fabric."""
        return self.switch if level is Level.SWITCH else self.rack if level is Level.RACK else self.fabric

    @property
    def domain_gpus(self) -> int:
        """How many GPUs in a row are in one NUMA domain; all: there is one, or they are not split evenly."""
        even = self.numa_domains > 1 and self.gpus % self.numa_domains == 0
        return self.gpus // self.numa_domains if even else self.gpus

    @property
    def close_gpus(self) -> int:
        """How many GPUs in a row are close: an NVLink group, else those of one NUMA domain; 0 or all: no difference."""
        linked, domains = self.nvlink_group_size, self.numa_domains
        if 1 < linked < self.gpus or domains < 2 or self.gpus % domains or self.gpus == domains:
            return linked
        return self.gpus // domains


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one shape and market; `PriceBook` has what they cost."""

    name: str
    cluster: str
    market: Market
    nodes: tuple[Node, ...]
