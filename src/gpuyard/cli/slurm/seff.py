"""`seff`: what became of a job and what it used, as far as a yard knows; what is not measured is called unknown."""

import time
from collections.abc import Sequence

from gpuyard.api.client import Client, Refused
from gpuyard.cli.shown import shown
from gpuyard.cli.slurm.getopt import Grammar, options, read
from gpuyard.cli.slurm.ids import wanted_id
from gpuyard.cli.slurm.jobs import SlurmJob, of_view, size
from gpuyard.cli.slurm.pools import Pools
from gpuyard.cli.slurm.squeue_fields import group_of
from gpuyard.cli.slurm.stopping import Stop, error
from gpuyard.cli.slurm.times import full_span
from gpuyard.cli.slurm.usage import Usage, of_job
from gpuyard.cli.slurm.usage import size as used_size

GRAMMAR = Grammar("seff", options("debug,d force,f help,h version,V"))
HELP = """\
Usage: seff JOB
Shows how a job ended, how long it ran and what it held; what it uses while it runs. A yard keeps no account of cores
and memory that a job used: of one that has ended they are unknown."""
_UNKNOWN = "unknown: a yard does not keep it"


def run(words: Sequence[str]) -> int:
    """Print what is known of one job."""
    given = read(GRAMMAR, words)
    wanted = wanted_id(given.rest[0]) if len(given.rest) == 1 else None
    if wanted is None:
        raise error("seff", "name one job, as in: seff 17")
    with Client() as yard:
        try:
            found = yard.job(wanted.label)
        except Refused as refusal:
            if refusal.status != 404:
                raise
            raise Stop("Job not found.") from None
        if found.get("array"):
            raise error(
                "seff", f"{wanted.label} is an array; name one of its tasks, as in: seff {wanted.label}_0"
            )
        job = of_view(found, Pools.of_fleet(yard.fleet()), int(time.time() * 1000))
    usage = of_job(job.id, job.started_ms) if job.state in ("RUNNING", "SUSPENDED") else None
    hours = (found.get("used") or {}).get("gpu_hours")
    for line in _lines(job, usage, hours):
        print(shown(line))
    return 0


def _lines(job: SlurmJob, usage: Usage | None, gpu_hours: float | None) -> list[str]:
    code = f" (exit code {job.exit_code})" if job.exit_code is not None else ""
    wall_s = job.ran_s * job.cpu_count
    lines = [
        f"Job ID: {job.id}",
        *([f"Array Job ID: {job.label}"] if job.array_id else []),
        "Cluster: yard",
        f"User/Group: {job.user}/{group_of(job.user)[1]}",
        f"State: {job.state}{code}",
        *([f"Nodes: {job.node_count}"] if job.node_count > 1 else []),
        f"Cores: {job.cpu_count}",
    ]
    if usage is None:
        lines += [
            f"CPU Utilized: {_UNKNOWN}",
            f"CPU Efficiency: unknown, of {full_span(wall_s)} core-walltime",
        ]
    else:
        part = 100 * usage.cpu_s / wall_s if wall_s else 0.0
        lines += [
            f"CPU Utilized: {full_span(int(usage.cpu_s))}",
            f"CPU Efficiency: {part:.2f}% of {full_span(wall_s)} core-walltime",
        ]
    held = f"{size(job.memory_mib * job.tasks)}" if job.memory_mib else ""
    lines += [
        f"Job Wall-clock time: {full_span(job.ran_s)}",
        f"Memory Utilized: {used_size(usage.rss_kib) if usage else _UNKNOWN}",
        f"Memory Requested: {held or 'none'}",
    ]
    return [
        *lines,
        *([f"GPUs: {job.gpus:g}, {gpu_hours:g} GPU-hours"] if job.gpus and gpu_hours is not None else []),
    ]
