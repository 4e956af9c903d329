"""What a try of a job did over time, as it is shown: its curves, and what it holds, against which they are read."""

from collections.abc import Callable, Mapping, Sequence

from gpuyard.control.replica.labels import node_key
from gpuyard.control.upkeep.watching import Watch
from gpuyard.core.fleet.mig_geometry import find_geometries
from gpuyard.model import Node
from gpuyard.model.catalogue import CATALOGUE
from gpuyard.model.units import MILLI, SECOND_MS
from gpuyard.telemetry.attribution import FULL
from gpuyard.telemetry.series import Curve
from gpuyard.wire.replies.jobs import CurveReply, CurvesReply, KernelLineReply, ListedJob

KERNEL_LINES = 20
"""The last lines of kernels that are shown with a job."""


def curves_view(
    watch: Watch, view: ListedJob, key: Callable[[int], str], nodes: Sequence[Node], now_ms: int
) -> CurvesReply:
    """Of the last try of a job. `key`: the engine's name of a try by its number; `nodes`: those that it has or had."""
    held = held_by(view, nodes)
    found: Mapping[str, Curve] = {}
    if view["started_ms"]:
        until_ms = (view["ended_ms"] or now_ms) + 1
        at = [node_key(node.cluster, node.name) for node in nodes]
        found = watch.curves(key(view["attempts"]), at, view["started_ms"], until_ms)
    curves: list[CurveReply] = [
        {
            "signal": name,
            "unit": curve.signal.unit,
            "counts": curve.signal.counts,
            "estimated": curve.signal.estimated,
            "full": held.get(name),
            "times_ms": curve.times_ms,
            "values": curve.values,
        }
        for name, curve in sorted(found.items())
    ]
    return {
        "label": view["label"],
        "attempt": view["attempts"],
        "started_ms": view["started_ms"],
        "ended_ms": view["ended_ms"],
        "curves": curves,
    }


def kernel_lines_view(
    watch: Watch, view: ListedJob, key: str, nodes: Sequence[Node], now_ms: int
) -> list[KernelLineReply]:
    """Faults that kernels wrote during the last try of a job, about it or about the machines that it ran on."""
    if not view["started_ms"]:
        return []
    at = {node_key(node.cluster, node.name): node.name for node in nodes}
    # Lines have whole seconds.
    until_ms = (view["ended_ms"] or now_ms) + SECOND_MS
    found = watch.lines(key, list(at), view["started_ms"] - SECOND_MS, until_ms)
    return [
        {"at_ms": line.at_ms, "node": at[node], "text": line.text} for node, line in found[-KERNEL_LINES:]
    ]


def held_by(view: ListedJob, nodes: Sequence[Node]) -> dict[str, int]:
    """What a job holds of each signal, in its unit: GPU memory, cores and memory. What nobody knows is left out."""
    held: dict[str, int] = {}
    tasks = view["tasks"]
    if view["gpus"]:
        share = share_milli(view)
        held |= {"gpu_busy": share, "gpu_busy_estimated": share}
    if view["cpus"]:
        # CPU time is in milliseconds: a core has a thousand of them in a second.
        held["cpu"] = round(view["cpus"] * MILLI) * tasks
    if view["memory_mib"]:
        held["memory"] = view["memory_mib"] * tasks
    model = next((each.gpu_model for each in nodes if each.name in view["nodes"][:1]), "")
    if view["gpus"] and (memory_mib := gpu_memory_mib(view, model)):
        held["gpu_memory"] = memory_mib
    return held


def share_milli(view: ListedJob) -> int:
    """How busy a job may keep each of its GPUs, in parts of a thousand. A slice tells of itself alone."""
    share = str(view["gpus_per_task"]).rpartition("x")[2]
    return round(float(share) * FULL) if share.startswith("0.") else FULL


def gpu_memory_mib(view: ListedJob, model: str) -> int:
    """The GPU memory that a job has, all tasks together; 0: nobody knows."""
    count, _, profile = str(view["gpus_per_task"]).rpartition("x")
    if "g." in profile:
        sizes = [
            each.memory_mib
            for geometry in find_geometries(profile)
            for each in geometry.profiles
            if each.name == profile
        ]
        return max(sizes, default=0) * int(count or 1) * int(view["tasks"])
    return round(CATALOGUE[model].memory_mib * float(view["gpus"])) if model in CATALOGUE else 0
