"""What the platform engineer sets: tenants with their quotas, classes, weights and the policy.

These values come out of `yard.yaml` and go into the log, so that the past can be explained with the settings that
were in force.
"""

from dataclasses import dataclass, field

from gpuyard.model.catalogue import GpuModel
from gpuyard.model.units import DAY_MS, MINUTE_MS, NO_LIMIT_MS

TOTAL = "total"
"""The key under which a quota over all GPU models stands beside the models' own."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Milli-GPU by GPU model name, or under `total`. Absent in `limit`, `borrow` and `lend` means unlimited."""

    guarantee: dict[str, int] = field(default_factory=dict)
    """What the tenant is promised: it may take it back from whoever borrows it."""
    limit: dict[str, int] = field(default_factory=dict)
    """What the tenant may never exceed."""
    borrow: dict[str, int] = field(default_factory=dict)
    """How far above its guarantee it may go."""
    lend: dict[str, int] = field(default_factory=dict)
    """How much of an unused guarantee others may use meanwhile."""
    max_gpus_per_job: int | None = None
    max_gpus_per_user: int | None = None
    """A limit, in milli-GPU, on each user, over all that is at or below this tenant; on a leaf, of jobs of nobody."""
    max_running_jobs: int | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """GPU time that may be spent in each epoch-aligned window."""

    gpu_ms: int
    """Milliseconds of a whole GPU."""
    window_ms: int


@dataclass(frozen=True, slots=True)
class Tenant:
    """A place in the tree, named by its whole path `org/team/user`."""

    path: str
    weight: int = 1
    quota: Quota = field(default_factory=Quota)
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class JobClass:
    """How a job is treated."""

    name: str
    priority: int = 0
    preemptible: bool = True
    limit_ms: int = NO_LIMIT_MS
    """The longest time limit a job of this class may have, and the one it gets when it names none."""
    min_run_ms: int = 5 * MINUTE_MS
    """An attempt younger than this is never preempted; it doubles with each preemption suffered."""
    grace_ms: int = 30_000
    """Time between the warning and the kill."""
    tenants: tuple[str, ...] = ()
    """Whose jobs may be of it: those of these tenants and of all below them."""
    users: tuple[str, ...] = ()
    """The people whose jobs may be of it, whatever tenant they are for. Neither: everybody's."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy by the names of its parts; `policies.build` turns it into the parts themselves."""

    name: str
    order: tuple[str, ...] = ("fifo",)
    placement: str = "pack"
    backfill: str = "easy"
    backfill_depth: int = 100
    """How many jobs that cannot start are looked at in one pass."""
    depth_per_tenant: int = 50
    """How many of them may belong to one tenant, so that one long queue does not hide the others."""
    preemption: tuple[str, ...] = ()
    quotas: bool = True


@dataclass(frozen=True, slots=True)
class Retention:
    """How long something is kept of a job after its end. 0: for ever."""

    environments_ms: int = 7 * DAY_MS
    """The variables that it was submitted with."""
    scripts_ms: int = 30 * DAY_MS
    """What it ran: script, command line, and the environment at the latest."""
    logs_ms: int = 90 * DAY_MS
    """What it wrote where it named no file of its own."""
    folders_ms: int = 30 * DAY_MS
    """The folder that the yard made for it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One version of the configuration, as far as the scheduler is concerned."""

    version: int = 1
    tenants: tuple[Tenant, ...] = ()
    classes: tuple[JobClass, ...] = (JobClass("batch"),)
    default_class: str = "batch"
    gpu_models: tuple[GpuModel, ...] = ()
    """Models beyond the catalogue."""
    share_weights: dict[str, int] = field(default_factory=dict)
    """Milli-dollars an hour by GPU model, where they differ from the list price."""
    prices: dict[str, int] = field(default_factory=dict)
    """Micro-dollars for an hour of a GPU by model, where they differ from the list price."""
    half_life_ms: int = 7 * DAY_MS
    period_ms: int = 5 * MINUTE_MS
    """Usage is charged and decayed at the end of each period, aligned to the epoch."""
    earmark_ms: int = 10 * MINUTE_MS
    """How long freed GPUs are kept for the job they were freed for."""
    whole_gpus: int = 0
    """GPUs that stay whole for jobs that need whole ones: while no more are free, none is cut into MIG slices."""
    mps_users: str = "one"
    """Whose shares one GPU may have: those of `one` user, or of `many`."""
    attempts_per_user: int = 0
    """How many attempts one user may have at a time, over all nodes; 0: any number."""
    attempts_per_node: int = 0
    """How many attempts one node may have at a time; 0: any number."""
    partitions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Pools by names that scripts have for them."""
    accounts: dict[str, str] = field(default_factory=dict)
    """Tenants by names that scripts have for them."""
    qos: dict[str, str] = field(default_factory=dict)
    """Classes by names that scripts have for them."""
    retention: Retention = field(default_factory=Retention)
    policy: PolicySpec = field(default_factory=lambda: PolicySpec("default"))
