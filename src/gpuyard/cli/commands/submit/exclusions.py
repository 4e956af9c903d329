"""Drops excluded nodes that the yard does not have: there is nothing to keep away from.

A script of another cluster excludes the bad nodes of that cluster. Nodes that a script asks for must exist.
"""

from collections.abc import Callable, Sequence
from typing import Any


def drop_unknown(jobs: Sequence[dict[str, Any]], warn: Callable[[str], None]) -> None:
    """Take such nodes out of jobs that were written for Slurm, and say so."""
    if not any(job.get("slurm_commands") and job.get("not_nodes") for job in jobs):
        return
    from gpuyard.api.client import Client
    from gpuyard.engines.hostnames import folded

    with Client() as yard:
        there = {node["name"] for node in yard.nodes()}
    for job in jobs:
        unknown = [name for name in job.get("not_nodes", ()) if name not in there]
        if unknown and job.get("slurm_commands"):
            job["not_nodes"] = [name for name in job["not_nodes"] if name in there]
            warn(f"--exclude: there is no node {folded(unknown)} here, so nothing is left out for it")
