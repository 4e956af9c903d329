"""`yard nodes`, `drain`, `resume`: the machines."""

from collections.abc import Mapping
from typing import Annotated, Any

from gpuyard.cli.options import (
    Argument,
    ColumnsOption,
    Option,
    Output,
    OutputOption,
    WatchOption,
)
from gpuyard.cli.places import client

FIELDS = (
    "name",
    "cluster",
    "pool",
    "state",
    "why",
    "gpu_model",
    "gpus",
    "gpus_free",
    "gpus_foreign",
    "foreign",
    "gpus_pinned",
    "cpus",
    "cpus_free",
    "memory_mib",
    "memory_mib_free",
    "jobs",
    "slices",
)
"""Names of the data, the same whether or not there are rows."""

NodeArgument = Annotated[str, Argument(metavar="NODE", help="As `yard nodes` calls it.")]


def nodes(
    output: OutputOption = Output.TABLE, columns: ColumnsOption = "", watch: WatchOption = None
) -> None:
    """Show the nodes, what is free on them, and who else uses their GPUs."""
    from gpuyard.cli.watching import repeated

    repeated(lambda: _show(output, columns), watch)


def _show(output: Output, wanted: str) -> None:
    from gpuyard.cli.tables import Column, emit, number

    with client() as yard:
        found = yard.nodes()
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
        Column("IDS", lambda node: " ".join(node["jobs"]) or "-", wide=True),
        Column(
            "WHY",
            lambda node: "; ".join(part for part in (node["why"], node["foreign"], _pins(node)) if part),
        ),
    ]
    emit([dict(node) for node in found], columns, output, fields=FIELDS, wanted=wanted)


def _pins(node: Mapping[str, Any]) -> str:
    from gpuyard.cli.tables import counted

    return f"{counted(node['gpus_pinned'], 'GPU')} pinned to slices" if node["gpus_pinned"] else ""


def drain(
    node: NodeArgument,
    why: Annotated[str, Option("--why", help="For people.", show_default=False)] = "",
) -> None:
    """Let nothing new start on a node. What runs there goes on."""
    with client() as yard:
        yard.drain(node, why)


def resume(node: NodeArgument) -> None:
    """Let a drained node take work again. (For jobs it is `continue`.)"""
    with client() as yard:
        yard.resume(node)
