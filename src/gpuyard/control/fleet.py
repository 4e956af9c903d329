"""From a configuration to what runs jobs: this machine and other clusters, and what people should know about them."""

from dataclasses import dataclass, field
from typing import Any

from gpuyard.config import Cluster, Config
from gpuyard.config.values import ATTEMPTS_PER_NODE, ATTEMPTS_PER_USER, Access, PrometheusSpec
from gpuyard.control.places import DataDir
from gpuyard.engines.contract import Engine, Transient
from gpuyard.engines.engine_process import Making
from gpuyard.engines.local.hosts import STAND_IN, EmulatedGpus, PretendedNodes, ThisMachine
from gpuyard.engines.local.kind import KIND as LOCAL
from gpuyard.engines.local.making import LocalCluster
from gpuyard.engines.machine import nvml
from gpuyard.engines.registry import Context, EngineKind, runnable
from gpuyard.errors import BadInput, quote, suggest
from gpuyard.keys.values import gpus_of_node
from gpuyard.model import CATALOGUE, Node, Settings
from gpuyard.policies.registry import PRESETS
from gpuyard.shipping.contract import SinkSpec


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A cluster as `yard up` runs it."""

    name: str
    kind: EngineKind = LOCAL
    """What runs the jobs."""
    keys: Any = field(default_factory=LocalCluster)
    """What the file says of it, as the engine reads it."""
    described: tuple[Node, ...] = ()
    """The nodes that the file gives to the engine."""
    allow_root: bool = False

    @property
    def here(self) -> bool:
        """Whether its jobs run on this machine."""
        return self.kind.this_machine

    @property
    def observed(self) -> bool:
        """Whether it is only looked at."""
        return self.kind.is_observed(self.keys)

    def words(self) -> str:
        """What runs the jobs, for people."""
        return self.kind.told(self.keys)

    def engine(self, data: DataDir, settings: Settings) -> Engine:
        """The engine, with its own folder below the yard's data."""
        return self.kind.made(self.keys, self._context(data, settings))

    def making(self, adopted: tuple[str, ...], data: DataDir, settings: Settings) -> Making:
        """How the same engine is made in a process of its own. `adopted`: attempts that no log knows."""
        return Making(self.kind.name, self.keys, self._context(data, settings), adopted)

    def _context(self, data: DataDir, settings: Settings) -> Context:
        folder = data.engine if self.here else data.engine_of(self.name)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        memory = {model.name: model.memory_mib for model in settings.gpu_models}
        return Context(self.name, folder, data.root, self.described, memory)


@dataclass(frozen=True, slots=True)
class Fleet:
    """What `yard up` works with."""

    settings: Settings
    clusters: tuple[LiveCluster, ...]
    """In the order of the file; at least one."""
    notes: tuple[str, ...] = ()
    """What people should know, in sentences."""
    access: Access | None = None
    """What each person may do, where the configuration says so."""
    sinks: tuple[SinkSpec, ...] = ()
    """Receivers of what jobs write."""
    prometheus: PrometheusSpec | None = None
    """Read for what nodes and GPUs do."""

    @property
    def allow_root(self) -> bool:
        """Whether root's own jobs run as root, whichever cluster they come to."""
        return all([cluster.allow_root for cluster in self.clusters if not cluster.observed])

    def words(self) -> str:
        """What runs the jobs, for people."""
        if len(self.clusters) == 1:
            return self.clusters[0].words()
        return "; ".join([f"{cluster.name}: {cluster.words()}" for cluster in self.clusters])

    def engines(self, data: DataDir) -> dict[str, Engine]:
        """The engine of each cluster."""
        return {cluster.name: cluster.engine(data, self.settings) for cluster in self.clusters}


def choose_fleet(config: Config | None, emulate: str) -> Fleet:
    """The fleet that a configuration describes; without one, this machine as it is found."""
    pretended = _parsed(emulate) if emulate else None
    if config is None:
        settings = Settings(
            policy=PRESETS["default"],
            attempts_per_user=ATTEMPTS_PER_USER,
            attempts_per_node=ATTEMPTS_PER_NODE,
        )
        if pretended is not None:
            return Fleet(settings, (LiveCluster("local", keys=LocalCluster(ThisMachine(emulate=pretended))),))
        if _has_gpus():
            return Fleet(settings, (LiveCluster("local"),))
        text = (
            f"no GPUs were found: {STAND_IN.count} x {STAND_IN.model} are emulated, everything else is real"
        )
        return Fleet(
            settings, (LiveCluster("local", keys=LocalCluster(ThisMachine(emulate=STAND_IN))),), notes=(text,)
        )
    clusters = tuple([_live(cluster, config, pretended) for cluster in config.clusters.values()])
    _check_together(clusters, emulate)
    return Fleet(
        config.settings,
        clusters,
        notes=config.notes,
        access=config.access,
        sinks=config.sinks,
        prometheus=config.prometheus,
    )


def _has_gpus() -> bool:
    """Whether this machine has GPUs of its own: one that cannot be asked is there."""
    try:
        return bool(nvml.read_gpus())
    except Transient:
        return True


def _live(cluster: Cluster, config: Config, pretended: EmulatedGpus | None) -> LiveCluster:
    kind = runnable(cluster.engine)
    if kind is None:
        raise BadInput(
            f"cluster {quote(cluster.name)} has engine {cluster.engine}, which this release only simulates; "
            "it runs `local` and `slurm`",
            "Set `engine: local` or `engine: slurm`, or use the file with `yard simulate`.",
        )
    if kind is LOCAL:
        nodes = _nodes(cluster, config, pretended)
        keys = LocalCluster(nodes, cluster.own)
        return LiveCluster(cluster.name, kind, keys, allow_root=cluster.allow_root)
    pools = [pool for pool in config.pools if pool.cluster == cluster.name] if kind.takes_nodes else []
    described = [node for pool in pools for node in pool.nodes]
    live = LiveCluster(cluster.name, kind, cluster.own, tuple(described), cluster.allow_root)
    if kind.check is not None:
        kind.check(live.name, live.keys)
    return live


def _check_together(clusters: tuple[LiveCluster, ...], emulate: str) -> None:
    """Refuse clusters that one yard cannot run together."""
    here = [cluster.name for cluster in clusters if cluster.here]
    if len(here) > 1:
        raise BadInput(
            f"clusters {' and '.join(here)} have engine local, and this machine can be in one cluster only",
            "Leave one of them, and give it all pools.",
        )
    if emulate and not here:
        first = clusters[0]
        raise BadInput(
            f"--emulate is for this machine, and cluster {quote(first.name)} has engine {first.kind.name}",
            "Leave it out: the GPUs are those that this engine has.",
        )


def _nodes(cluster: Cluster, config: Config, pretended: EmulatedGpus | None) -> ThisMachine | PretendedNodes:
    """What a local cluster consists of: this machine, or nodes that it pretends to be."""
    pools = [pool for pool in config.pools if pool.cluster == cluster.name]
    nodes = [node for pool in pools for node in pool.nodes]
    if pretended is not None or not nodes:
        gpus = pretended or (EmulatedGpus(*cluster.gpus) if cluster.gpus is not None else None)
        features = cluster.features or tuple([feature for node in nodes[:1] for feature in node.features])
        return ThisMachine(cluster=cluster.name, features=features, emulate=gpus)
    real = [pool.name for pool in pools if pool.name not in cluster.emulated]
    if not real:
        return PretendedNodes(
            tuple(nodes), {model.name: model.memory_mib for model in config.settings.gpu_models}
        )
    if len(nodes) != 1:
        rest = "s" if len(real) > 1 else ""
        raise BadInput(
            f"cluster {quote(cluster.name)} has {len(nodes)} nodes and engine local, which is this one machine; "
            f"real nodes need Slurm",
            f"Add `emulate: true` to pool{rest} {', '.join(real)} to rehearse with nodes that this machine pretends "
            "to be, set `engine: slurm`, or leave one pool with `nodes: 1`.",
        )
    (node,) = nodes
    return ThisMachine(cluster=cluster.name, pool=node.pool, features=node.features, described=node)


def _parsed(text: str) -> EmulatedGpus:
    try:
        count, model = gpus_of_node(text)
    except ValueError as error:
        raise BadInput(f"--emulate {error}") from None
    if count and model not in CATALOGUE:
        raise BadInput(f"unknown GPU model {quote(model)}; {suggest(model, CATALOGUE, 'GPU models')}")
    return EmulatedGpus(count, model)
