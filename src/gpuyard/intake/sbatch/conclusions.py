"""What sbatch concludes from the given options: how many nodes and tasks, and which options exclude each other.

The rules are those of Slurm 22.05, found by experiment. Where Slurm accepts two answers to one question and follows one
of them, we refuse and name both.
"""

from dataclasses import replace

from gpuyard.intake.sbatch import amounts
from gpuyard.intake.sbatch.reading import Reading, Values

_EXCLUDE_EACH_OTHER = (
    ("cpus-per-gpu", "cpus-per-task"),
    ("ntasks-per-gpu", "ntasks-per-node"),
    ("ntasks-per-gpu", "gpus-per-task"),
)


def conclude(said: Reading, values: Values) -> Reading:
    """The reading with its numbers of nodes and tasks settled as far as Slurm settles them."""
    for name, other in _EXCLUDE_EACH_OTHER:
        if values.has(name) and values.has(other):
            values.problem(name, f"and --{other} exclude each other; keep one of them")
    if values.problems:
        return replace(said, ntasks=said.ntasks or 1)
    found = _nodes_by_name(said, values)
    if found.ntasks and found.ntasks < found.nodes_min:
        what = f"is {found.ntasks}: takes {found.ntasks} of the {found.nodes_min} nodes, as sbatch does"
        values.warn("ntasks", what)
        found = replace(found, nodes_min=found.ntasks, nodes_max=found.ntasks)
    found = _nodes_by_gpus(found, values)
    found = replace(found, ntasks=_tasks(found, values))
    if found.ntasks < found.nodes_min and values.has("nodes"):
        what = f"asks for {found.nodes_min} nodes, and GPUs by task make {found.ntasks} tasks: every node needs one"
        values.problem("nodes", what)
    return _gpus_agree(found, values)


def _nodes_by_name(said: Reading, values: Values) -> Reading:
    """All named nodes are used, as far as there are tasks for them."""
    names = said.nodelist
    if said.ntasks and said.ntasks < len(names):
        values.warn(
            "nodelist",
            f"names more nodes than there are tasks: takes the first {said.ntasks}, as sbatch does",
        )
        names = names[: said.ntasks]
    if len(names) <= said.nodes_min:
        return replace(said, nodelist=names)
    if said.nodes_max and said.nodes_max < len(names):
        values.problem("nodelist", f"names {len(names)} nodes, and --nodes is {said.nodes_max}")
    return replace(said, nodelist=names, nodes_min=len(names), nodes_max=max(said.nodes_max, len(names)))


def _nodes_by_gpus(found: Reading, values: Values) -> Reading:
    """The GPUs of the job and of a node together give the number of nodes."""
    if not (found.gpus and found.gpus.count and found.gpus_per_node and found.gpus_per_node.count):
        return found
    nodes, rest = divmod(found.gpus.count, found.gpus_per_node.count)
    if rest or not nodes:
        values.problem("gpus", f"must be a multiple of the {found.gpus_per_node.count} GPUs of a node")
    elif found.nodes_min and not found.nodes_min <= nodes <= found.nodes_max:
        values.problem("gpus", f"and the GPUs of a node come to {nodes} nodes, which --nodes excludes")
    return replace(found, nodes_min=max(1, nodes), nodes_max=max(1, nodes))


def _tasks(found: Reading, values: Values) -> int:
    nodes = max(1, found.nodes_min)
    if values.has("ntasks-per-gpu"):
        return _tasks_by_gpu(found, values, nodes)
    if found.ntasks:
        return found.ntasks
    per_task = found.gpus_per_task.count if found.gpus_per_task else 0
    if per_task and found.gpus:
        return max(1, found.gpus.count // per_task)
    if per_task and not found.ntasks_per_node and (not found.nodes_min or values.has("cpus-per-task")):
        values.problem("gpus-per-task", "needs to know how many tasks: add --ntasks")
    if found.ntasks_per_node:
        return found.ntasks_per_node * nodes
    return max(nodes, values.get("extra-node-info", _threads, 1))


def _tasks_by_gpu(found: Reading, values: Values, nodes: int) -> int:
    """Given GPUs win over given tasks."""
    each = values.get("ntasks-per-gpu", amounts.count, 1)
    gpus = found.gpus.count if found.gpus else found.gpus_per_node.count * nodes if found.gpus_per_node else 0
    if gpus:
        if found.ntasks and found.ntasks != gpus * each:
            values.warn("ntasks-per-gpu", f"and {gpus} GPUs make {gpus * each} tasks, whatever --ntasks says")
        return gpus * each
    if found.ntasks:
        if found.ntasks % each:
            values.problem("ntasks", f"must be a multiple of --ntasks-per-gpu, {each}")
        return found.ntasks
    if not values.has("nodes"):
        values.problem("ntasks-per-gpu", "needs GPUs, or a number of tasks: add --gpus or --ntasks")
    return nodes * each


def _gpus_agree(found: Reading, values: Values) -> Reading:
    """Compare the GPUs of a task with those of the job and of a node; they may also give the number of nodes."""
    per_task = found.gpus_per_task.count if found.gpus_per_task else 0
    if not per_task:
        return found
    total = per_task * found.ntasks
    if found.gpus and found.gpus.count != total:
        values.problem(
            "gpus", f"is {found.gpus.count}, and {found.ntasks} tasks of {per_task} come to {total}"
        )
    per_node = found.gpus_per_node.count if found.gpus_per_node else 0
    if not per_node:
        return found
    nodes = found.nodes_min or max(1, total // per_node)
    if nodes * per_node != total:
        where = f"{nodes} node{'s' if nodes > 1 else ''} of {per_node}"
        values.problem(
            "gpus-per-task", f"comes to {total} GPUs, and {where} to {nodes * per_node}; keep one of them"
        )
    return replace(found, nodes_min=nodes, nodes_max=max(nodes, found.nodes_max))


def _threads(text: str) -> int:
    """`2:4:1`: sbatch starts one task for each given thread; with less given it concludes nothing."""
    parts = text.split(":")
    if len(parts) < 3 or not all(part.isdecimal() and int(part) for part in parts):
        return 1
    threads = 1
    for part in parts:
        threads *= amounts.count(part)
    return threads
