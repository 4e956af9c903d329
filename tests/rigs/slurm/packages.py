"""Debian's packages of Slurm: there, or installed if this is root on Debian, or a sentence that says why not."""

import os
import shutil
import subprocess

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


class NoCluster(Exception):
    """It cannot be had here; says why."""


def need_programs() -> None:
    """See to it that the programs are there; `NoCluster` if they cannot be had."""
    if os.geteuid() != 0:
        raise NoCluster("Slurm's daemons run jobs as other users: the rig needs root")
    if not _missing():
        return
    if not shutil.which("apt-get"):
        raise NoCluster(
            f"{', '.join(_missing())}: not installed, and this is not Debian: {' '.join(PACKAGES)}"
        )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    get = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *PACKAGES]
    for command in (get, ["apt-get", "update", "-qq"], get):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if command is get and done.returncode == 0:
            break
    if _missing():
        raise NoCluster(f"apt-get could not install {' '.join(PACKAGES)}: {done.stderr.strip()[-300:]}")


def _missing() -> list[str]:
    return [program for program in _PROGRAMS if not shutil.which(program)]
