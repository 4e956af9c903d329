"""What the platform engineer sets: tenants with their quotas, classes, weights and the policy.

These values are read from `yard.yaml` and written to the log, so that the past can be explained with the settings that
were in force.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from gpuyard.model.catalogue import GpuModel
from gpuyard.model.placement import NodeMarks
from gpuyard.model.units import DAY_MS, MINUTE_MS, NO_LIMIT_MS
from gpuyard.model.walls import Wall

TOTAL = "total"
"""The key of the quota over all GPU models, beside those of single models."""


@dataclass(frozen=True, slots=True)
class Percentage:
    """A part of the GPUs of nodes that exist, up or down. Rounded down to whole GPUs, when fleet or settings change."""

    percent_milli: int
    """Thousandths of a percent."""
    pool: str = ""
    """The pool whose GPUs these are a part of; empty: those of the fleet."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one job may ask for of one thing, in milli-GPU, milli-cores or MiB, when it is submitted."""

    least: int = 0
    default: int = 0
    """What each task gets of a job that names none; 0: none."""
    most: int | None = None


@dataclass(frozen=True, slots=True)
class ClassLimit:
    """What the jobs of one class may have, of a tenant and those below it."""

    milli: int | None = None
    """GPUs of those that run."""
    running: int | None = None
    """How many of them run at once."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Milli-GPU by GPU model name, or under `total`. Absent in `limit`, `borrow` and `lend` means unlimited."""

    guarantee: dict[str, int] = field(default_factory=dict)
    """What the tenant is promised: it may take it back from tenants that borrow it."""
    limit: dict[str, int] = field(default_factory=dict)
    """What the tenant may never exceed."""
    borrow: dict[str, int] = field(default_factory=dict)
    """How far above its guarantee it may go."""
    lend: dict[str, int] = field(default_factory=dict)
    """How much of an unused guarantee other tenants may use meanwhile."""
    max_gpus_per_job: int | None = None
    max_gpus_per_user: int | None = None
    """A limit, in milli-GPU, for each user, at or below this tenant; jobs without a user count by their leaf."""
    max_running_jobs: int | None = None
    max_jobs: int | None = None
    """Jobs that wait or run: one more is refused when it is submitted."""
    max_cpu_milli: int | None = None
    """Cores of all its running jobs, as many as they name."""
    max_memory_mib: int | None = None
    """The same of memory."""
    per_job: dict[str, Bounds] = field(default_factory=dict)
    """By `gpus`, `cpus` and `memory`. The most GPUs are `max_gpus_per_job`, which holds for jobs that wait, too."""
    refuses: bool = False
    """Whether a job that would be over a limit, beside all that wait and run, is refused when it is submitted."""
    classes: dict[str, ClassLimit] = field(default_factory=dict)
    """By class."""
    percentages: dict[str, dict[str, Percentage]] = field(default_factory=dict)
    """What of `guarantee`, `limit`, `borrow` and `lend` is a percentage, by the same keys: of the GPUs of that model,
    or of all. A key is in one of the two."""


@dataclass(frozen=True, slots=True)
class Budget:
    """GPU time that may be spent in each epoch-aligned window."""

    gpu_ms: int
    """Milliseconds of a whole GPU."""
    window_ms: int


class Window(StrEnum):
    """The windows of named budgets: whole UTC days."""

    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    ROLLING = "rolling"
    """Today and the days before it."""


class BudgetAction(StrEnum):
    """What happens once everything of a budget is spent or set aside."""

    WARN = "warn"
    """Nothing: the thresholds are told."""
    SOFT = "soft"
    """New jobs go behind all jobs that are within their budgets."""
    HARD = "hard"
    """No job starts that could overspend it. Running jobs go on: what they may spend was set aside."""


@dataclass(frozen=True, slots=True)
class NamedBudget:
    """GPU time or money that jobs of a kind may spend in each window. What is left empty fits any job."""

    name: str
    gpu_ms: int = 0
    """Milliseconds of a whole GPU; 0: the budget is of money."""
    micro_usd: int = 0
    """Micro-dollars, by the prices of the days on which attempts start; 0: the budget is of GPU time."""
    tenant: str = ""
    """With all tenants below it."""
    klass: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels that a job must have, the project among them."""
    window: Window = Window.MONTH
    days: int = 0
    """How long a rolling window is."""
    action: BudgetAction = BudgetAction.HARD
    warn_at: tuple[int, ...] = (50, 80, 100)
    """The parts of it, in percent, of which people are told when they are spent."""
    users: tuple[str, ...] = ()
    """The users whose jobs count; empty: those of all."""


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
    """The longest time limit that a job of this class may have, and its default."""
    min_run_ms: int = 5 * MINUTE_MS
    """An attempt that has run for less is never preempted; the time doubles with each preemption."""
    grace_ms: int = 30_000
    """Time between the warning and the kill."""
    tenants: tuple[str, ...] = ()
    """Tenants that may use the class, with all tenants below them."""
    users: tuple[str, ...] = ()
    """Users who may use the class, for any tenant. If neither is set, everyone may."""


@dataclass(frozen=True, slots=True)
class ClusterPreference:
    """Where jobs go that name no cluster."""

    cluster: str
    preference: int = 0
    """The lowest that has room comes first."""
    weight: int = 0
    """Among clusters of one preference: how much of its GPUs is to be taken, beside the others; 0: as the placement
    chooses where none has a weight, else 1."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy by the names of its parts; `policies.build` turns it into the parts."""

    name: str
    order: tuple[str, ...] = ("fifo",)
    placement: str = "pack"
    backfill: str = "easy"
    backfill_depth: int = 100
    """How many jobs that cannot start are examined in one pass."""
    depth_per_tenant: int = 50
    """How many of them may belong to one tenant, so that one long queue does not hide the others."""
    preemption: tuple[str, ...] = ()
    quotas: bool = True
    clusters: tuple[ClusterPreference, ...] = ()
    """Clusters that are preferred or have a weight; the others have neither."""
    turn_ms: int = 0
    """With fair share: after this wait a gang comes by age, before the other jobs of its team; 0: never."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long something is kept of a job after its end. 0: for ever."""

    environments_ms: int = 7 * DAY_MS
    """The variables that it was submitted with."""
    scripts_ms: int = 30 * DAY_MS
    """What it ran: script and command line; the environment goes with them at the latest."""
    logs_ms: int = 90 * DAY_MS
    """Its output, if it named no file of its own."""
    folders_ms: int = 30 * DAY_MS
    """The folder that the yard made for it."""
    images_ms: int = 30 * DAY_MS
    """An image on a node, after the last job that needed it."""


@dataclass(frozen=True, slots=True)
class OwnedHardware:
    """What was bought, and what it takes: from this the price of an hour was made."""

    purchase_micro_usd: int
    years_milli: int
    salvage_micro_usd: int = 0
    gpus: int = 1
    people_micro_usd_y: int = 0


@dataclass(frozen=True, slots=True)
class Price:
    """What an hour of a GPU costs (of a node, if it has no GPUs) from one day on. What is left empty fits anything."""

    micro_usd_h: int
    model: str = ""
    pool: str = ""
    market: str = ""
    region: str = ""
    from_day: int = 0
    """The first day, in days since 1970, UTC."""
    until_day: int = 0
    """The first day on which it no longer holds; 0: it holds on."""
    micro_usd_kwh: int = 0
    """What a measured kWh of a GPU costs on top, cooling included."""
    owned: OwnedHardware | None = None
    """Where it is the price of hardware that was bought."""
    pue_milli: int = 1000
    """What cooling and losses add to a kWh, in thousandths; it is in `micro_usd_kwh`."""


@dataclass(frozen=True, slots=True)
class GpuReserve:
    """Cores and memory of a node that jobs without GPUs leave to each of its GPUs."""

    cpu_milli: int = 0
    memory_mib: int = 0


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
    price_book: tuple[Price, ...] = ()
    """Prices with a history, by model, pool, market and region. The most exact one that fits goes before `prices`."""
    markets: dict[str, str] = field(default_factory=dict)
    """How pools are paid for, by `CLUSTER/POOL`, where that is not `reserved`."""
    regions: dict[str, str] = field(default_factory=dict)
    """Where pools stand, by `CLUSTER/POOL`, where that is known."""
    marks: tuple[NodeMarks, ...] = ()
    """Labels and taints of nodes; of two for one node, the later one holds."""
    walls: dict[str, Wall] = field(default_factory=dict)
    """What keeps jobs out of pools, by `CLUSTER/POOL`, where anything does."""
    half_life_ms: int = 7 * DAY_MS
    period_ms: int = 5 * MINUTE_MS
    """Usage is charged and decayed at the end of each period, aligned to the epoch."""
    earmark_ms: int = 10 * MINUTE_MS
    """How long freed GPUs are kept for the job for which they were freed."""
    whole_gpus: int = 0
    """GPUs that stay whole for jobs that need whole ones: while no more than this are free, none is cut into slices."""
    mps_users: str = "one"
    """The users that may share one GPU: `one` or `many`."""
    attempts_per_user: int = 0
    """How many attempts one user may have at a time, over all nodes; 0: any number."""
    waiting_per_user: int = 100_000
    """How many jobs of one user may wait, tasks of arrays among them; 0: any number."""
    recipes_mib_per_user: int = 1024
    """How much the recipes of one user's live jobs may be in the store, equal ones once; 0: any amount."""
    attempts_per_node: int = 0
    """How many attempts one node may have at a time; 0: any number."""
    partitions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Pools by the names that scripts use for them."""
    accounts: dict[str, str] = field(default_factory=dict)
    """Tenants by the names that scripts use for them."""
    qos: dict[str, str] = field(default_factory=dict)
    """Classes by the names that scripts use for them."""
    retention: Retention = field(default_factory=Retention)
    observed: dict[str, bool] = field(default_factory=dict)
    """Clusters that schedule themselves beside those that the yard drives, and whether their jobs count against quotas,
    budgets and shares. Empty where the yard drives none: it then shows what its own policy would make of their jobs."""
    policy: PolicySpec = field(default_factory=lambda: PolicySpec("default"))
    budgets: tuple[NamedBudget, ...] = ()
    """Budgets beside those of tenants, by name."""
    reserves: dict[str, GpuReserve] = field(default_factory=dict)
    """What jobs without GPUs leave to each GPU of a pool, by `CLUSTER/POOL`."""
