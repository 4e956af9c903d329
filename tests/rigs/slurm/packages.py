"""Debian's packages of Slurm: there, or installed if this is root on Debian, or a sentence that says why not."""

import os
import shutil

from rigs.components import Missing, install

PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurm-client",
    "slurmrestd",
    "slurm-wlm-jwt-plugin",
    "munge",
    "mariadb-server",
)
_PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "sbatch", "slurmrestd", "munged", "mariadbd")


def need_programs() -> None:
    """See to it that the programs are there; `Missing` if they cannot be had."""
    if os.geteuid() != 0:
        raise Missing("Slurm's daemons run jobs as other users: the rig needs root")
    if _missing():
        install(*PACKAGES)
    if _missing():
        raise Missing(f"{', '.join(_missing())}: not in {' '.join(PACKAGES)} of this Debian")


def _missing() -> list[str]:
    return [program for program in _PROGRAMS if not shutil.which(program)]
