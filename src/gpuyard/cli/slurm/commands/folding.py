"""Slurm's tasks on one node become one task of the yard, which has room for all of them.

A batch script runs once, whatever it asks for, and starts its own processes with `srun`, `torchrun` or `mpirun`. So
`-n 4 --gpus-per-task=1` is one task with four GPUs on one node, and the script's environment says that it has four
ranks.
"""

from dataclasses import replace
from typing import Any

from gpuyard.intake.values import Intake

_COUNTED = ("gpus", "cpus", "memory_mib")


def fold_onto_node(taken: Intake) -> Intake:
    """The job with its tasks folded into one; as it was, if it has to have several nodes."""
    job: dict[str, Any] = dict(taken.job)
    if job.get("nodes_max", 1) > 1:
        return taken
    tasks = job.pop("tasks", 1)
    ranks = job.pop("ranks", tasks)
    for name in ("batch", "nodes_min", "nodes_max"):
        job.pop(name, None)
    for name in _COUNTED:
        if name in job:
            job[name] *= tasks
    if ranks > 1:
        job["ranks"] = ranks
    return replace(taken, job=job)


def fold_into_gang(taken: Intake) -> Intake:
    """The job as a task for each rank, all with the same command, for `srun`; they share what it asks for."""
    job: dict[str, Any] = dict(taken.job)
    tasks = job.pop("tasks", 1)
    ranks = job.pop("ranks", tasks)
    # A gang over several nodes keeps its number of nodes; any other may run anywhere.
    over = job.get("nodes_max", 1) > 1
    for name in ("batch", *(() if over else ("nodes_min", "nodes_max"))):
        job.pop(name, None)
    if ranks != tasks:
        for name in _COUNTED:
            whole = job.get(name, 0) * tasks
            # What cannot be shared evenly is rounded up: each gets at least its part.
            each = whole / ranks if name == "cpus" else -(-whole // ranks)
            if whole:
                job[name] = round(each, 3) if name == "cpus" else each
    if ranks > 1:
        job["tasks"] = ranks
    return replace(taken, job=job)
