"""The nodes that the yard may use, as it counts them: which are up, which are left out, what other jobs use.

Slurm says how many GPUs of a node other jobs have, and the yard's books count by index. So the yard calls as many
indices busy, chosen among those that no attempt of ours holds, and keeps to the same ones as long as it can.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuyard.engines.contract import ForeignProcess, NodeReport
from gpuyard.engines.machine.backoff import NodeBackoff
from gpuyard.engines.machine.launches import user_name
from gpuyard.engines.slurm.cluster import ContainerRuntime
from gpuyard.engines.slurm.words.queue import SlurmJob
from gpuyard.engines.slurm.words.rows import Partition, Reservation, SlurmNode
from gpuyard.model import CATALOGUE, Node
from gpuyard.model.gpu_names import UNTYPED, choose_model, find_models, is_linked
from gpuyard.model.units import MILLI

FIRST_ASIDE_S, ASIDE_S_MAX = 30.0, 600.0
"""How long nodes are left out on which Slurm did not start a job that it was given."""


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """What the configuration says of a Slurm cluster."""

    cluster: str
    partitions: tuple[str, ...] = ()
    """Empty: Slurm's default one."""
    reservation: str = ""
    account: str = ""
    gpu_types: Mapping[str, str] = field(default_factory=dict)
    handoff_ms: int = 60_000
    python: str = "/usr/bin/python3"
    containers: ContainerRuntime = ContainerRuntime.PODMAN


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The cluster at one moment."""

    nodes: dict[str, SlurmNode]
    """All of Slurm's, by name."""
    partitions: list[Partition]
    """Ours."""
    reservations: list[Reservation]
    missing: tuple[str, ...] = ()
    """Partitions, or the reservation, that the configuration names and Slurm does not have."""

    @property
    def names(self) -> tuple[str, ...]:
        """Nodes of our partitions, and of our reservation where there is one, in order."""
        found = dict.fromkeys([name for each in self.partitions for name in each.nodes])
        return tuple([name for name in found if name in self.nodes])


def take_snapshot(
    site: SlurmSettings,
    nodes: Iterable[SlurmNode],
    partitions: Sequence[Partition],
    reservations: Sequence[Reservation],
) -> ClusterSnapshot:
    """The part of all this that is ours."""
    wanted = site.partitions or tuple([each.name for each in partitions if each.default])
    ours = [each for name in wanted for each in partitions if each.name == name]
    missing = [f"partition {name}" for name in wanted if name not in {each.name for each in ours}]
    if site.reservation and site.reservation not in {each.name for each in reservations}:
        missing.append(f"reservation {site.reservation}")
    return ClusterSnapshot({node.name: node for node in nodes}, ours, list(reservations), tuple(missing))


class ForeignUse:
    """Chooses the GPUs that count as busy, as many as jobs outside the yard use."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, ...]] = {}

    def busy(
        self, node: SlurmNode, held: set[int], foreign: Sequence[SlurmJob]
    ) -> tuple[ForeignProcess, ...]:
        """As many of the node's GPUs as other jobs have; all that are free where they have all its cores or memory."""
        count = node.gpus.number
        owners: list[str] = []
        for job in foreign:
            owners += [f"Slurm job {job.id} of {user_name(job.uid)}"] * -(-job.gpus // max(1, len(job.nodes)))
        for what, there, taken in (
            ("cores", node.cpus, [-(-job.cpus // max(1, len(job.nodes))) for job in foreign]),
            ("memory", node.memory_mib, [-(-job.memory_mib // max(1, len(job.nodes))) for job in foreign]),
        ):
            if foreign and sum(taken) >= there:
                # GPUs without anything beside them are of no use.
                largest = max(zip(taken, foreign, strict=True), key=lambda pair: (pair[0], -pair[1].id))[1]
                owners += [f"Slurm job {largest.id} of {user_name(largest.uid)} has all its {what}"] * count
        free = [gpu for gpu in range(count) if gpu not in held]
        kept = [gpu for gpu in self._before.get(node.name, ()) if gpu in free]
        # 1. those of last time; 2. the highest, since placement begins with the lowest.
        order = kept + [gpu for gpu in reversed(free) if gpu not in kept]
        chosen = tuple(sorted(order[: len(owners)]))
        self._before[node.name] = chosen
        return tuple([ForeignProcess(gpu, 0, owner) for gpu, owner in zip(chosen, owners, strict=False)])


def node_of(node: SlurmNode, cluster: str, pool: str, types: Mapping[str, str]) -> Node:
    """A node of Slurm as a node of the yard."""
    count, kind = node.gpus
    model = choose_model(kind, types) if count else ""
    return Node(
        name=node.name,
        cluster=cluster,
        pool=pool,
        gpu_model=model,
        gpus=count,
        cpu_milli=node.cpus * MILLI,
        memory_mib=node.memory_mib,
        nvlink_group_size=count if is_linked(kind, model) else 0,
        features=node.features,
    )


def pool_of(name: str, partitions: Sequence[Partition]) -> str:
    """The first of these partitions that has the node; empty: none has."""
    return next((each.name for each in partitions if name in each.nodes), "")


def report_nodes(
    site: SlurmSettings,
    scene: ClusterSnapshot,
    aside: NodeBackoff,
    others: ForeignUse,
    held: Mapping[str, set[int]],
    foreign: Mapping[str, Sequence[SlurmJob]],
    now_ms: int,
) -> tuple[NodeReport, ...]:
    """Every node of ours, with what is wrong with it and what other jobs use of it."""
    reserved = {name for each in scene.reservations if each.name == site.reservation for name in each.nodes}
    found = []
    for name in scene.names:
        node = scene.nodes[name]
        pool = pool_of(name, scene.partitions)
        partition = next(each for each in scene.partitions if each.name == pool)
        why = node.trouble(reserved=name in reserved)
        if not why and scene.missing:
            why = f"Slurm has no {scene.missing[0]}"
        if not why and not partition.up:
            why = f"partition {pool} is not up"
        if not why and site.reservation and name not in reserved:
            why = f"not in reservation {site.reservation}"
        why = why or find_window(site, scene, name, now_ms, 0) or aside.why(name)
        busy = others.busy(node, held.get(name, set()), foreign.get(name, ()))
        found.append(NodeReport(node_of(node, site.cluster, pool, site.gpu_types), not why, why, busy))
    return tuple(found)


def find_window(
    site: SlurmSettings, scene: ClusterSnapshot, node: str, now_ms: int, limit_ms: int | None
) -> str:
    """The foreign reservation that a job of `limit_ms` would run into; None: a job without limit."""
    for each in scene.reservations:
        if each.name == site.reservation or node not in each.nodes or each.end_ms <= now_ms:
            continue
        if limit_ms is None or now_ms + limit_ms >= each.start_ms:
            kind = "maintenance" if "MAINT" in each.flags else "reservation"
            return f"{kind} {each.name} of Slurm begins before it would end"
    return ""


def list_notes(site: SlurmSettings, scene: ClusterSnapshot) -> tuple[str, ...]:
    """What people should know about this cluster, in sentences."""
    said = [f"Slurm has no {what}: nothing can start there" for what in scene.missing]
    kinds = {scene.nodes[name].gpus.type for name in scene.names if scene.nodes[name].gpus.number}
    for kind in sorted(kinds):
        name = kind or UNTYPED
        if kind in site.gpu_types or name in site.gpu_types:
            continue
        models = find_models(name)
        if len(models) > 1:
            taken = f"may be {' or '.join(models)}; taken for {choose_model(kind, site.gpu_types)}"
            said.append(f"GPU type {name!r} of Slurm {taken}; say which under 'gpu_types'")
        elif models[0] not in CATALOGUE:
            said.append(
                f"GPU type {name!r} of Slurm is not a model of the catalogue; say which under 'gpu_types'"
            )
    mixed = [name for name in scene.names if len(scene.nodes[name].gpu_types()) > 1]
    if mixed:
        said.append(f"{len(mixed)} nodes have GPUs of several types: only the type there is most of is used")
    return tuple(said)
