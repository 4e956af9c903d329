"""`yard nodes`, `drain`, `resume`: the machines."""

from typing import Annotated

from gpuyard.cli.connection.defaults import default_columns
from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import (
    Argument,
    ClusterOption,
    ColumnsOption,
    Option,
    Output,
    OutputOption,
    WatchOption,
)
from gpuyard.errors import BadInput

NodeArgument = Annotated[str, Argument(metavar="NODE", help="The node, as `yard nodes` names it.")]


def nodes(
    gpus: Annotated[
        bool, Option("--gpus", help="Show each GPU: how busy and warm it is, its memory, and the jobs on it.")
    ] = False,
    topo: Annotated[
        bool,
        Option(
            "--topo",
            help="Show how GPUs are linked, as `nvidia-smi topo` does: NVLink, PCIe, NUMA domain, cores.",
        ),
    ] = False,
    cluster: ClusterOption = "",
    output: OutputOption = Output.TABLE,
    columns: ColumnsOption = "",
    watch: WatchOption = None,
) -> None:
    """Show the nodes, what is free on them, and which GPUs are used from outside the yard."""
    from gpuyard.cli.commands.reports import show_report
    from gpuyard.reports import registry

    if gpus and topo:
        raise BadInput("--gpus and --topo are different tables", "Ask for one of them.")
    name = "gpus" if gpus else "topology" if topo else "nodes"
    wanted = columns or ("" if gpus or topo else default_columns("nodes", output))
    values = {"cluster": cluster} if cluster else {}
    show_report(registry.load_own_report(name), values, output, wanted, watch)


def drain(
    node: NodeArgument,
    why: Annotated[str, Option("--why", metavar="REASON", help="The reason, which `yard nodes` shows.")] = "",
) -> None:
    """Stop new jobs from starting on a node. Jobs that run there keep running."""
    with open_client() as yard:
        yard.drain(node, why)


def resume(node: NodeArgument) -> None:
    """Let a drained node take work again. (To resume a job, use `yard continue`.)"""
    with open_client() as yard:
        yard.resume(node)
