"""What is handed to Slurm for one attempt: as words for `sbatch`, and as a body for slurmrestd.

Nodes are named and counts are exact, so that Slurm has nothing to decide but which GPUs of a node it gives.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuyard.engines.contract import Launch, Part
from gpuyard.engines.slurm.words.rows import Partition, SlurmNode
from gpuyard.model.units import MINUTE_MS

MARGIN_MS = 120_000
"""How much later than ours Slurm's own time limit is: ours is exact, Slurm's is there in case the wrapper is not."""
NAME_MAX = 120
LOOSE_VARIABLES = ("SLURM_EXPORT_ENV", "SLURM_GET_USER_ENV", "SLURM_TIME_FORMAT")
"""Variables that Slurm sets in a job's environment and that would change Slurm's commands in it."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes on which a job gets the same."""

    nodes: tuple[str, ...]
    gpus: int
    gpu_type: str
    cpus: int
    """Of each node."""
    memory_mib: int
    """Of each node."""
    tasks: int
    """Of each node, as Slurm counts them."""
    partition: str

    @property
    def gres(self) -> str:
        """GPUs of each node in Slurm's words; empty: none."""
        kind = f":{self.gpu_type}" if self.gpu_type else ""
        return f"gpu{kind}:{self.gpus}" if self.gpus else ""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job for Slurm."""

    key: str
    mark: str
    """The comment of the job, by which it is found again."""
    name: str
    uid: int
    gid: int
    groups: tuple[NodeGroup, ...]
    """More than one: nodes get different amounts, and Slurm calls it a heterogeneous job."""
    minutes: int
    """Time limit; 0: none."""
    output: str
    script: str
    reservation: str = ""
    account: str = ""


def group_nodes(
    launch: Launch, nodes: Mapping[str, SlurmNode], partitions: list[Partition]
) -> tuple[NodeGroup, ...]:
    """The parts of a launch, alike ones together, in the order of the first of each kind."""
    alike: dict[tuple[int, str, int, int, int, str], list[Part]] = {}
    for part in launch.parts:
        node = nodes[part.node]
        kind = node.gpus.type if part.gpus else ""
        partition = next((each.name for each in partitions if part.node in each.nodes), "")
        alike.setdefault(
            (len(part.gpus), kind, part.cpu_milli, part.memory_mib, part.tasks, partition), []
        ).append(part)
    found = []
    for (_, kind, _, _, _, partition), parts in alike.items():
        first = parts[0]
        cpus, memory_mib = amounts(first, nodes[first.node])
        tasks = _tasks(launch, cpus)
        names = tuple([part.node for part in parts])
        found.append(NodeGroup(names, len(first.gpus), kind, cpus, memory_mib, tasks, partition))
    return tuple(found)


def _tasks(launch: Launch, cpus: int) -> int:
    """Tasks of a node, as Slurm counts them: the ranks that a batch script may start by `srun`."""
    if not launch.recipe.batch:
        return 1
    ranks = launch.recipe.ranks or sum([part.tasks for part in launch.parts])
    each, rest = divmod(ranks, len(launch.parts))
    return each if each and not rest and cpus % each == 0 else 1


def amounts(part: Part, node: SlurmNode) -> tuple[int, int]:
    """Cores and memory to ask of Slurm. A job that asks for none gets as large a part of them as of the node's GPUs.

    Slurm would give one core, and all the memory of the node, so that no second job fits beside it.
    """
    cpus = -(-part.cpu_milli // 1000)
    if not cpus:
        cpus = max(1, node.cpus * len(part.gpus) // max(1, node.gpus.number))
    if part.memory_mib:
        return cpus, part.memory_mib
    if part.gpus:
        return cpus, max(1, node.memory_mib * len(part.gpus) // max(1, node.gpus.number))
    return cpus, max(1, node.memory_mib * cpus // max(1, node.cpus))


def choose_minutes(launch: Launch, groups: tuple[NodeGroup, ...], partitions: list[Partition]) -> int:
    """Slurm's time limit for a launch: ours and a margin, within what its partitions allow. 0: none.

    A job without a limit gets as much as is allowed: left out, Slurm would take the partition's DefaultTime.
    """
    names = {group.partition for group in groups}
    wanted = [each.max_ms // MINUTE_MS for each in partitions if each.max_ms and each.name in names]
    if launch.limit_ms:
        wanted.append(slurm_minutes(launch.limit_ms, launch.grace_ms))
    return min(wanted, default=0)


def slurm_minutes(limit_ms: int, grace_ms: int) -> int:
    """Slurm's time limit for one of ours: with the grace and a margin, so that ours comes first. 0: none."""
    return -(-(limit_ms + grace_ms + MARGIN_MS) // MINUTE_MS) if limit_ms else 0


def plain_name(name: str) -> str:
    """A job's name without what would break a line of Slurm's lists."""
    return "".join([char if char.isprintable() else " " for char in name])[:NAME_MAX].strip() or "yard"


def sbatch_words(job: Submission, as_user: bool) -> list[str]:
    """The arguments of `sbatch`, which reads the script from its standard input."""
    found = ["--parsable", *([f"--uid={job.uid}", f"--gid={job.gid}"] if as_user else [])]
    for number, group in enumerate(job.groups):
        found += [
            *([":"] if number else []),
            "--no-requeue",
            f"--job-name={plain_name(job.name)}",
            f"--comment={job.mark}",
            "--chdir=/",
            f"--output={job.output.replace('%', '%%')}",
            "--export=ALL",
            *([f"--partition={group.partition}"] if group.partition else []),
            *([f"--reservation={job.reservation}"] if job.reservation else []),
            *([f"--account={job.account}"] if job.account else []),
            f"--nodes={len(group.nodes)}",
            f"--nodelist={','.join(group.nodes)}",
            f"--ntasks-per-node={group.tasks}",
            f"--cpus-per-task={group.cpus // group.tasks}",
            *([f"--gres={group.gres}"] if group.gres else []),
            f"--mem={group.memory_mib}M",
            f"--time={job.minutes}",
        ]
    return found


def make_body(job: Submission, environment: Mapping[str, str]) -> dict[str, Any]:
    """The same for slurmrestd, in the words of v0.0.40 and later: earlier ones have no place for the nodes."""
    jobs = [_described(job, group, environment) for group in job.groups]
    return {"script": job.script} | ({"job": jobs[0]} if len(jobs) == 1 else {"jobs": jobs})


def _described(job: Submission, group: NodeGroup, environment: Mapping[str, str]) -> dict[str, Any]:
    optional = {
        "tres_per_node": f"gres/{group.gres}" if group.gres else "",
        "time_limit": {"set": True, "number": job.minutes}
        if job.minutes
        else {"set": True, "infinite": True},
        "partition": group.partition,
        "reservation": job.reservation,
        "account": job.account,
    }
    return {
        "name": plain_name(job.name),
        "comment": job.mark,
        "requeue": False,
        "current_working_directory": "/",
        "standard_output": job.output.replace("%", "%%"),
        "environment": [f"{name}={value}" for name, value in sorted(environment.items())],
        "minimum_nodes": len(group.nodes),
        "maximum_nodes": len(group.nodes),
        "required_nodes": list(group.nodes),
        "tasks_per_node": group.tasks,
        "tasks": group.tasks * len(group.nodes),
        "cpus_per_task": group.cpus // group.tasks,
        "memory_per_node": {"set": True, "number": group.memory_mib},
        **{name: value for name, value in optional.items() if value},
    }


def list_sruns(groups: tuple[NodeGroup, ...]) -> list[list[str]]:
    """The words of `srun` that start one process on each node, with all the node's GPUs: one command a group."""
    return [
        [
            "srun",
            *([f"--het-group={number}"] if len(groups) > 1 else []),
            f"--nodes={len(group.nodes)}",
            f"--ntasks={len(group.nodes)}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={group.cpus}",
            "--mem=0",
            "--overlap",
            "--export=ALL",
            "--wait=0",
            "--kill-on-bad-exit=0",
            "--chdir=/",
            "--quiet",
        ]
        for number, group in enumerate(groups)
    ]


def find_program(folder: str) -> str:
    """The program for the nodes' Python: the copy of `node` in the shared folder."""
    return f"import sys; sys.path.insert(0, {folder!r}); from node.slurm.head import main; sys.exit(main())"


def make_script(python: str, program: str, folder: str) -> str:
    """The batch script: nothing in it comes from a user."""
    command = [python, "-I", "-S", "-c", program, folder]
    return f"#!/bin/sh\nexec {' '.join([shlex.quote(word) for word in command])}\n"
