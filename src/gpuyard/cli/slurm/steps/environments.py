"""The environment of every task of a step: where it is, which of how many it is, and which GPUs are its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuyard.cli.slurm.steps.asks import Ask
from gpuyard.cli.slurm.steps.binding import bound
from gpuyard.cli.slurm.steps.grants import NodeGrant, RoomNode
from gpuyard.engines.hostnames import counted, folded


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task."""

    rank: int
    node: str
    node_number: int
    """Of its node in the step."""
    environment: Mapping[str, str]


def task_plans(
    step: int, ask: Ask, granted: Sequence[NodeGrant], room: Sequence[RoomNode], base: Mapping[str, str]
) -> list[TaskPlan]:
    """The tasks by rank; `ValueError` with a binding that cannot be."""
    shared = _of_step(step, granted) | ({"SLURM_CPUS_PER_TASK": str(ask.cpus)} if ask.cpus_said else {})
    found = []
    for number, each in enumerate(granted):
        node = room[each.place]
        of_node = _of_node(number, each, node, ask)
        mine = bound(ask.bind, ask.gpus_per_task, len(each.gpus), len(each.ranks))
        for local, rank in enumerate(each.ranks):
            gpus = [node.gpus[each.gpus[place]] for place in mine[local]]
            devices = ",".join([device for _, device in gpus])
            of_task = {
                "SLURM_PROCID": str(rank),
                "SLURM_LOCALID": str(local),
                "CUDA_VISIBLE_DEVICES": devices,
                "YARD_TASK_GPUS": devices,
                "SLURM_STEP_GPUS": ",".join([str(index) for index, _ in gpus]),
            }
            found.append(TaskPlan(rank, each.node, number, {**base, **shared, **of_node, **of_task}))
    return sorted(found, key=lambda plan: plan.rank)


def _of_step(step: int, granted: Sequence[NodeGrant]) -> dict[str, str]:
    tasks = str(sum([len(each.ranks) for each in granted]))
    per_node = counted([len(each.ranks) for each in granted])
    return {
        "SLURM_STEP_ID": str(step),
        "SLURM_STEPID": str(step),
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_STEP_NUM_TASKS": tasks,
        "SLURM_NNODES": str(len(granted)),
        "SLURM_STEP_NUM_NODES": str(len(granted)),
        "SLURM_STEP_NODELIST": folded([each.node for each in granted]),
        "SLURM_STEP_TASKS_PER_NODE": per_node,
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
        "SLURM_TASKS_PER_NODE": per_node,
    }


def _of_node(number: int, each: NodeGrant, node: RoomNode, ask: Ask) -> dict[str, str]:
    found = {
        "SLURM_NODEID": str(number),
        "SLURMD_NODENAME": each.node,
        "SLURM_TOPOLOGY_ADDR": each.node,
        "SLURM_JOB_GPUS": ",".join([str(index) for index, _device in node.gpus]),
        "YARD_NODE": each.node,
        "YARD_GPUS": ",".join([node.gpus[place][1] for place in each.gpus]),
        "SLURM_GTIDS": ",".join(map(str, each.ranks)),
        "SLURM_GPUS_ON_NODE": str(len(each.gpus)) if each.gpus else "",
    }
    cpus = each.cpus or (0 if ask.whole else ask.cpus * len(each.ranks))
    return found | ({"SLURM_CPUS_ON_NODE": str(cpus)} if cpus else {})
