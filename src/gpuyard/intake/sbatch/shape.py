"""From Slurm's nodes, tasks and totals to a yard's tasks, each with its own GPUs, cores and memory.

Slurm promises a job an amount of every node and leaves the processes to `srun`; a yard promises an amount to every
task. So if the number of nodes is settled, a yard's task is what one node gives. If it is not, and everything is
counted by Slurm's own tasks, those are the yard's. If neither holds, the job is read as one for a single node.
"""

from typing import NamedTuple

from gpuyard.intake.sbatch.reading import Reading, Values

_GPUS_OF_MOST_NODES = 8


class JobShape(NamedTuple):
    """What the yard is asked for."""

    tasks: int
    gpus: int
    """Of each task, like all fields up to `memory_mib`."""
    cpus: int
    memory_mib: int
    nodes: int
    """The fewest nodes over which it is spread; 0: as few as possible."""
    nodes_most: int
    """The most nodes; 0: any number."""


def find_shape(reading: Reading, values: Values) -> JobShape:
    """The shape of a job."""
    nodes = _nodes(reading, values)
    by_node = reading.gpus_per_node or reading.memory_per == "mem" or reading.gpus
    if values.has("nodes") and reading.nodes_min != reading.nodes_max:
        if reading.ntasks > nodes and not by_node and not reading.ntasks_per_node:
            return _by_task(reading, values, nodes, min(reading.nodes_max, reading.ntasks))
        least = reading.nodes_min
        values.warn(
            "nodes", f"is read as {least}, the least of the range; for {least + 1} say --nodes={least + 1}"
        )
    if nodes == 0 or (reading.ntasks % nodes and not by_node):
        return _by_task(reading, values, nodes, nodes)
    return _by_node(reading, values, nodes)


def _nodes(reading: Reading, values: Values) -> int:
    """The number of nodes; 0 if nothing settles it."""
    if reading.nodes_min:
        return reading.nodes_min
    if reading.ntasks == 1:
        if reading.gpus and reading.gpus.count > _GPUS_OF_MOST_NODES:
            values.warn("gpus", "is read as this many GPUs of one node; add --nodes to spread them")
        return 1
    if reading.ntasks_per_node:
        return -(-reading.ntasks // reading.ntasks_per_node)
    if reading.gpus_per_node and reading.gpus_per_node.count:
        name = next(each for each in ("gres", "gpus-per-node", "gpus-per-socket") if values.has(each))
        values.warn(name, "counts by node and --nodes is not given: read as one node")
        return 1
    if reading.memory_per == "mem" and reading.memory_mib:
        values.warn("mem", "counts by node and --nodes is not given: read as one node")
        return 1
    if reading.gpus and reading.gpus.count % reading.ntasks:
        values.warn(
            "gpus",
            f"does not divide by the {reading.ntasks} tasks and --nodes is not given: read as one node",
        )
        return 1
    return 0


def _by_task(reading: Reading, values: Values, nodes: int, most: int) -> JobShape:
    if reading.gpus_per_task:
        gpus = reading.gpus_per_task.count
    else:
        gpus = reading.gpus.count // reading.ntasks if reading.gpus else 0
    if values.has("ntasks-per-gpu") and not gpus:
        return _by_node(reading, values, nodes or 1)
    cpus = max(1, reading.cpus_per_gpu * gpus) if reading.cpus_per_gpu else reading.cpus_per_task
    return JobShape(reading.ntasks, gpus, cpus, _memory(reading, values, cpus, gpus), nodes, most)


def _by_node(reading: Reading, values: Values, nodes: int) -> JobShape:
    there = -(-reading.ntasks // nodes)
    if reading.ntasks % nodes and values.has("ntasks"):
        values.warn(
            "ntasks", f"does not divide by {nodes} nodes: every node is asked for the room of {there} tasks"
        )
    gpus = _gpus_of_node(reading, values, nodes, there)
    if reading.cpus_per_gpu:
        cpus = max(there, reading.cpus_per_gpu * gpus)
    else:
        cpus = reading.cpus_per_task * (1 if reading.overcommit else there)
    return JobShape(nodes, gpus, cpus, _memory(reading, values, cpus, gpus), nodes, nodes)


def _gpus_of_node(reading: Reading, values: Values, nodes: int, there: int) -> int:
    if reading.gpus_per_node:
        return reading.gpus_per_node.count
    if reading.gpus:
        each, rest = divmod(reading.gpus.count, nodes)
        if rest:
            values.problem("gpus", f"does not divide by {nodes} nodes; ask for --gpus-per-node")
        return each
    if reading.gpus_per_task:
        return reading.gpus_per_task.count * there
    per_gpu = values.get("ntasks-per-gpu", int, 0)
    return -(-there // per_gpu) if per_gpu else 0


def _memory(reading: Reading, values: Values, cpus: int, gpus: int) -> int:
    """Memory of one of the yard's tasks."""
    if reading.memory_mib is None:
        return 0
    if reading.memory_mib == 0:
        values.warn(
            reading.memory_per, "0 means all memory of the node, which is not counted; say how much is needed"
        )
        return 0
    if reading.memory_per == "mem":
        return reading.memory_mib
    if reading.memory_per == "mem-per-gpu":
        if not gpus:
            values.problem("mem-per-gpu", "needs GPUs, and the job asks for none; use --mem")
        return reading.memory_mib * gpus
    return reading.memory_mib * cpus
