"""Asks as the scheduler sees them, and the ways to serve them, which `ways` works out.

Many jobs have the same ask, so a finding about it ("nothing free now has room for it") is kept once for all of them.
"""

from dataclasses import dataclass

from gpuyard.core.caches import Caches
from gpuyard.core.fleet.kinds import Kind
from gpuyard.core.fleet.mig_geometry import charge_of, gpus_for
from gpuyard.core.quota.usage import UsageDelta
from gpuyard.model import Ask, Capability, Grant, Level, Memory, Mig, Milli, Whole
from gpuyard.model.units import MILLI

ONE, GANG, SHARE, SLICES = range(4)
"""Forms of an ask: one task on whole GPUs, several tasks, parts of GPUs, and slices."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to serve an ask: on nodes of one kind. Its index is unique over all ways."""

    index: int
    kind: int
    model: int
    """The GPU model's number; quotas per model are checked with it."""
    tasks_per_node: int
    """Tasks that an empty node holds (at most as many as the job has)."""
    full_nodes: int
    """Nodes with that many tasks."""
    rest_tasks: int
    """Tasks left for one more node."""
    nodes_max: int
    pools: int
    """Nodes of the pools, names and labels asked for, behind no wall; -1: all."""
    gpus: int
    """GPUs of one task; for slices, the number of GPUs over which they are spread evenly."""
    node_gpus: int
    """Wholly free GPUs that at least one node must have: otherwise there is no room."""
    rate: int
    """What the whole job is charged per millisecond when it is served this way."""
    level: Level | None = None
    """The level of the fabric of which this way keeps to one switch, rack or fabric; None: to none in particular."""


class Shape:
    """An ask as the scheduler sees it. Filled again, in place, when the fleet changes."""

    __slots__ = (
        "ask",
        "closed",
        "cpu_milli",
        "form",
        "gpu_milli",
        "gpus",
        "gpus_alone",
        "grants",
        "hopeless_at",
        "in_domain",
        "in_order",
        "index",
        "measure",
        "memory_mib",
        "milli",
        "models",
        "needs",
        "node_gpus",
        "profile",
        "slices",
        "supported",
        "tasks",
        "tiers",
        "usages",
        "user",
        "walled",
        "way_on",
        "ways",
        "whole_only",
    )

    def __init__(self, index: int, ask: Ask, closed: tuple[str, ...] = ()) -> None:
        self.index, self.ask = index, ask
        self.closed = closed
        """The pools, by `CLUSTER/POOL`, whose walls keep its askers out."""
        self.walled = False
        """Whether walls are all that leaves it no way."""
        request = ask.gpus
        self.supported = True
        self.gpus = request.count
        self.milli = MILLI
        if isinstance(request, Milli):
            self.milli, self.supported = request.milli, ask.tasks == 1
        elif isinstance(request, Mig):
            # A job that waits for slices waits for enough whole GPUs to hold them.
            self.gpus = gpus_for(request.profile, request.count)
            self.supported = charge_of(request.profile) > 0 and ask.tasks == 1
        elif isinstance(request, Memory):
            self.supported = False
        else:
            assert isinstance(request, Whole)
        self.tasks = ask.tasks
        self.cpu_milli, self.memory_mib = ask.cpu_milli, ask.memory_mib
        self.measure = self.tasks * self.cpu_milli, self.tasks * self.memory_mib
        """Cores and memory of all tasks."""
        self.profile = request.profile if isinstance(request, Mig) else ""
        """The MIG profile of its slices; empty: it wants none."""
        self.slices = request.count if isinstance(request, Mig) else 0
        self.form = ONE if self.tasks == 1 else GANG
        """Which search finds room for it."""
        if self.profile or self.milli != MILLI:
            self.form = SLICES if self.profile else SHARE
        self.in_domain = ask.one_domain and isinstance(request, Whole) and self.gpus > 0
        """Whether the GPUs of a task are all in one NUMA domain, and its cores and memory fit there."""
        self.whole_only = (
            isinstance(request, Whole)
            and self.gpus > 0
            and not (self.cpu_milli or self.memory_mib or self.in_domain)
        )
        """Whether it wants whole GPUs and nothing else."""
        self.user = request.user if isinstance(request, Milli) else ""
        """The user of the share, if it may only go beside shares of that user."""
        self.gpus_alone = bool(
            self.gpus
            and not (self.profile or self.user or self.cpu_milli or self.memory_mib or self.in_domain)
        )
        """Whether it wants GPUs, or parts of them, and nothing else."""
        self.needs = _needs(ask)
        """What an engine must be able to do for it."""
        self.gpu_milli = self.gpus * self.milli * self.tasks
        """What it counts against quotas."""
        if self.profile:
            self.gpu_milli = self.slices * charge_of(self.profile)
        self.ways: tuple[Way, ...] = ()
        """Cheapest GPU model first."""
        self.tiers: tuple[dict[int, Way], ...] = ()
        """Its ways on the nodes that it prefers, by the index of the way that each narrows, the best nodes first."""
        self.in_order: tuple[Way, ...] = ()
        """The ways on preferred nodes, the best first, then all of them."""
        self.models: tuple[int, ...] = ()
        """The numbers of the GPU models of its ways, each once."""
        self.way_on: dict[int, Way] = {}
        """The ways by kind."""
        self.grants: dict[tuple[int, int], tuple[Grant, ...]] = {}
        """Grants of one task on one node that were made before, by node and GPUs."""
        self.node_gpus = 0
        """Wholly free GPUs that at least one node must have, whichever way is taken."""
        self.hopeless_at = -1
        """`Nodes.room_generation` when it was last found to have no room at all."""
        self.usages: list[dict[int, UsageDelta]] = []
        """Its charges, by kind and tenant."""


class Expected:
    """The asks to expect, each with its weight, and what placements have derived from them."""

    __slots__ = ("caches", "mix", "parts")

    def __init__(self, mix: list[tuple[Shape, int]]) -> None:
        self.mix = mix
        self.parts = any([shape.gpus and (shape.profile or shape.milli < MILLI) for shape, _weight in mix])
        """Whether an ask for less than a whole GPU is expected."""
        self.caches = Caches()
        """What placements have derived from the mix, kept as long as the mix."""


def _needs(ask: Ask) -> frozenset[Capability]:
    found = {Capability.GANG} if ask.tasks > 1 else set()
    if isinstance(ask.gpus, Milli | Mig):
        found.add(Capability.SHARES if isinstance(ask.gpus, Milli) else Capability.SLICES)
    if ask.images:
        found.add(Capability.IMAGES)
    return frozenset(found)


def rate_on(shape: Shape, kind: Kind, weight: int) -> int:
    """What a job is charged for a millisecond on nodes of a kind."""
    return charge_milli(shape, kind) * shape.tasks * weight // MILLI


def charge_milli(shape: Shape, kind: Kind) -> int:
    """What one task is charged for, in milli-GPU: the largest of its parts of a node's GPUs, cores and memory.

    A task that takes half the cores of an 8-GPU node keeps four GPUs from others and is charged for four.
    """
    size = max(1, kind.gpus) * MILLI
    return max(
        shape.gpu_milli // shape.tasks,
        shape.cpu_milli * size // max(1, kind.cpu_milli),
        shape.memory_mib * size // max(1, kind.memory_mib),
    )
