"""How what drives a Slurm cluster, or observes it, is made from the cluster's keys."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

from gpuyard.engines.contract import Engine, Permanent
from gpuyard.engines.registry import Context
from gpuyard.engines.slurm.calls.client import Client, CommandClient
from gpuyard.engines.slurm.calls.commands import Commands
from gpuyard.engines.slurm.calls.rest import RestClient
from gpuyard.engines.slurm.cluster import SlurmCluster
from gpuyard.engines.slurm.engine import SlurmEngine
from gpuyard.engines.slurm.fleet import SlurmSettings
from gpuyard.engines.slurm.observed import ObservedSlurm

TIMEOUT_S = 20.0
"""A command of Slurm that has not answered by then is taken for one that came to no answer."""


def build(keys: SlurmCluster, context: Context) -> Engine:
    """The engine of a cluster that is driven."""
    return driven(context.cluster, _typed(keys, context), context.yard)


def observer(keys: SlurmCluster, context: Context) -> ObservedSlurm:
    """What looks on at a cluster that is observed."""
    return observed(context.cluster, _typed(keys, context))


def _typed(keys: SlurmCluster, context: Context) -> SlurmCluster:
    """A type that is itself the name of a model of the configuration is that model."""
    own = {name: name for name in context.gpu_memory_mib}
    return replace(keys, gpu_types={**own, **keys.gpu_types})


def driven(cluster: str, slurm: SlurmCluster, yard: Path) -> SlurmEngine:
    """The engine of a Slurm cluster. It is made whether Slurm can be reached or not."""
    check_here(slurm)
    site = SlurmSettings(
        cluster=cluster,
        partitions=slurm.partitions,
        reservation=slurm.reservation,
        account=slurm.account,
        gpu_types=slurm.gpu_types,
        handoff_ms=slurm.handoff_ms,
        python=slurm.python,
        containers=slurm.containers,
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
