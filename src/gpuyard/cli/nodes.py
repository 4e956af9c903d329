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
from gpuyard.cli.places import client, wanted_columns

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
    "features",
    "jobs",
    "slices",
)
"""Names of the data, the same whether or not there are rows."""

GPU_FIELDS = (
    "node",
    "gpu",
    "gpu_model",
    "busy_pct",
    "memory_used_mib",
    "memory_mib",
    "power_w",
    "temperature_c",
    "others_mib",
    "emulated",
    "jobs",
)

NodeArgument = Annotated[str, Argument(metavar="NODE", help="As `yard nodes` calls it.")]


def nodes(
    gpus: Annotated[
        bool, Option("--gpus", help="Each GPU: how busy and warm it is, its memory, and the jobs on it.")
    ] = False,
    output: OutputOption = Output.TABLE,
    columns: ColumnsOption = "",
    watch: WatchOption = None,
) -> None:
    """Show the nodes, what is free on them, and which GPUs are used from outside the yard."""
    from gpuyard.cli.watching import repeated

    wanted = columns or ("" if gpus else wanted_columns("nodes", output))
    repeated(lambda: (_show_gpus if gpus else _show)(output, wanted), watch, wakes=not gpus)


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
            "MEMORY",
            lambda node: f"{node['memory_mib_free'] >> 10}/{node['memory_mib'] >> 10} GiB",
            right=True,
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


def _show_gpus(output: Output, wanted: str) -> None:
    from gpuyard.cli.streams import notice
    from gpuyard.cli.tables import Column, emit

    with client() as yard:
        found = yard.gpus()
    columns = [
        Column("NODE", lambda gpu: gpu["node"]),
        Column("GPU", lambda gpu: str(gpu["gpu"]), right=True),
        Column("MODEL", lambda gpu: gpu["gpu_model"] or "-"),
        Column("BUSY", lambda gpu: _known(gpu["busy_pct"], "%"), right=True),
        Column("MEMORY", _memory, right=True),
        Column("POWER", lambda gpu: _known(gpu["power_w"], " W"), right=True),
        Column("TEMP", lambda gpu: _known(gpu["temperature_c"], " C"), right=True),
        Column("JOBS", lambda gpu: ", ".join(_job_on(job) for job in gpu["jobs"]) or "-"),
    ]
    emit(found["gpus"], columns, output, fields=GPU_FIELDS, wanted=wanted)
    if found["trouble"]:
        notice(found["trouble"], before="note: ", style="bold")
    if any([gpu["emulated"] for gpu in found["gpus"]]):
        notice("emulated GPUs have nothing to measure", before="note: ", style="bold")


def _known(value: int | None, unit: str) -> str:
    return "-" if value is None else f"{value}{unit}"


def _memory(gpu: Mapping[str, Any]) -> str:
    """Used and total; a dash means unknown, not zero."""
    used, whole = gpu["memory_used_mib"], gpu["memory_mib"]
    return f"{'-' if used is None else f'{used / 1024:.1f}'}/{'-' if whole is None else f'{whole >> 10} GiB'}"


def _job_on(job: Mapping[str, Any]) -> str:
    part = "+".join(job["slices"]) or (f"{job['share']:g}" if job["share"] != 1 else "")
    used = "" if job["memory_used_mib"] is None else f"{job['memory_used_mib'] / 1024:.1f} GiB"
    said = ", ".join([each for each in (part, used) if each])
    return f"{job['label']} ({said})" if said else str(job["label"])


def _pins(node: Mapping[str, Any]) -> str:
    from gpuyard.cli.tables import counted

    return f"{counted(node['gpus_pinned'], 'GPU')} pinned to slices" if node["gpus_pinned"] else ""


def drain(
    node: NodeArgument,
    why: Annotated[str, Option("--why", metavar="REASON", help="Shown to people.", show_default=False)] = "",
) -> None:
    """Let nothing new start on a node. What runs there goes on."""
    with client() as yard:
        yard.drain(node, why)


def resume(node: NodeArgument) -> None:
    """Let a drained node take work again. (For jobs it is `continue`.)"""
    with client() as yard:
        yard.resume(node)
