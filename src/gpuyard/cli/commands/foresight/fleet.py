"""Which fleet to simulate: the one in a configuration file, or one pool of equal nodes for a quick try."""

import time
from pathlib import Path

from gpuyard.config import Config
from gpuyard.errors import BadInput, quote, suggest
from gpuyard.model import CATALOGUE, Capability, Market, Node, PolicySpec, Pool, Settings
from gpuyard.model.prices import hold_prices
from gpuyard.model.units import DAY_MS, GIB_MIB, MILLI
from gpuyard.policies.registry import PRESETS, build

CPU_MILLI_PER_GPU = 24 * MILLI
MEMORY_MIB_PER_GPU = 256 * GIB_MIB
"""As much as large machines have, so that in a quick try the GPUs are scarce."""

GPUS_MAX = 10_000_000


def choose_config(
    config: Path | None, gpus: int | None, gpu_model: str | None, gpus_per_node: int, *, spot: bool = False
) -> Config:
    """The configuration that the options of a command say."""
    if config is not None:
        if gpus is not None or gpu_model is not None:
            raise BadInput(
                "--config already describes the fleet",
                "Leave out --gpus and --gpu-model, or leave out --config.",
            )
        from gpuyard.config.reading import load

        found = load(config)
        check_simulation(found, str(config))
        return found
    if gpus is None:
        raise BadInput(
            "there is no fleet to simulate",
            "Give --config yard.yaml, or --gpus 64 for one pool of 8-GPU nodes.",
        )
    pool = make_uniform_pool(
        gpus, gpu_model or "H100", gpus_per_node, Market.SPOT if spot else Market.RESERVED
    )
    return make_preset_config(Settings(policy=PRESETS["default"]), pool)


def check_simulation(config: Config, name: str) -> None:
    """Refuse a configuration that has no fleet to simulate."""
    if not config.pools:
        raise BadInput(
            f"{name} describes this machine, not a fleet to simulate",
            "Add pools to its cluster, or use --gpus 64 instead.",
        )


def find_lacking(config: Config) -> dict[str, frozenset[Capability]]:
    """What the engines that a configuration names cannot do, by cluster."""
    return {name: cluster.lacks for name, cluster in config.clusters.items() if cluster.lacks}


def settings_of_today(config: Config) -> Settings:
    """The settings to simulate: a trace may be of any year, and the fleet is paid for as it is now."""
    return hold_prices(config.settings, time.time_ns() // (1_000_000 * DAY_MS))


def make_preset_config(settings: Settings, *pools: Pool) -> Config:
    """A configuration of these pools with the presets as its policies."""
    return Config(settings=settings, pools=pools, policies=dict(PRESETS), clusters={})


def make_uniform_pool(
    gpus: int, gpu_model: str, gpus_per_node: int, market: Market = Market.RESERVED
) -> Pool:
    """One pool of equal nodes. Fewer GPUs than a node has make one smaller node."""
    if gpu_model not in CATALOGUE:
        raise BadInput(f"unknown GPU model {quote(gpu_model)}; {suggest(gpu_model, CATALOGUE, 'models')}")
    if gpus > GPUS_MAX:
        raise BadInput(f"--gpus {gpus} is more than {GPUS_MAX:,}", "Simulate a part of the fleet.")
    per_node = min(gpus, gpus_per_node)
    count, rest = divmod(gpus, per_node)
    if rest:
        raise BadInput(
            f"{gpus} GPUs do not make whole nodes of {per_node}",
            f"Give --gpus {count * per_node} or {(count + 1) * per_node}, or another --gpus-per-node.",
        )
    model = CATALOGUE[gpu_model]
    name = gpu_model.lower()
    nodes = tuple(
        Node(
            name=f"{name}-{number:04d}",
            cluster="sim",
            pool=name,
            gpu_model=gpu_model,
            gpus=per_node,
            cpu_milli=CPU_MILLI_PER_GPU * per_node,
            memory_mib=MEMORY_MIB_PER_GPU * per_node,
            nvlink_group_size=per_node if model.nvlink and per_node > 1 else 0,
        )
        for number in range(1, count + 1)
    )
    return Pool(name, "sim", market, nodes)


def choose_policies(config: Config, names: list[str]) -> list[PolicySpec]:
    """The policies of these names, each once; none named: the configuration's own."""
    specs = [config.policy(name) for name in dict.fromkeys(names)] or [config.settings.policy]
    for spec in specs:
        check_parts(spec)
    return specs


def check_parts(spec: PolicySpec) -> None:
    """A preset may name a part that this version does not have."""
    try:
        build(spec)
    except KeyError as missing:
        raise BadInput(
            f"policy {quote(spec.name)} needs {missing}, which this version does not have",
            "Choose another policy.",
        ) from None
