"""The environment of every task of a step: where it is, which of how many it is, and which GPUs are its own."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuyard.engines.local.steps.grants import NodeGrant, RoomNode, StepAsk
from gpuyard.engines.name_lists import fold_counts, fold_names

_MAP = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})(?:\*([0-9]{1,4}))?")


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task."""

    rank: int
    node: str
    node_number: int
    """The place of its node in the step."""
    environment: Mapping[str, str]


def plan_tasks(
    step: int, ask: StepAsk, granted: Sequence[NodeGrant], room: Sequence[RoomNode], base: Mapping[str, str]
) -> list[TaskPlan]:
    """The tasks by rank; `ValueError` for an impossible binding."""
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
    per_node = fold_counts([len(each.ranks) for each in granted])
    return {
        "SLURM_STEP_ID": str(step),
        "SLURM_STEPID": str(step),
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_STEP_NUM_TASKS": tasks,
        "SLURM_NNODES": str(len(granted)),
        "SLURM_STEP_NUM_NODES": str(len(granted)),
        "SLURM_STEP_NODELIST": fold_names([each.node for each in granted]),
        "SLURM_STEP_TASKS_PER_NODE": per_node,
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
        "SLURM_TASKS_PER_NODE": per_node,
    }


def _of_node(number: int, each: NodeGrant, node: RoomNode, ask: StepAsk) -> dict[str, str]:
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


def bound(bind: str, per_task: int | None, gpus: int, tasks: int) -> list[tuple[int, ...]]:
    """For each local task, the places of its GPUs among the step's `gpus` on the node; `ValueError` if there are none.

    Without `--gpu-bind` a task sees all of them, or its own if they are counted by task.
    """
    said = re.sub(r"^(?:verbose|v|quiet|q)[,:]?", "", bind.strip(), flags=re.IGNORECASE)
    if not said and per_task:
        said = f"per_task:{per_task}"
    kind, _, value = said.partition(":")
    kind = kind.lower()
    everything = tuple(range(gpus))
    if not gpus or kind in ("", "none", "closest"):
        # Tasks are not bound to cores, so that no GPU is closer than another.
        return [everything] * tasks
    if kind in ("single", "per_task"):
        if not value.isdecimal() or not int(value):
            raise ValueError(said)
        number = int(value)
        if kind == "single":
            return [(local // number % gpus,) for local in range(tasks)]
        if number * tasks > gpus:
            raise ValueError(said)
        return [everything[local * number : (local + 1) * number] for local in range(tasks)]
    if kind in ("map_gpu", "map", "mask_gpu", "mask"):
        return _listed(said, value, gpus, tasks, masks=kind.startswith("mask"))
    raise ValueError(said)


def _listed(said: str, value: str, gpus: int, tasks: int, *, masks: bool) -> list[tuple[int, ...]]:
    """One entry for each task, from the beginning again where there are more tasks."""
    entries: list[tuple[int, ...]] = []
    for part in value.split(","):
        match = _MAP.fullmatch(part.strip())
        if not match:
            raise ValueError(said)
        # Masks are hexadecimal, with 0x in front or without.
        hexadecimal = masks or part.strip().startswith("0x")
        if not hexadecimal and not match[1].isdecimal():
            raise ValueError(said)
        number = int(match[1], 16 if hexadecimal else 10)
        places = tuple(bit for bit in range(number.bit_length()) if number >> bit & 1) if masks else (number,)
        if not places or max(places) >= gpus:
            raise ValueError(said)
        entries += [places] * int(match[2] or 1)
    return [entries[local % len(entries)] for local in range(tasks)]
