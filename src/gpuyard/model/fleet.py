"""Clusters, pools, nodes and how their GPUs are wired."""

from dataclasses import dataclass
from enum import Enum


class Market(Enum):
    """How a pool's machines are paid for."""

    RESERVED = "reserved"
    ON_DEMAND = "on-demand"
    SPOT = "spot"


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
