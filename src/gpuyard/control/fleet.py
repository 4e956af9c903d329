"""From a configuration to what runs jobs: this machine and other clusters, and what people should know about them."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuyard.config import Cluster, Config
from gpuyard.config import Engine as Kind
from gpuyard.config.quantities import gpus_of_node
from gpuyard.config.values import (
    ATTEMPTS_PER_NODE,
    ATTEMPTS_PER_USER,
    LOG_LIMIT_MIB,
    Access,
    Fence,
    Mode,
    SlurmCluster,
)
from gpuyard.control.places import DataDir
from gpuyard.engines.contract import Engine, Permanent
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.fencing import MEANS
from gpuyard.engines.local.hosts import Here, Pretended
from gpuyard.engines.local.machine import EmulatedGpus
from gpuyard.engines.machine import nvml
from gpuyard.engines.registry import Context, EngineKind, kind_of
from gpuyard.engines.slurm.calls.client import Client, CommandClient
from gpuyard.engines.slurm.calls.commands import Commands
from gpuyard.engines.slurm.calls.rest import RestClient
from gpuyard.engines.slurm.engine import SlurmEngine
from gpuyard.engines.slurm.fleet import Site
from gpuyard.engines.slurm.observed import ObservedSlurm
from gpuyard.errors import BadInput, quoted, remedy
from gpuyard.model import CATALOGUE, Node, Settings
from gpuyard.policies.registry import PRESETS
from gpuyard.shipping.contract import SinkSpec

TIMEOUT_S = 20.0
"""A command of Slurm that has not answered by then is taken for one that came to no answer."""
STAND_IN = EmulatedGpus(8, "A100-80GB")
"""What a machine without GPUs pretends to have by default, so that a first job runs anywhere."""


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A cluster as `yard up` runs it."""

    name: str
    nodes: Here | Pretended = field(default_factory=Here)
    """This machine, or what it pretends to be, where no other engine has the nodes."""
    allow_root: bool = False
    log_limit_mib: int = LOG_LIMIT_MIB
    """How much is kept of what an attempt writes."""
    slurm: SlurmCluster | None = None
    """Where Slurm runs the jobs."""
    hands_off: bool = False
    """Whether the settings of GPUs stay as they are."""
    fence: Fence = Fence.AUTO
    """What keeps jobs to what they were given."""
    kind: EngineKind | None = None
    """An engine of another package that runs the jobs."""
    own: Any = None
    """The keys of that engine."""
    described: tuple[Node, ...] = ()
    """The nodes that the file gives to that engine."""

    @property
    def here(self) -> bool:
        """Whether its jobs run on this machine."""
        return self.slurm is None and self.kind is None

    @property
    def observed(self) -> bool:
        """Whether it is only looked at."""
        return self.slurm is not None and self.slurm.mode is Mode.OBSERVE

    def words(self) -> str:
        """What runs the jobs, for people."""
        if self.slurm is not None:
            return "Slurm decides, and the yard looks on" if self.observed else "jobs are handed to Slurm"
        if self.kind is not None:
            return self.kind.words or f"jobs are handed to {self.kind.name}"
        return f"jobs run on this machine: {self.nodes.words()}"

    def engine(self, data: DataDir, settings: Settings) -> Engine:
        """The engine, with its own folder below the yard's data."""
        if self.kind is not None:
            folder = data.engine_of(self.name)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            memory = {model.name: model.memory_mib for model in settings.gpu_models}
            return self.kind.build(self.own, Context(self.name, folder, data.root, self.described, memory))
        if self.slurm is not None:
            # A type that is itself the name of a model of the configuration is that model.
            own = {model.name: model.name for model in settings.gpu_models}
            slurm = replace(self.slurm, gpu_types={**own, **self.slurm.gpu_types})
            return observed(self.name, slurm) if self.observed else slurm_engine(self.name, slurm, data.root)
        return LocalEngine(
            data.engine,
            nodes=self.nodes,
            yard=data.root,
            log_limit_mib=self.log_limit_mib,
            hands_off=self.hands_off,
            fence_by=() if self.fence is Fence.OFF else MEANS,
            strict=self.fence is Fence.STRICT,
        )


@dataclass(frozen=True, slots=True)
class Fleet:
    """What `yard up` works with."""

    settings: Settings
    clusters: tuple[LiveCluster, ...]
    """In the order of the file; at least one."""
    notes: tuple[str, ...] = ()
    """What people should know, in sentences."""
    prices: Mapping[str, int] = field(default_factory=dict)
    """Micro-dollars an hour by GPU model, where the configuration has them."""
    access: Access | None = None
    """What each person may do, where the configuration says so."""
    sinks: tuple[SinkSpec, ...] = ()
    """Receivers of what jobs write."""

    @property
    def allow_root(self) -> bool:
        """Whether root's own jobs run as root, whichever cluster they come to."""
        return all([cluster.allow_root for cluster in self.clusters if not cluster.observed])

    def price_micro_usd_h(self, model: str) -> int:
        """What an hour of a GPU costs: as configured, else its list price; 0: nobody knows."""
        known = {**CATALOGUE, **{each.name: each for each in self.settings.gpu_models}}
        listed = known[model].list_price_micro_usd_h if model in known else 0
        return self.prices.get(model, listed)

    def words(self) -> str:
        """What runs the jobs, for people."""
        if len(self.clusters) == 1:
            return self.clusters[0].words()
        return "; ".join([f"{cluster.name}: {cluster.words()}" for cluster in self.clusters])

    def engines(self, data: DataDir) -> dict[str, Engine]:
        """The engine of each cluster."""
        return {cluster.name: cluster.engine(data, self.settings) for cluster in self.clusters}


def chosen(config: Config | None, emulate: str) -> Fleet:
    """The fleet that a configuration describes; without one, this machine as it is found."""
    pretended = _parsed(emulate) if emulate else None
    if config is None:
        settings = Settings(
            policy=PRESETS["default"],
            attempts_per_user=ATTEMPTS_PER_USER,
            attempts_per_node=ATTEMPTS_PER_NODE,
        )
        if pretended is not None:
            return Fleet(settings, (LiveCluster("local", Here(emulate=pretended)),))
        if nvml.read_gpus():
            return Fleet(settings, (LiveCluster("local"),))
        text = (
            f"no GPUs were found: {STAND_IN.count} x {STAND_IN.model} are emulated, everything else is real"
        )
        return Fleet(settings, (LiveCluster("local", Here(emulate=STAND_IN)),), notes=(text,))
    clusters = tuple([_live(cluster, config, pretended) for cluster in config.clusters.values()])
    _check_together(clusters, emulate)
    of_pools = {node.gpu_model: pool.price_micro_usd_h for pool in config.pools for node in pool.nodes}
    return Fleet(
        config.settings,
        clusters,
        notes=config.notes,
        prices={**config.prices, **of_pools},
        access=config.access,
        sinks=config.sinks,
    )


def _live(cluster: Cluster, config: Config, pretended: EmulatedGpus | None) -> LiveCluster:
    if (kind := kind_of(cluster.engine)) is not None:
        described = [node for pool in config.pools if pool.cluster == cluster.name for node in pool.nodes]
        return LiveCluster(
            cluster.name, Here(cluster=cluster.name), kind=kind, own=cluster.own, described=tuple(described)
        )
    if cluster.engine == Kind.SLURM:
        _check_slurm(cluster, cluster.slurm or SlurmCluster())
        nodes: Here | Pretended = Here(cluster=cluster.name)
    else:
        nodes = _nodes(cluster, config, pretended)
    return LiveCluster(
        cluster.name,
        nodes,
        cluster.allow_root,
        cluster.log_limit_mib,
        cluster.slurm,
        cluster.hands_off,
        cluster.fence,
    )


def _check_together(clusters: tuple[LiveCluster, ...], emulate: str) -> None:
    """Refuse clusters that one yard cannot run together."""
    here = [cluster.name for cluster in clusters if cluster.here]
    if len(here) > 1:
        raise BadInput(
            f"clusters {' and '.join(here)} have engine local, and this machine can be in one cluster only",
            "Leave one of them, and give it all pools.",
        )
    if emulate and not here:
        engine = "slurm" if clusters[0].slurm is not None else getattr(clusters[0].kind, "name", "")
        raise BadInput(
            f"--emulate is for this machine, and cluster {quoted(clusters[0].name)} has engine {engine}",
            "Leave it out: GPUs are those that Slurm has." if engine == "slurm" else "Leave it out.",
        )


def _check_slurm(cluster: Cluster, slurm: SlurmCluster) -> None:
    """A Slurm cluster that this release can run."""
    if slurm.mode is Mode.DRIVE and not slurm.shared_folder:
        raise BadInput(
            f"cluster {quoted(cluster.name)} has no 'shared_folder'",
            "Add `shared_folder: /shared/gpuyard`, a folder that this machine and all nodes see under that path.",
        )


def _nodes(cluster: Cluster, config: Config, pretended: EmulatedGpus | None) -> Here | Pretended:
    """What a local cluster consists of: this machine, or nodes that it pretends to be."""
    if cluster.engine != Kind.LOCAL:
        raise BadInput(
            f"cluster {quoted(cluster.name)} has engine {cluster.engine}, which this release only simulates; "
            "it runs `local` and `slurm`",
            "Set `engine: local` or `engine: slurm`, or use the file with `yard simulate`.",
        )
    pools = [pool for pool in config.pools if pool.cluster == cluster.name]
    nodes = [node for pool in pools for node in pool.nodes]
    if pretended is not None or not nodes:
        gpus = pretended or (EmulatedGpus(*cluster.gpus) if cluster.gpus is not None else None)
        features = cluster.features or tuple([feature for node in nodes[:1] for feature in node.features])
        return Here(cluster=cluster.name, features=features, emulate=gpus)
    real = [pool.name for pool in pools if pool.name not in cluster.emulated]
    if not real:
        return Pretended(tuple(nodes), {model.name: model.memory_mib for model in config.settings.gpu_models})
    if len(nodes) != 1:
        rest = "s" if len(real) > 1 else ""
        raise BadInput(
            f"cluster {quoted(cluster.name)} has {len(nodes)} nodes and engine local, which is this one machine; "
            f"real nodes need Slurm",
            f"Add `emulate: true` to pool{rest} {', '.join(real)} to rehearse with nodes that this machine pretends "
            "to be, set `engine: slurm`, or leave one pool with `nodes: 1`.",
        )
    (node,) = nodes
    return Here(cluster=cluster.name, pool=node.pool, features=node.features, described=node)


def _parsed(text: str) -> EmulatedGpus:
    try:
        count, model = gpus_of_node(text)
    except ValueError as error:
        raise BadInput(f"--emulate {error}") from None
    if count and model not in CATALOGUE:
        raise BadInput(f"unknown GPU model {quoted(model)}; {remedy(model, CATALOGUE, 'GPU models')}")
    return EmulatedGpus(count, model)


# -- Slurm ---------------------------------------------------------------------------------------------------------


def slurm_engine(cluster: str, slurm: SlurmCluster, yard: Path) -> SlurmEngine:
    """The engine of a Slurm cluster. It is made whether Slurm can be reached or not."""
    check_here(slurm)
    site = Site(
        cluster=cluster,
        partitions=slurm.partitions,
        reservation=slurm.reservation,
        account=slurm.account,
        gpu_types=slurm.gpu_types,
        handoff_ms=slurm.handoff_ms,
        python=slurm.python,
    )
    return SlurmEngine(Path(slurm.shared_folder), client_of(slurm), site, yard=yard)


def observed(cluster: str, slurm: SlurmCluster) -> ObservedSlurm:
    """A cluster that is only looked at."""
    commands = Commands(conf=slurm.conf, folder=slurm.programs, timeout_s=TIMEOUT_S)
    return ObservedSlurm(cluster, commands, slurm.gpu_types, slurm.names)


def check_here(slurm: SlurmCluster) -> None:
    """Refuse what no waiting will mend, before Slurm's commands wait a minute for it."""
    if slurm.conf and not os.path.exists(slurm.conf):
        raise Permanent(f"there is no {slurm.conf}; 'conf' names Slurm's own configuration, slurm.conf")
    if slurm.rest is None and not shutil.which("sbatch", path=slurm.programs or None):
        where = f"in {slurm.programs}" if slurm.programs else "on the PATH"
        raise Permanent(
            f"there is no program sbatch {where}; install Slurm's commands, or say under 'programs' where they are"
        )


def client_of(slurm: SlurmCluster) -> Client:
    """How Slurm is spoken to."""
    commands = Commands(conf=slurm.conf, folder=slurm.programs, timeout_s=TIMEOUT_S)
    by_command = CommandClient(commands, as_user=os.geteuid() == 0)
    if slurm.rest is None:
        return by_command
    return RestClient(slurm.rest.url, slurm.rest.token_file, slurm.rest.user, by_command)
