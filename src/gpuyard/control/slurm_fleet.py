"""From the configuration of a Slurm cluster to the engine that drives it, or the one that only looks."""

import os
import shutil
from pathlib import Path

from gpuyard.config.values import SlurmCluster
from gpuyard.engines.contract import Permanent
from gpuyard.engines.slurm.client import Client, CommandClient
from gpuyard.engines.slurm.commands import Commands
from gpuyard.engines.slurm.engine import SlurmEngine
from gpuyard.engines.slurm.fleet import Site
from gpuyard.engines.slurm.observed import ObservedSlurm
from gpuyard.engines.slurm.rest import RestClient

TIMEOUT_S = 20.0
"""A command of Slurm that has not answered by then is taken for one that came to no answer."""


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
