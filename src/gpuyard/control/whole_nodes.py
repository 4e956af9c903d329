"""Jobs that want whole nodes (`exclusive`): what they ask for is all that a node has, whatever they named."""

from dataclasses import replace

from gpuyard.control.newjobs import NewJob
from gpuyard.control.refusals import Unacceptable
from gpuyard.core import State
from gpuyard.model import Node


def on_whole_nodes(new: NewJob, state: State) -> NewJob | Unacceptable:
    """The job, if it is exclusive, asking for every GPU, core and byte of as many nodes as it needs."""
    if not new.exclusive:
        return new
    nodes = [node for node in state.nodes.node if _will_do(new, node)]
    sizes = {(node.gpu_model, node.gpus, node.cpu_milli, node.memory_mib) for node in nodes}
    if not sizes:
        return new
    if len(sizes) > 1:
        return Unacceptable(
            "'exclusive' takes whole nodes, and the nodes that could serve it are not alike",
            "Say which are meant, with a pool, a GPU model or by name.",
        )
    ((_model, gpus, cpu_milli, memory_mib),) = sizes
    fit = new.tasks
    for want, have in ((new.gpus, gpus), (new.cpu_milli, cpu_milli), (new.memory_mib, memory_mib)):
        if want:
            fit = min(fit, have // want)
    if fit == 0:
        # A node is too small even for one task; it is said so when the job is judged.
        return new
    count = max(new.nodes_min, -(-new.tasks // fit))
    return replace(
        new,
        gpus=gpus,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        tasks=count,
        nodes_min=count,
        nodes_max=count,
        ranks=new.ranks or (new.tasks if new.batch else 0),
    )


def _will_do(new: NewJob, node: Node) -> bool:
    return (
        (not new.pools or node.pool in new.pools)
        and (not new.gpu_models or node.gpu_model in new.gpu_models)
        and (not new.on_nodes or node.name in new.on_nodes)
        and node.name not in new.not_nodes
        and all([not set(group).isdisjoint(node.features) for group in new.features])
        and node.gpus >= new.gpus
    )
