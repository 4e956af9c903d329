"""From clusters and pools in the file to nodes with names, wiring and prices."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuyard.config import engine_keys
from gpuyard.config.engine_keys import Read
from gpuyard.config.prices import build_prices
from gpuyard.config.schema import POOLS_SHOWN, ClusterEntry, PoolEntry, ReserveEntry, YardFile
from gpuyard.config.values import Cluster
from gpuyard.core.phrases import cores_text
from gpuyard.engines.registry import DEFAULT, EngineKind, kind_of, own_kinds
from gpuyard.errors import quote, suggest
from gpuyard.keys.findings import Findings, unknown_model
from gpuyard.keys.problems import Path, described
from gpuyard.model import (
    CATALOGUE,
    ClusterPreference,
    GpuModel,
    GpuReserve,
    Market,
    Node,
    Pool,
    Price,
    Settings,
)
from gpuyard.model.settings import TOTAL
from gpuyard.model.stand_in import STAND_IN_GPUS, STAND_IN_MODEL, clusters_text, value_text
from gpuyard.model.units import MILLI
from gpuyard.quantities import NODES_MAX, memory_words

Models = dict[str, GpuModel]


def read_models(file: YardFile, findings: Findings) -> Models:
    """Every GPU model that the file may name: the catalogue's and its own."""
    known = dict(CATALOGUE)
    for name, entry in (file.gpu_models or {}).items():
        path = ("gpu_models", name)
        if name == TOTAL:
            findings.at_key(path, f"a GPU model cannot be named {quote(name)}, which quotas use for the sum")
        elif name in CATALOGUE:
            text = f"GPU model {quote(name)} is in the catalogue already; change its price under 'prices'"
            findings.at_key(path, text)
        else:
            known[name] = GpuModel(name, entry.memory, bool(entry.nvlink), bool(entry.mig), entry.price)
    return known


def check_models(named: Iterator[tuple[Path, str]], known: Models, findings: Findings) -> None:
    """Refuse keys that are no GPU model."""
    for path, name in named:
        if name not in known:
            findings.at_key(path, unknown_model(name, known))


@dataclass(frozen=True, slots=True)
class _Named:
    """A pool of the file, with its place there."""

    cluster: str
    kind: EngineKind
    name: str
    entry: PoolEntry

    def path(self, key: str) -> Path:
        return (*self.own_path, key)

    @property
    def own_path(self) -> Path:
        return ("clusters", self.cluster, "pools", self.name)


def _pools(file: YardFile) -> Iterator[_Named]:
    for cluster, cluster_entry in file.clusters.items():
        for name, entry in (cluster_entry.pools or {}).items():
            yield _Named(cluster, kind_for(cluster_entry), name, entry)


def check_fleet(file: YardFile, read: Read, known: Models, findings: Findings) -> None:
    """Refuse what the schema cannot see: clashes between pools, and pools that do not add up."""
    if not file.clusters:
        findings.at_key(("clusters",), f"there are no clusters; write '{clusters_text()}'")
    for cluster, cluster_entry in file.clusters.items():
        _check_cluster(cluster, cluster_entry, known, findings)
    engine_keys.check(_kinds(file), _pooled(file), read, known, findings)
    cluster_of: dict[str, str] = {}
    nodes = 0
    for pool in _pools(file):
        first = cluster_of.setdefault(pool.name, pool.cluster)
        if first != pool.cluster:
            text = f"pool {quote(pool.name)} is also in cluster {quote(first)}"
            findings.at_key(pool.own_path, f"{text}, so their nodes would have the same names; rename one")
        if nodes <= NODES_MAX < nodes + pool.entry.nodes:
            text = f"pool {quote(pool.name)} brings the fleet to {nodes + pool.entry.nodes} nodes"
            findings.at(pool.path("nodes"), f"{text}; the limit is {NODES_MAX}")
        nodes += pool.entry.nodes
        _check_pool(pool, known, findings)


def _check_cluster(name: str, entry: ClusterEntry, known: Models, findings: Findings) -> None:
    """A cluster has pools, or is the machine on which the yard runs."""
    path: Path = ("clusters", name)
    kind = kind_for(entry)
    if entry.pools is not None and not entry.pools:
        text = f"cluster {quote(name)} has no pools; add one, as in 'pools: {value_text(POOLS_SHOWN)}'"
        findings.at_key((*path, "pools"), text)
    elif entry.pools is None and not kind.runs:
        findings.at_key(path, f"cluster {quote(name)} has no 'pools'; add 'pools: {value_text(POOLS_SHOWN)}'")
    for key, given in (("gpus", entry.gpus), ("emulate", entry.emulate), ("features", entry.features)):
        if given and not kind.takes_nodes:
            text = f"{described((*path, key))} is found by itself in {kind.title or kind.name}; remove it"
            findings.at((*path, key), text)
        elif given and entry.pools is not None:
            text = f"{described((*path, key))} is for a cluster without pools; move it into a pool"
            findings.at((*path, key), text)
    if entry.allow_root and not kind.runs:
        text = (
            f"{described((*path, 'allow_root'))} is for engines that run jobs, not for {kind.name}; remove it"
        )
        findings.at((*path, "allow_root"), text)
    if entry.pools is None and kind.this_machine:
        _check_machine(path, entry, known, findings)


def _check_machine(path: Path, entry: ClusterEntry, known: Models, findings: Findings) -> None:
    """What this machine pretends to have. What it really has is found when the yard starts."""
    if entry.gpus and entry.gpus[0] and entry.gpus[1] not in known:
        findings.at((*path, "gpus"), unknown_model(entry.gpus[1], known))
    elif entry.gpus is not None and not entry.emulate:
        text = f"{described((*path, 'gpus'))} are found by themselves; add 'emulate: true' to pretend to have them"
        findings.at((*path, "gpus"), text)
    elif entry.emulate and entry.gpus is None:
        text = (
            f"{described(path)} has 'emulate' and no 'gpus'; add 'gpus: {STAND_IN_GPUS} x {STAND_IN_MODEL}'"
        )
        findings.at((*path, "emulate"), text)


def _check_pool(pool: _Named, known: Models, findings: Findings) -> None:
    gpus, model = pool.entry.gpus
    if gpus and model not in known:
        findings.at(pool.path("gpus"), unknown_model(model, known))
    elif pool.entry.nvlink_group:
        _check_nvlink(pool, pool.entry.nvlink_group, known, findings)
    if pool.entry.reserve is not None:
        _check_reserve(pool, pool.entry.reserve, findings)
    numa = pool.entry.numa or 1
    if gpus > numa and gpus % numa:
        path = pool.path("numa")
        findings.at(path, f"{described(path)} must split the {gpus} GPUs of a node evenly, not in {numa}")
    if pool.entry.emulate and not pool.kind.this_machine:
        path = pool.path("emulate")
        able = " and ".join([kind.name for kind in own_kinds() if kind.this_machine])
        text = f"{described(path)} is for engine {able} only, and this cluster's engine is {pool.kind.name}"
        findings.at(path, f"{text}; remove it")


def _check_reserve(pool: _Named, reserve: ReserveEntry, findings: Findings) -> None:
    gpus = pool.entry.gpus[0]
    path = pool.path("reserve")
    if not gpus:
        findings.at(path, f"{described(path)} is for the GPUs of a node, and its nodes have none; remove it")
    for key, each, most, words in (
        ("cpus", reserve.cpus or 0, pool.entry.cpus, cores_text),
        ("memory", reserve.memory or 0, pool.entry.memory, memory_words),
    ):
        if each * gpus > most:
            text = f"{gpus} times {words(each)} are more than the {words(most)} of a node"
            findings.at((*path, key), f"{described((*path, key))} is too much: {text}")


def read_reserves(file: YardFile) -> dict[str, GpuReserve]:
    """What jobs without GPUs leave to each GPU, by `CLUSTER/POOL`."""
    return {
        f"{pool.cluster}/{pool.name}": GpuReserve(entry.cpus or 0, entry.memory or 0)
        for pool in _pools(file)
        if (entry := pool.entry.reserve) is not None
    }


def _check_nvlink(pool: _Named, group: int, known: Models, findings: Findings) -> None:
    gpus, model = pool.entry.gpus
    path = pool.path("nvlink_group")
    if not gpus:
        findings.at(path, f"{described(path)} must be 0: its nodes have no GPUs")
    elif not known[model].nvlink:
        findings.at(path, f"{described(path)} must be 0: {model} has no NVLink")
    elif gpus % group:
        findings.at(path, f"{described(path)} must divide the {gpus} GPUs of a node evenly, not {group}")


def kind_for(entry: ClusterEntry) -> EngineKind:
    """The engine of a cluster, which the schema has found to be there."""
    kind = kind_of(entry.engine or DEFAULT)
    assert kind is not None, entry.engine
    return kind


def _kinds(file: YardFile) -> dict[str, EngineKind]:
    """The engine of each cluster."""
    return {name: kind_for(entry) for name, entry in file.clusters.items()}


def _pooled(file: YardFile) -> set[str]:
    """Clusters to which the file gives pools."""
    return {name for name, entry in file.clusters.items() if entry.pools is not None}


def count_gpus(file: YardFile) -> dict[tuple[str, str], int] | None:
    """GPUs of the whole fleet by pool and model; None: an engine knows."""
    found: dict[tuple[str, str], int] = {}
    for entry in file.clusters.values():
        if entry.pools is None:
            if entry.gpus is None:
                return None
            count, model = entry.gpus
            place = kind_for(entry).pool or "", model
            found[place] = found.get(place, 0) + count
    for pool in _pools(file):
        count, model = pool.entry.gpus
        found[pool.name, model] = found.get((pool.name, model), 0) + count * pool.entry.nodes
    return {place: count for place, count in found.items() if count}


def find_largest(file: YardFile) -> dict[str, int] | None:
    """The most GPUs (milli), cores (milli) and memory of one node; None: an engine knows."""
    if any(entry.pools is None for entry in file.clusters.values()):
        return None
    pools = [pool.entry for pool in _pools(file)]
    return {
        "gpus": max([pool.gpus[0] * MILLI for pool in pools], default=0),
        "cpus": max([pool.cpus for pool in pools], default=0),
        "memory": max([pool.memory for pool in pools], default=0),
    }


def is_one_machine(file: YardFile) -> bool:
    """Whether all jobs run as processes of one node, this machine."""
    clusters = list(file.clusters.values())
    nodes = sum([pool.nodes for entry in clusters for pool in (entry.pools or {}).values()])
    return len(clusters) == 1 and kind_for(clusters[0]).this_machine and (not clusters[0].pools or nodes == 1)


def read_preferences(file: YardFile) -> tuple[ClusterPreference, ...]:
    """The clusters that are preferred or have a weight."""
    return tuple(
        [
            ClusterPreference(name, entry.preference or 0, entry.weight or 0)
            for name, entry in file.clusters.items()
            if entry.preference or entry.weight
        ]
    )


def read_observed(clusters: Mapping[str, Cluster]) -> dict[str, bool]:
    """Clusters that are observed beside others, and whether their jobs count against quotas."""
    found = {}
    for name, cluster in clusters.items() if len(clusters) > 1 else ():
        kind = kind_of(cluster.engine)
        if kind is not None and kind.is_observed(cluster.own):
            found[name] = kind.counts is not None and kind.counts(cluster.own)
    return found


def build_clusters(file: YardFile, read: Read) -> dict[str, Cluster]:
    """Clusters by name; `read` are the keys of engines as the file has them."""
    kinds = _kinds(file)
    own = engine_keys.settle_keys(kinds, _pooled(file), read)
    return {
        name: Cluster(
            name,
            kinds[name].name,
            tuple(entry.pools or ()),
            frozenset(pool for pool, pool_entry in (entry.pools or {}).items() if pool_entry.emulate),
            entry.gpus,
            bool(entry.allow_root),
            tuple(entry.features or ()),
            own[name],
        )
        for name, entry in file.clusters.items()
    }


def build_pools(file: YardFile, known: Models) -> tuple[Pool, ...]:
    """All pools with their nodes, in the order of the file."""
    return tuple(
        Pool(
            pool.name,
            pool.cluster,
            Market(pool.entry.market) if pool.entry.market else Market.RESERVED,
            tuple(_nodes(pool.cluster, pool.name, pool.entry, known)),
        )
        for pool in _pools(file)
    )


def read_payment(file: YardFile) -> dict[str, Any]:
    """What the books know of how pools are paid for: markets, regions, and prices."""
    at = {f"{pool.cluster}/{pool.name}": pool.entry for pool in _pools(file)}
    markets = {name: entry.market for name, entry in at.items() if entry.market}
    return {
        "markets": {name: market for name, market in markets.items() if market != Market.RESERVED.value},
        "regions": {name: entry.region for name, entry in at.items() if entry.region},
        "price_book": (
            *[Price(entry.price, pool=name) for name, entry in at.items() if entry.price is not None],
            *build_prices(file.price_book or []),
        ),
    }


def _nodes(cluster: str, pool: str, entry: PoolEntry, known: Models) -> Iterator[Node]:
    gpus, model = entry.gpus
    per_switch = entry.nodes_per_switch or entry.nodes
    # No switch has fewer than one node, so a rack of as many switches as there are nodes holds them all.
    per_rack = per_switch * (entry.switches_per_rack or entry.nodes)
    group = entry.nvlink_group
    if group is None:
        group = gpus if gpus and known[model].nvlink else 0
    for index in range(entry.nodes):
        yield Node(
            name=f"{pool}-{index + 1:04d}",
            cluster=cluster,
            pool=pool,
            gpu_model=model,
            gpus=gpus,
            cpu_milli=entry.cpus,
            memory_mib=entry.memory,
            nvlink_group_size=group,
            numa_domains=entry.numa or 1,
            switch=f"{pool}-sw{index // per_switch + 1}",
            rack=f"{pool}-rack{index // per_rack + 1}",
            features=tuple(entry.features or ()),
            fabric=entry.fabric or "",
        )


def check_aliases(file: YardFile, findings: Findings) -> None:
    """Refuse names that scripts use for pools, tenants and classes and that lead nowhere."""
    pools = list_pools(file)
    for name, wanted in (file.partitions or {}).items():
        if pools is not None and name in pools:
            text = f"partition {quote(name)} is a pool; give it another name, or remove the line"
            findings.at_key(("partitions", name), text)
        for index, pool in enumerate(wanted):
            if pools is not None and pool not in pools:
                text = (
                    f"unknown pool {quote(pool)} for partition {quote(name)}; {suggest(pool, pools, 'pools')}"
                )
                findings.at(("partitions", name, index), text)
    for name, tenant in (file.accounts or {}).items():
        if file.tenants and tenant.split("/")[0] not in file.tenants:
            known = suggest(tenant, file.tenants, "tenants")
            findings.at(
                ("accounts", name), f"unknown tenant {quote(tenant)} for account {quote(name)}; {known}"
            )
    classes = [klass.name for klass in Settings().classes] if file.classes is None else list(file.classes)
    for name, klass in (file.qos or {}).items():
        if klass not in classes:
            known = suggest(klass, classes, "classes")
            findings.at(("qos", name), f"unknown class {quote(klass)} for QOS {quote(name)}; {known}")


def list_pools(file: YardFile) -> list[str] | None:
    """The pools that there will be; None: an engine knows."""
    found: list[str] = []
    for entry in file.clusters.values():
        if entry.pools is not None:
            found += entry.pools
        elif pool := kind_for(entry).pool:
            found.append(pool)
        else:
            return None
    return found
