"""`seff`: how a job ended and what it used, as far as a yard knows; what is not measured is called unknown."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.api.client import Client, Refused
from gpuyard.cli.slurm.language.getopt import Grammar, parse_option_table, read
from gpuyard.cli.slurm.language.ids import parse_id
from gpuyard.cli.slurm.language.jobs import SlurmJob, job_from_view, memory_text
from gpuyard.cli.slurm.language.pools import Pools
from gpuyard.cli.slurm.language.squeue_fields import find_group
from gpuyard.cli.slurm.language.stopping import Stop, make_stop
from gpuyard.cli.slurm.language.times import full_span_text
from gpuyard.cli.slurm.language.usage import measure_job
from gpuyard.cli.terminal.visible_text import visible_text

GRAMMAR = Grammar("seff", parse_option_table("debug,d force,f help,h version,V"))
HELP = """\
Usage: seff JOB
Shows how a job ended, how long it ran, and which resources it held and used. A figure that the yard does not know is
shown as unknown."""


def run(words: Sequence[str]) -> int:
    """Print what is known of one job."""
    given = read(GRAMMAR, words)
    wanted = parse_id(given.rest[0]) if len(given.rest) == 1 else None
    if wanted is None:
        raise make_stop("seff", "name one job, as in: seff 17")
    with Client() as yard:
        try:
            found = yard.job(wanted.label)
        except Refused as refusal:
            if refusal.status != 404:
                raise
            raise Stop("Job not found.") from None
        if "array" in found:
            raise make_stop(
                "seff", f"{wanted.label} is an array; name one of its tasks, as in: seff {wanted.label}_0"
            )
        job = job_from_view(found, Pools.of_fleet(yard.fleet()), int(time.time() * 1000))
    used = dict(found.get("used") or {})
    if job.state in ("RUNNING", "SUSPENDED") and (usage := measure_job(job.id, job.started_ms)) is not None:
        # The engine's figures come before what is seen from here.
        seen = {"cpu_s": usage.cpu_s, "memory_mib": usage.rss_kib // 1024}
        used |= {name: value for name, value in seen.items() if used.get(name) is None}
    for line in _lines(job, used):
        print(visible_text(line))
    return 0


def _lines(job: SlurmJob, used: Mapping[str, Any]) -> list[str]:
    code = f" (exit code {job.exit_code})" if job.exit_code is not None else ""
    wall_s = job.ran_s * job.cpu_count
    cpu_s, memory_mib = used.get("cpu_s"), used.get("memory_mib")
    held_mib = job.memory_mib * job.tasks
    lines = [
        f"Job ID: {job.id}",
        *([f"Array Job ID: {job.label}"] if job.array_id else []),
        "Cluster: yard",
        f"User/Group: {job.user}/{find_group(job.user)[1]}",
        f"State: {job.state}{code}",
        *([f"Nodes: {job.node_count}"] if job.node_count > 1 else []),
        f"Cores: {job.cpu_count}",
        f"CPU Utilized: {'unknown' if cpu_s is None else full_span_text(int(cpu_s))}",
        f"CPU Efficiency: {_part(cpu_s, wall_s)} of {full_span_text(wall_s)} core-walltime",
        f"Job Wall-clock time: {full_span_text(job.ran_s)}",
        f"Memory Utilized: {'unknown' if memory_mib is None else memory_text(memory_mib)}",
        f"Memory Efficiency: {_part(memory_mib, held_mib)} of {memory_text(held_mib)}"
        if held_mib
        else "Memory Requested: none",
    ]
    return [*lines, *([f"GPUs: {job.gpus:g}, {used['gpu_hours']:g} GPU-hours"] if job.gpus and used else [])]


def _part(used: float | None, held: float) -> str:
    return "unknown" if used is None else f"{100 * used / held if held else 0:.2f}%"
