"""The pools of a site: nodes of one partition that are alike; and the GPUs of a node that the yard counts.

Observing and importing a site read them here. What has to be guessed or left out is noted.
"""

from dataclasses import dataclass

from gpuyard.engines.slurm.site.gpu_types import GpuTypes
from gpuyard.engines.slurm.site.names import mend_name, tell
from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.engines.slurm.site.site import SlurmSite
from gpuyard.engines.slurm.words.rows import SlurmNode
from gpuyard.errors import quote
from gpuyard.model.gpu_names import is_linked, parse_mig_profile

GPUS_PER_NODE_MAX = 64
"""As many as yard.yaml takes."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the nodes of a pool have in common."""

    home: str
    gpus: int
    model: str
    group: int
    cpus: int
    memory_mib: int
    features: tuple[str, ...]


def group_nodes(site: SlurmSite, types: GpuTypes, notes: Notes) -> dict[str, list[SlurmNode]]:
    """Nodes of one partition that are alike, by the name of their pool."""
    order = [partition.name for partition in site.partitions]
    names: dict[_Shape, str] = {}
    found: dict[str, list[SlurmNode]] = {}
    for node in site.nodes:
        homes = [name for name in order if name in node.partitions]
        if not homes:
            notes.leave(f"node {node.name} is in no partition: no job can reach it, and it is left out")
            continue
        if len(homes) > 1:
            notes.leave(
                f"partitions {', '.join(homes)} share nodes; a node has one pool, that of {quote(homes[0])}"
            )
        shape = _Shape(homes[0], *read_gpus(node, types, notes), node.cpus, node.memory_mib, node.features)
        if shape not in names:
            base = name = tell("partition", homes[0], mend_name(homes[0]), notes)
            number = 2
            while name in found:
                name, number = f"{base}-{number}", number + 1
            names[shape] = name
        found.setdefault(names[shape], []).append(node)
    return found


def read_gpus(node: SlurmNode, types: GpuTypes, notes: Notes) -> tuple[int, str, int]:
    """Number and model of a node's GPUs, and how many NVLink joins; empty if none can be counted."""
    types_there = node.gpu_types()
    sliced = sorted([type_ for type_ in types_there if parse_mig_profile(type_)])
    if sliced:
        notes.leave(
            f"node {node.name} has MIG slices ({sliced[0]}) as GPUs; of which GPUs they are is not told: left out"
        )
    others = sorted({each.name for each in node.gres if each.name != "gpu"})
    if others:
        notes.leave(f"generic resources {', '.join(others)}: only GPUs are counted")
    count, type_ = node.gpus
    if not count or type_ in sliced:
        return 0, "", 0
    model = types.model(type_, notes)
    if len(types_there) - len(sliced) > 1:
        notes.guess(
            f"node {node.name} has GPUs of several types: only its {count} of type {type_} are counted"
        )
    if count > GPUS_PER_NODE_MAX:
        notes.guess(f"node {node.name} has {count} GPUs; {GPUS_PER_NODE_MAX} of them are counted")
        count = GPUS_PER_NODE_MAX
    return count, model, count if is_linked(type_, model) else 0
