"""Tasks inside what Slurm has allotted to a job on one node: their variables, their GPUs and Slurm's own steps.

Runs on the nodes as the job's user: only the standard library, nothing newer than Python 3.6.
"""

import os
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

from ..attempt.tasks import TaskEntry
from ..files import SCRIPT
from ..kernel.processes import read_stat

_OF_SLURM = ("SLURM", "CUDA_", "ROCR_", "ZE_", "GPU_")


def own_gpus() -> List[int]:
    """Indices of the GPUs that Slurm gave on this node."""
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"):
        words = os.environ.get(name, "").split(",")
        if words != [""] and all([word.isdigit() for word in words]):
            return [int(word) for word in words]
    return []


class Allotted(TaskEntry):
    """How a process becomes one of the job's where Slurm has set limits and user already."""

    def __init__(
        self, plan: Dict[str, Any], node: str, port: int, output: Tuple[int, int] = (-1, -1)
    ) -> None:
        TaskEntry.__init__(self, plan)
        self.node, self.port, self.output = node, port, output

    def argv(self) -> List[str]:
        """The program and its arguments."""
        script = [self.plan["run"] + "/" + SCRIPT] if self.plan["script"] else []
        return script + list(self.plan["argv"])

    def ranks(self) -> List[int]:
        """The numbers of its tasks on this node, among those of the whole job."""
        part = self.plan["parts"][self.node]
        count = 1 if self.plan["batch"] else part["tasks"]
        return list(range(part["first"], part["first"] + count))

    def admit(self, boxed: bool) -> Iterator[str]:
        """Make way for its containers; tells what comes next, step by step."""
        if boxed:
            yield "make way for its containers"
            from ..containers import podman  # most jobs run in no image

            podman.hide_hybrid()

    def environment(self, index: int) -> Dict[str, str]:
        """The yard's variables over Slurm's over a clean base; GPUs as Slurm gave them."""
        plan, part = self.plan, self.plan["parts"][self.node]
        rank = part["first"] + index
        env: Dict[str, str] = dict(plan["env"])
        for name, value in os.environ.items():
            if name.startswith(_OF_SLURM) and name not in plan["dropped"]:
                env[name] = value
        env.update(plan["yard"])
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part["gpus"] else []
        each, rest = divmod(len(devices), part["tasks"])
        alone = plan["batch"] or bool(rest)
        env["CUDA_VISIBLE_DEVICES"] = env["YARD_GPUS"] = ",".join(devices)
        env["YARD_TASK_GPUS"] = ",".join(devices if alone else devices[index * each : (index + 1) * each])
        if plan.get("image"):
            # What images of NVIDIA look at.
            env["NVIDIA_VISIBLE_DEVICES"] = ",".join(devices) or "void"
        env["YARD_NODE"] = self.node
        if not plan["batch"]:
            env.update(SLURM_PROCID=str(rank), SLURM_LOCALID=str(index), SLURM_NTASKS=str(plan["world"]))
            env.update(SLURM_NPROCS=str(plan["world"]), SLURM_NODEID=str(plan["order"].index(self.node)))
            if plan["world"] > 1:
                env.update(RANK=str(rank), LOCAL_RANK=str(index), WORLD_SIZE=str(plan["world"]))
                env["NODE_RANK"] = env["SLURM_NODEID"]
                env.update(MASTER_ADDR=plan["address"], MASTER_PORT=str(self.port))
        return env

    def starters(self, below: Callable[[], Set[int]]) -> Set[int]:
        """Every `srun` of the job: it passes signals on. The helper that it starts itself is left out."""
        found: Dict[int, int] = {}
        for pid in below():
            stat = read_stat(pid)
            try:
                with open("/proc/{}/comm".format(pid), "rb") as file:
                    is_srun = file.read().strip() == b"srun"
            except OSError:
                continue
            if is_srun and stat is not None:
                found[pid] = stat.parent
        return {pid for pid, parent in found.items() if parent not in found}
