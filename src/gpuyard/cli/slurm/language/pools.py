"""Pools, tenants and classes by the names that a Slurm user has for them: those of yard.yaml, and the yard's own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuyard.wire.partition_names import choose_partition, list_partitions

_SIZE = ("pool", "gpu_model", "gpus", "cpus", "memory_mib")


def _tasks_on(node: Mapping[str, Any], gpus: float, cpus: float, memory_mib: int) -> int:
    """How many tasks an empty node holds; one that asks for nothing is held to a core."""
    asked = ((node["gpus"], gpus), (node["cpus"], cpus), (node["memory_mib"], memory_mib))
    return min([int(has // each) for has, each in asked if each], default=max(1, int(node["cpus"])))


class Pools:
    """Which partition a job is in, by its nodes or by what it asked for; and which jobs a name stands for."""

    def __init__(
        self, nodes: Iterable[Mapping[str, Any]], script_names: Mapping[str, Any] | None = None
    ) -> None:
        names = script_names or {}
        self._names: dict[str, list[str]] = names.get("partitions", {})
        self._accounts: dict[str, str] = names.get("accounts", {})
        self._qos: dict[str, str] = names.get("qos", {})
        nodes = list(nodes)
        self.of_node = {node["name"]: node["pool"] for node in nodes}
        sizes = {tuple([node.get(name) for name in _SIZE]): node for node in nodes}
        self._sizes = [node for size, node in sizes.items() if None not in size]
        """A node of each size in each pool."""
        self._fewest: dict[tuple[Any, ...], int] = {}
        pools = sorted(set(self.of_node.values()))
        self.listed = list_partitions(pools, self._names)
        """Partitions with their pools, as lists show them."""
        self.known = self.listed | {pool: (pool,) for pool in pools}
        """With the pools that lists leave out because scripts have another name for them."""
        self._told: dict[tuple[str, str], str] = {}
        """Answers so far: most of thousands of jobs have the same."""
        self._all = ",".join(sorted({choose_partition(pool, "", self._names) for pool in pools}))

    @classmethod
    def of_fleet(cls, fleet: Mapping[str, Any]) -> "Pools":
        """From a server's view of its fleet; an older server sends no names."""
        return cls(fleet["nodes"], fleet.get("script_names"))

    @property
    def default(self) -> str:
        """The partition that needs no name: the only one."""
        return next(iter(self.listed)) if len(self.listed) == 1 else ""

    def partition(self, nodes: Sequence[str], asked: str) -> str:
        """Where a job runs; before that, where it may."""
        for node in nodes:
            if node in self.of_node:
                key = (self.of_node[node], asked)
                if key not in self._told:
                    self._told[key] = choose_partition(*key, self._names)
                return self._told[key]
        return asked or self._all

    def fewest_nodes(
        self, pools: str, models: str, gpus: float, tasks: int, cpus: float, memory_mib: int
    ) -> int:
        """On how few nodes a job has room that none else is on; 1 where it fits nowhere.

        `cpus`, `memory_mib`: of each task.
        """
        key = (pools, models, gpus, tasks, cpus, memory_mib)
        known = self._fewest.get(key)
        if known is None:
            found = [
                -(-tasks // fits)
                for node in self._sizes
                if (not pools or node["pool"] in pools.split(","))
                and (not models or node["gpu_model"] in models.split(","))
                and (fits := _tasks_on(node, gpus / tasks, cpus, memory_mib))
            ]
            known = self._fewest[key] = max(1, min(found, default=1))
        return known

    def with_pool(self, pool: str) -> list[str]:
        """The partitions that a pool is in."""
        return [name for name, pools in self.listed.items() if pool in pools]

    def in_partition(self, job: Any, wanted: Iterable[str]) -> bool:
        """Whether a job is in one of these partitions. The own name of a renamed pool is known too."""
        if set(wanted) & set(job.partition.split(",")):
            return True
        unlisted = {name for name in wanted if name in self.known and name not in self.listed}
        return bool(unlisted & self._pools_of(job))

    def uses_partition(self, job: Any, wanted: Iterable[str]) -> bool:
        """The same for lists: a job that named no partition is in all that have its pool."""
        if self.in_partition(job, wanted):
            return True
        having = {pool for name in wanted for pool in self.known.get(name, ())}
        return not job.asked_partition and bool(having & self._pools_of(job))

    def _pools_of(self, job: Any) -> set[str]:
        """Where a job runs; before that, where it may."""
        pools = {self.of_node.get(node, "") for node in job.nodes} or set(filter(None, job.pools.split(",")))
        return pools or set(self.of_node.values())

    def of_account(self, tenant: str, wanted: Iterable[str]) -> bool:
        """Whether a tenant is one of these, or below one of them."""
        return any([f"{tenant}/".startswith(f"{self._accounts.get(name, name)}/") for name in wanted])

    def of_qos(self, job: Any, wanted: Iterable[str]) -> bool:
        """Whether a job is of one of these classes."""
        return job.klass in [self._qos.get(name, name) for name in wanted]
