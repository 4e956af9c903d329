"""`yard nodes`, `drain`, `resume`: the machines."""

from typing import Annotated

import typer

from gpuyard.cli.listing import Output
from gpuyard.cli.options import OutputOption
from gpuyard.cli.places import client

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="As `yard nodes` calls it.")]


def nodes(output: OutputOption = Output.TABLE) -> None:
    """Show the nodes, what is free on them, and who else uses their GPUs."""
    with client() as yard:
        found = yard.nodes()
    from gpuyard.cli.tables import Column, emit, number

    columns = [
        Column("NODE", lambda node: node["name"]),
        Column("STATE", lambda node: node["state"]),
        Column("MODEL", lambda node: node["gpu_model"] or "-"),
        Column("GPUS", lambda node: str(node["gpus"]), right=True),
        Column("FREE", lambda node: number(node["gpus_free"]), right=True),
        Column("CPUS", lambda node: f"{number(node['cpus_free'])}/{number(node['cpus'])}", right=True),
        Column(
            "MEMORY", lambda node: f"{node['memory_mib_free'] >> 10}/{node['memory_mib'] >> 10}G", right=True
        ),
        Column("JOBS", lambda node: str(len(node["jobs"])), right=True),
        Column("CLUSTER", lambda node: node["cluster"], wide=True),
        Column("POOL", lambda node: node["pool"], wide=True),
        Column("LABELS", lambda node: " ".join(node["jobs"]) or "-", wide=True),
        Column("WHY", lambda node: "; ".join(part for part in (node["why"], node["foreign"]) if part)),
    ]
    emit([dict(node) for node in found], columns, output)


def drain(
    node: NodeArgument,
    why: Annotated[str, typer.Option("--why", help="For people.", show_default=False)] = "",
) -> None:
    """Let nothing new start on a node. What runs there goes on."""
    with client() as yard:
        yard.drain(node, why)


def resume(node: NodeArgument) -> None:
    """Let a drained node take work again. (For jobs it is `continue`.)"""
    with client() as yard:
        yard.resume(node)
