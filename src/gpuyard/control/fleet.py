"""From a configuration to what runs jobs: this machine or a Slurm cluster, and what people should know about it."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuyard.config import Cluster, Config
from gpuyard.config import Engine as Kind
from gpuyard.config.quantities import gpus_of_node
from gpuyard.config.values import (
    ATTEMPTS_PER_NODE,
    ATTEMPTS_PER_USER,
    LOG_LIMIT_MIB,
    Access,
    Mode,
    SlurmCluster,
)
from gpuyard.engines.contract import Engine, Permanent
from gpuyard.engines.local import nvml
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.hosts import Here, Pretended
from gpuyard.engines.local.machine import EmulatedGpus
from gpuyard.engines.slurm.client import Client, CommandClient
from gpuyard.engines.slurm.commands import Commands
from gpuyard.engines.slurm.engine import SlurmEngine
from gpuyard.engines.slurm.fleet import Site
from gpuyard.engines.slurm.observed import ObservedSlurm
from gpuyard.engines.slurm.rest import RestClient
from gpuyard.errors import BadInput, quoted, remedy
from gpuyard.model import CATALOGUE, Settings
from gpuyard.policies.registry import PRESETS

TIMEOUT_S = 20.0
"""A command of Slurm that has not answered by then is taken for one that came to no answer."""
STAND_IN = EmulatedGpus(8, "A100-80GB")
"""What a machine without GPUs pretends to have by default, so that a first job runs anywhere."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """What `yard up` works with."""

    settings: Settings
    cluster: str
    nodes: Here | Pretended = field(default_factory=Here)
    """This machine, or what it pretends to be, where Slurm does not have the nodes."""
    allow_root: bool = False
    notes: tuple[str, ...] = ()
    """What people should know, in sentences."""
    prices: Mapping[str, int] = field(default_factory=dict)
    """Micro-dollars an hour by GPU model, where the configuration has them."""
    access: Access | None = None
    """People and their rights, if the configuration has any."""
    log_limit_mib: int = LOG_LIMIT_MIB
    """How much is kept of what an attempt writes."""
    slurm: SlurmCluster | None = None
    """Where Slurm runs the jobs."""

    hands_off: bool = False
    """Whether the settings of GPUs stay as they are."""

    def price_micro_usd_h(self, model: str) -> int:
        """What an hour of a GPU costs: as configured, else its list price; 0: not known."""
        known = {**CATALOGUE, **{each.name: each for each in self.settings.gpu_models}}
        listed = known[model].list_price_micro_usd_h if model in known else 0
        return self.prices.get(model, listed)

    def words(self) -> str:
        """What runs the jobs, for people."""
        if self.slurm is not None:
            looks = self.slurm.mode is Mode.OBSERVE
            return "Slurm decides, and the yard looks on" if looks else "jobs are handed to Slurm"
        return f"jobs run on this machine: {self.nodes.words()}"

    def engine(self, folder: Path) -> Engine:
        """The engine, with its own folder."""
        if self.slurm is not None:
            # A type that is itself the name of a model of the configuration is that model.
            own = {model.name: model.name for model in self.settings.gpu_models}
            slurm = replace(self.slurm, gpu_types={**own, **self.slurm.gpu_types})
            if slurm.mode is Mode.OBSERVE:
                return observed(self.cluster, slurm)
            return slurm_engine(self.cluster, slurm, folder.parent)
        return LocalEngine(
            folder,
            nodes=self.nodes,
            yard=folder.parent,
            log_limit_mib=self.log_limit_mib,
            hands_off=self.hands_off,
        )


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
            return Fleet(settings, "local", Here(emulate=pretended))
        if nvml.read_gpus():
            return Fleet(settings, "local")
        text = (
            f"no GPUs were found: {STAND_IN.count} x {STAND_IN.model} are emulated, everything else is real"
        )
        return Fleet(settings, "local", Here(emulate=STAND_IN), notes=(text,))
    if len(config.clusters) != 1:
        raise BadInput(
            f"the configuration has {len(config.clusters)} clusters, and `yard up` runs one",
            "Leave one cluster with `engine: local` or `engine: slurm` in the file.",
        )
    (cluster,) = config.clusters.values()
    if cluster.engine is Kind.SLURM:
        _check_slurm(cluster, cluster.slurm or SlurmCluster(), emulate)
        nodes: Here | Pretended = Here(cluster=cluster.name)
    else:
        nodes = _nodes(cluster, config, pretended)
    of_pools = {node.gpu_model: pool.price_micro_usd_h for pool in config.pools for node in pool.nodes}
    return Fleet(
        config.settings,
        cluster.name,
        nodes,
        cluster.allow_root,
        prices={**config.prices, **of_pools},
        access=config.access,
        log_limit_mib=cluster.log_limit_mib,
        slurm=cluster.slurm,
        hands_off=cluster.hands_off,
    )


def _check_slurm(cluster: Cluster, slurm: SlurmCluster, emulate: str) -> None:
    """A Slurm cluster that this release can run."""
    if emulate:
        raise BadInput(
            f"--emulate is for this machine, and cluster {quoted(cluster.name)} has engine slurm",
            "Leave it out: GPUs are those that Slurm has.",
        )
    if slurm.mode is Mode.DRIVE and not slurm.shared_folder:
        raise BadInput(
            f"cluster {quoted(cluster.name)} has no 'shared_folder'",
            "Add `shared_folder: /shared/gpuyard`, a folder that this machine and all nodes see under that path.",
        )


def _nodes(cluster: Cluster, config: Config, pretended: EmulatedGpus | None) -> Here | Pretended:
    """What a local cluster consists of: this machine, or nodes that it pretends to be."""
    if cluster.engine is not Kind.LOCAL:
        raise BadInput(
            f"cluster {quoted(cluster.name)} has engine {cluster.engine.value}, which this release only simulates; "
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
