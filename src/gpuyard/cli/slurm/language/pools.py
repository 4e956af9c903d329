"""Pools, tenants and classes by the names that a Slurm user has for them: those of yard.yaml, and the yard's own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuyard.engines.slurm_names import listed, named


class Pools:
    """Which partition a job is in, by its nodes or by what it asked for; and which jobs a name stands for."""

    def __init__(
        self, nodes: Iterable[Mapping[str, Any]], script_names: Mapping[str, Any] | None = None
    ) -> None:
        names = script_names or {}
        self._names: dict[str, list[str]] = names.get("partitions", {})
        self._accounts: dict[str, str] = names.get("accounts", {})
        self._qos: dict[str, str] = names.get("qos", {})
        self.of_node = {node["name"]: node["pool"] for node in nodes}
        pools = sorted(set(self.of_node.values()))
        self.listed = listed(pools, self._names)
        """Partitions with their pools, as lists show them."""
        self.known = self.listed | {pool: (pool,) for pool in pools}
        """With the pools that lists leave out because scripts have another name for them."""
        self._told: dict[tuple[str, str], str] = {}
        """Answers so far: most of thousands of jobs have the same."""
        self._all = ",".join(sorted({named(pool, "", self._names) for pool in pools}))

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
                    self._told[key] = named(*key, self._names)
                return self._told[key]
        return asked or self._all

    def with_pool(self, pool: str) -> list[str]:
        """The partitions that a pool is in."""
        return [name for name, pools in self.listed.items() if pool in pools]

    def in_partition(self, job: Any, wanted: Iterable[str]) -> bool:
        """Whether a job is in one of these partitions. The own name of a renamed pool is known too."""
        unlisted = {name for name in wanted if name in self.known and name not in self.listed}
        if set(wanted) & set(job.partition.split(",")):
            return True
        pools = {self.of_node.get(node, "") for node in job.nodes} or set(filter(None, job.pools.split(",")))
        return bool(unlisted & (pools or set(self.of_node.values())))

    def of_account(self, tenant: str, wanted: Iterable[str]) -> bool:
        """Whether a tenant is one of these, or below one of them."""
        return any([f"{tenant}/".startswith(f"{self._accounts.get(name, name)}/") for name in wanted])

    def of_qos(self, job: Any, wanted: Iterable[str]) -> bool:
        """Whether a job is of one of these classes."""
        return job.klass in [self._qos.get(name, name) for name in wanted]
