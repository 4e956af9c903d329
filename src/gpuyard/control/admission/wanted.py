"""A new job as someone asks for it: what may be judged of it, and beside that how it is run."""

from dataclasses import dataclass, fields, replace
from typing import Any

from gpuyard.control.admission.dependencies import Dependency
from gpuyard.engines.contract import Container, Recipe
from gpuyard.model import Ask, GpuRequest, Isolation, Level, Mig, Milli, Term, Toleration, Whole
from gpuyard.model.units import MILLI, SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """All of a request that a judgement may look at. Checked for sense by itself already; equal ones have one hash."""

    name: str = ""
    tenant: str = ""
    klass: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """By key; the project is one of them."""
    gpus: int = 0
    """Of each task."""
    gpu_milli: int = 0
    """Thousandths of one GPU, instead of whole ones."""
    mig: str = ""
    """A MIG profile: `gpus` then counts slices."""
    gpu_memory_mib: int = 0
    """GPU memory, instead of a number of GPUs."""
    isolation: Isolation = Isolation.ANY
    gpu_models: tuple[str, ...] = ()
    tasks: int = 1
    cpu_milli: int | None = None
    """Of each task, like the memory; None: it names no cores."""
    memory_mib: int = 0
    limit_ms: int = 0
    begin_ms: int = 0
    deadline_ms: int = 0
    array: tuple[int, ...] | None = None
    """Indices of an array's tasks; None: it is no array."""
    image: str = ""
    """The image of its own container; empty: it is a process of the node."""
    checkpoint_s: int = 0
    retries: int = 0
    requeue: bool = True
    hold: bool = False
    clusters: tuple[str, ...] = ()
    """Clusters that will do, the preferred one first."""
    pools: tuple[str, ...] = ()
    nodes_max: int = 0
    nodes_min: int = 0
    on_nodes: tuple[str, ...] = ()
    not_nodes: tuple[str, ...] = ()
    features: tuple[tuple[str, ...], ...] = ()
    selects: tuple[Term, ...] = ()
    prefers: tuple[tuple[int, Term], ...] = ()
    tolerates: tuple[Toleration, ...] = ()
    level: Level | None = None
    """The level of the fabric within which its nodes are to be."""
    level_required: bool = False
    level_ms: int = 0
    """For how long it is required; 0: for good."""
    one_domain: bool = False
    """The GPUs of each task are in one NUMA domain."""
    exclusive: bool = False
    """Whole nodes, shared with no other job."""
    dependencies: tuple[Dependency, ...] = ()
    dependencies_any: bool = False
    """One of them is enough."""
    array_limit: int = 0
    """How many tasks of an array may run at a time; 0: all."""

    def but(self, **changes: Any) -> "Wanted":
        """The same with other values of some fields."""
        return replace(self, **changes)

    def ask_for(self, gpus: GpuRequest) -> Ask:
        """Its resources, with this of GPUs for each task."""
        return Ask(
            gpus,
            self.tasks,
            self.counted_milli,
            self.memory_mib,
            self.gpu_models,
            self.pools,
            self.nodes_max,
            self.nodes_min,
            self.on_nodes,
            self.not_nodes,
            self.features,
            self.clusters,
            bool(self.image),
            self.selects,
            self.prefers,
            self.tolerates,
            self.level,
            self.level_required,
            self.level_ms,
            self.one_domain,
        )

    @property
    def counted_milli(self) -> int:
        """What each task counts of the cores: as much as it names. One that names none and has no GPU counts one.

        A task with a GPU that names none counts none: how many there are is bounded by the GPUs, and on a machine with
        fewer cores than GPUs, no GPU should stay idle for want of a core that the job did not ask for.
        """
        if self.cpu_milli is not None:
            return self.cpu_milli
        return 0 if self.gpus or self.gpu_milli or self.mig or self.gpu_memory_mib else MILLI

    @property
    def gpu_request(self) -> GpuRequest:
        """What each task asks of GPUs, unless it asks for memory."""
        if self.mig:
            return Mig(max(1, self.gpus), self.mig)
        return Milli(1, self.gpu_milli) if self.gpu_milli else Whole(self.gpus)

    @property
    def tasks_of_array(self) -> int:
        """How many jobs it is: one, or the tasks of an array."""
        return 1 if self.array is None else len(self.array)

    @property
    def ids(self) -> int:
        """How many ids it takes: an array has one of its own and one for each task."""
        return 1 if self.array is None else 1 + len(self.array)


@dataclass(frozen=True, slots=True)
class NewJob:
    """What someone wants to run."""

    wanted: Wanted
    recipe: Recipe
    """How to run it, as far as the request says: without an account, and without the variables of an array."""


_WANTED = tuple([each.name for each in fields(Wanted)])


def make_job(
    *,
    command: tuple[str, ...] = (),
    warn_s: int = 0,
    containers: tuple[Container, ...] = (),
    **values: Any,
) -> NewJob:
    """A new job from the values of its fields by name: those of `Wanted`, and of `Recipe` under the same names.

    `command` is the program and its arguments, or with a script its arguments alone.
    """
    wanted = {name: values.pop(name) for name in _WANTED if name in values}
    return NewJob(
        Wanted(image=containers[0].image if containers else "", **wanted),
        Recipe(argv=command, warn_ms=warn_s * SECOND_MS, containers=containers, **values),
    )
