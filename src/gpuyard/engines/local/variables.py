"""The variables that Slurm sets for a job and its tasks, as far as a yard knows what they mean.

`tests/slurm/test_variables.py` compares them name by name with a job on a real Slurm. A few more come with the
submission: where it came from (`api/surroundings`), and what an sbatch script asked for (`intake/sbatch/variables`).
"""

from gpuyard.engines.contract import Launch
from gpuyard.engines.slurm_names import counted, folded


def ranks_of(launch: Launch) -> list[int]:
    """How many processes the job means to start on each of its nodes."""
    tasks = [part.tasks for part in launch.parts]
    ranks = launch.recipe.ranks or sum(tasks)
    if ranks == sum(tasks):
        return tasks
    each, rest = divmod(ranks, len(tasks))
    return [each + (place < rest) for place in range(len(tasks))]


def fallbacks(launch: Launch, folder: str, host: str) -> dict[str, str]:
    """Defaults that a recipe may override: the script's names for pool, tenant and class, and where it came from."""
    return {
        "SLURM_SUBMIT_DIR": launch.recipe.cwd or folder,
        "SLURM_SUBMIT_HOST": host,
        "SLURM_JOB_PARTITION": launch.partition,
        "SLURM_JOB_ACCOUNT": launch.account,
        "SLURM_JOB_QOS": launch.qos,
    }


def of_job(launch: Launch, uid: int, gid: int, user: str) -> dict[str, str]:
    """The variables that are the same for all tasks."""
    recipe, parts = launch.recipe, launch.parts
    shares = ranks_of(launch)
    ranks = sum(shares)
    nodes = folded([part.node for part in parts])
    found = {
        "SLURM_JOB_ID": str(launch.job_id),
        "SLURM_JOBID": str(launch.job_id),
        "SLURM_JOB_NAME": launch.name,
        "SLURM_JOB_UID": str(uid),
        "SLURM_JOB_GID": str(gid),
        "SLURM_JOB_USER": user,
        "SLURM_CLUSTER_NAME": launch.cluster,
        "SLURM_NTASKS": str(ranks),
        "SLURM_NPROCS": str(ranks),
        "SLURM_NNODES": str(len(parts)),
        "SLURM_JOB_NUM_NODES": str(len(parts)),
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_TASKS_PER_NODE": counted(shares),
        "SLURM_JOB_CPUS_PER_NODE": counted([_cores(part.cpu_milli) for part in parts]),
        "SLURM_CPUS_PER_TASK": str(max(1, sum([part.cpu_milli for part in parts]) // ranks // 1000)),
        "SLURM_GPUS": str(sum([len(part.gpus) for part in parts])),
        "SLURM_RESTART_COUNT": str(launch.restarts),
        "SLURM_PRIO_PROCESS": "0",
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
    }
    if launch.array_id:
        found |= {
            "SLURM_ARRAY_JOB_ID": str(launch.array_id),
            "SLURM_ARRAY_TASK_ID": str(launch.array_index),
        }
    memory_mib = parts[0].memory_mib
    if memory_mib and not any([name.startswith("SLURM_MEM_PER_") for name in recipe.env]):
        found["SLURM_MEM_PER_NODE"] = str(memory_mib)
    return found


def of_task(launch: Launch, number: int, local: int) -> dict[str, str]:
    """The variables of one task. `number`: its node among those of the job; `local`: the task among those there."""
    part = launch.parts[number]
    first = sum([each.tasks for each in launch.parts[:number]])
    there = [first + place for place in range(1 if launch.recipe.batch else part.tasks)]
    return {
        "SLURMD_NODENAME": part.node,
        "SLURM_TOPOLOGY_ADDR": part.node,
        "SLURM_NODEID": str(number),
        "SLURM_PROCID": str(first + local),
        "SLURM_LOCALID": str(local),
        "SLURM_GTIDS": ",".join(map(str, there)),
        "SLURM_JOB_GPUS": ",".join([str(gpu) for gpu in part.gpus]),
        "SLURM_GPUS_ON_NODE": str(len(part.slices) or len(part.gpus)),
        "SLURM_CPUS_ON_NODE": str(_cores(part.cpu_milli)),
    }


def _cores(cpu_milli: int) -> int:
    return max(1, -(-cpu_milli // 1000))
