"""Clusters, pools, nodes and how their GPUs are wired."""

from dataclasses import dataclass
from enum import Enum


class Market(Enum):
    """How a pool's machines are paid for."""

    RESERVED = "reserved"
    ON_DEMAND = "on-demand"
    SPOT = "spot"


class Capability(Enum):
    """What an engine may or may not be able to do. What is missing is refused, never ignored."""

    GANG = "gang"
    """Several tasks of one job, all or none."""
    SUSPEND = "suspend"
    """Freeze and go on."""
    LIMITS = "limits"
    """Memory and CPU limits are enforced. Without it they are counted, not held, and the engine says so."""
    SHARES = "shares"
    """Parts of a GPU."""
    SLICES = "slices"
    """GPUs are cut into MIG slices, by demand or to a layout that they keep."""
    INDICES = "indices"
    """An attempt gets the very GPUs that its launch names. Without it as many on the same node, and `Report.gpus`
    says which."""


@dataclass(frozen=True, slots=True)
class Node:
    """One machine. Its GPUs are alike and numbered from 0.

    `nvlink_group_size` GPUs in a row are linked (0: no NVLink), `numa_domains` split the GPUs evenly in order.
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
    """What jobs may ask for by name beside GPUs, cores and memory."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one shape, price and market."""

    name: str
    cluster: str
    market: Market
    price_micro_usd_h: int
    """Price of one GPU for one hour (of one node, where it has none)."""
    nodes: tuple[Node, ...]
