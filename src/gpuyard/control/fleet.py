"""From a configuration to what runs jobs: this machine or a Slurm cluster, and what people should know about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuyard.config import Cluster, Config
from gpuyard.config import Engine as Kind
from gpuyard.config.problems import quoted, remedy
from gpuyard.config.quantities import gpus_of_node
from gpuyard.config.values import LOG_LIMIT_MIB, Access, Mode, SlurmCluster
from gpuyard.control.slurm_fleet import observed, slurm_engine
from gpuyard.engines.contract import Engine
from gpuyard.engines.local import nvml
from gpuyard.engines.local.engine import EmulatedGpus, LocalEngine
from gpuyard.errors import BadInput
from gpuyard.model import CATALOGUE, Settings
from gpuyard.policies.registry import PRESETS

STAND_IN = EmulatedGpus(8, "A100-80GB")
"""What a machine without GPUs pretends to have if nobody says otherwise, so that a first job runs anywhere."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """What `yard up` works with."""

    settings: Settings
    cluster: str
    emulate: EmulatedGpus | None
    allow_root: bool
    features: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What people should know, in sentences."""
    prices: Mapping[str, int] = field(default_factory=dict)
    """Micro-dollars an hour by GPU model, where the configuration has them."""
    access: Access | None = None
    """Who may do what, where the configuration says so."""
    log_limit_mib: int = LOG_LIMIT_MIB
    """How much is kept of what an attempt writes."""
    slurm: SlurmCluster | None = None
    """Where Slurm runs the jobs."""

    hands_off: bool = False
    """Whether the settings of GPUs stay as they are."""

    def price_micro_usd_h(self, model: str) -> int:
        """What an hour of a GPU costs: as configured, else its list price; 0: nobody knows."""
        known = {**CATALOGUE, **{each.name: each for each in self.settings.gpu_models}}
        listed = known[model].list_price_micro_usd_h if model in known else 0
        return self.prices.get(model, listed)

    def engine(self, folder: Path) -> Engine:
        """The engine, with its own folder."""
        if self.slurm is not None:
            if self.slurm.mode is Mode.OBSERVE:
                return observed(self.cluster, self.slurm)
            return slurm_engine(self.cluster, self.slurm, folder.parent)
        return LocalEngine(
            folder,
            emulate=self.emulate,
            cluster=self.cluster,
            features=self.features,
            yard=folder.parent,
            log_limit_mib=self.log_limit_mib,
            hands_off=self.hands_off,
        )


def chosen(config: Config | None, emulate: str) -> Fleet:
    """The fleet that a configuration describes; without one, this machine as it is found."""
    pretended = _parsed(emulate) if emulate else None
    if config is None:
        settings = Settings(policy=PRESETS["default"])
        if pretended is not None:
            return Fleet(settings, "local", pretended, False)
        if nvml.read_gpus():
            return Fleet(settings, "local", None, False)
        text = (
            f"no GPUs were found: {STAND_IN.count} x {STAND_IN.model} are emulated, everything else is real"
        )
        return Fleet(settings, "local", STAND_IN, False, notes=(text,))
    if len(config.clusters) != 1:
        raise BadInput(
            f"the configuration has {len(config.clusters)} clusters; `yard up` runs one",
            "Leave one cluster with `engine: local` or `engine: slurm` in the file.",
        )
    (cluster,) = config.clusters.values()
    if cluster.engine is Kind.SLURM:
        _check_slurm(cluster, cluster.slurm or SlurmCluster(), emulate)
    emulated = None if cluster.slurm is not None else pretended or _emulated(cluster, config)
    features = cluster.features or tuple(
        [feature for pool in config.pools for node in pool.nodes[:1] for feature in node.features]
    )
    of_pools = {node.gpu_model: pool.price_micro_usd_h for pool in config.pools for node in pool.nodes}
    return Fleet(
        config.settings,
        cluster.name,
        emulated,
        cluster.allow_root,
        features,
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


def _emulated(cluster: Cluster, config: Config) -> EmulatedGpus | None:
    """The GPUs that a local cluster pretends to have."""
    if cluster.engine is not Kind.LOCAL:
        raise BadInput(
            f"cluster {quoted(cluster.name)} has engine {cluster.engine.value}; this release runs `local` and `slurm`",
            "Set `engine: local` or `engine: slurm`, or use the file with `yard simulate`.",
        )
    if cluster.gpus is not None:
        return EmulatedGpus(*cluster.gpus)
    pools = [pool for pool in config.pools if pool.cluster == cluster.name]
    if not pools:
        return None
    nodes = [node for pool in pools for node in pool.nodes]
    if len(nodes) != 1:
        raise BadInput(
            f"cluster {quoted(cluster.name)} has {len(nodes)} nodes, and engine local is this one machine",
            "Replace 'pools' by `gpus: 8 x A100-80GB` and `emulate: true`, or by nothing for the GPUs that are here.",
        )
    return EmulatedGpus(nodes[0].gpus, nodes[0].gpu_model) if cluster.emulated else None


def _parsed(text: str) -> EmulatedGpus:
    try:
        count, model = gpus_of_node(text)
    except ValueError as error:
        raise BadInput(f"--emulate {error}") from None
    if count and model not in CATALOGUE:
        raise BadInput(f"unknown GPU model {quoted(model)}; {remedy(model, CATALOGUE, 'GPU models')}")
    return EmulatedGpus(count, model)
