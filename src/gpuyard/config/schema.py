"""The shape of `yard.yaml`: every key, its type, its bounds and what it means.

These models serve twice: they check a file, and they give editors a JSON Schema with the same descriptions.
Values come out in gpuyard's units. What a file leaves out stays `None` here and is filled in by the defaults of the
`model` values, so there is one set of defaults; the JSON Schema shows them.
"""

from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic import PlainValidator as Plain
from pydantic import WithJsonSchema as Shown
from pydantic_core import CoreSchema, core_schema

from gpuyard.config import quantities as q
from gpuyard.config.access import AuthEntry, Person, TenantPath
from gpuyard.config.fields import Boolean, Count, DurationMs, Name, PositiveMs, Word, YamlMapping
from gpuyard.config.fields import OneOrMore as _OneOrMore
from gpuyard.config.fields import OrNothing as _OrNothing
from gpuyard.config.fields import choice as _choice
from gpuyard.config.fields import key as _key
from gpuyard.config.fields import positive as _positive
from gpuyard.config.fields import required as _required
from gpuyard.config.fields import text as _text
from gpuyard.config.fields import whole as _whole
from gpuyard.config.prices import Currency, PriceEntry
from gpuyard.config.servers import LogsEntry, TelemetryEntry
from gpuyard.config.slurm.cluster import SlurmKeys
from gpuyard.config.values import ATTEMPTS_PER_NODE, ATTEMPTS_PER_USER, Engine
from gpuyard.durations import DURATION_PATTERN, duration_text
from gpuyard.engines.local.keys import Fence
from gpuyard.engines.registry import OWN, kind_of, kinds
from gpuyard.errors import quoted, remedy
from gpuyard.ledger.prices import CURRENCY
from gpuyard.model import BudgetAction, JobClass, Market, NamedBudget, PolicySpec, Settings, Window
from gpuyard.model.settings import TOTAL
from gpuyard.model.stand_in import STAND_IN_CLUSTERS, STAND_IN_GPUS, STAND_IN_MODEL

_CLASS = JobClass("")
_POLICY = PolicySpec("")
POOLS_SHOWN = {"h100": {"nodes": 8, "gpus": "8 x H100", "cpus": 96, "memory": "1T"}}
"""What messages and the schema show of `pools`."""
_SETTINGS = Settings()


def _version(text: str) -> int:
    if text != "1":
        raise ValueError(f"must be 1, the only format this release reads, not {quoted(text)}")
    return 1


def _engine(text: str) -> str:
    if text not in OWN and kind_of(text) is None:
        names = [*OWN, *kinds()]
        raise ValueError(f"names an unknown engine {quoted(text)}; {remedy(text, names, 'engines')}")
    return text


def _total(value: object) -> object:
    """A bare number is the total over all GPU models."""
    return {TOTAL: value} if isinstance(value, str) else value


_NUMBER_OF_GPUS = {"type": "number", "minimum": 0, "maximum": q.GPUS_MAX}
_PRICE = Shown({"type": "number", "minimum": 0, "maximum": q.PRICE_USD_MAX})
_KEPT = Shown(
    {"anyOf": [{"type": "string", "pattern": DURATION_PATTERN, "minLength": 2}, {"const": q.FOREVER}]}
)
_GPUS = {"anyOf": [{"type": "string", "pattern": q.GPUS_PATTERN}, {"const": 0}]}

Priority = Annotated[int, *_whole(-1_000_000_000, 1_000_000_000)]
NodeCount = Annotated[int, *_whole(1, q.NODES_MAX)]
GroupSize = Annotated[int, *_whole(0, q.GPUS_PER_NODE_MAX)]
AttemptCount = Annotated[int, *_whole(0, 1_000_000)]
WaitingCount = Annotated[int, *_whole(0, 1_000_000_000)]
NumaDomains = Annotated[int, *_whole(1, 64)]
NodeGpus = Annotated[tuple[int, str], Plain(_text(q.gpus_of_node)), Shown(_GPUS)]
CpuMilli = Annotated[int, Plain(_text(q.cpu_milli)), _positive(q.CPUS_PER_NODE_MAX)]
MemoryMib = Annotated[int, Plain(_text(q.memory_mib)), Shown({"type": "string", "pattern": q.MEMORY_PATTERN})]
StoredMib = Annotated[
    int,
    Plain(_text(q.stored_mib)),
    Shown({"anyOf": [{"type": "string", "pattern": q.MEMORY_PATTERN}, {"const": 0}]}),
]
MicroUsd = Annotated[int, Plain(_text(q.micro_usd)), _PRICE]
ShareWeight = Annotated[int, Plain(_text(q.share_weight)), _positive(q.PRICE_USD_MAX)]
GpuMilli = Annotated[int, Plain(_text(q.gpu_milli_positive)), _positive(q.GPUS_MAX)]
GpuHoursMs = Annotated[int, Plain(_text(q.gpu_hours_ms)), _positive(q.GPU_HOURS_MAX)]
BudgetUsd = Annotated[int, Plain(_text(q.budget_usd)), _positive(q.BUDGET_USD_MAX)]
BudgetWindow = Annotated[
    tuple[Window, int],
    Plain(_text(q.budget_window)),
    Shown({"type": "string", "pattern": r"^(week|month|quarter|[1-9][0-9]{0,2}d)$"}),
]
Percent = Annotated[
    int, Plain(_text(q.percent)), Shown({"type": "integer", "minimum": 1, "maximum": q.PERCENT_MAX})
]
KeptMs = Annotated[int, Plain(_text(q.kept_ms)), _KEPT]
QuotaPart = Annotated[int, Plain(_text(q.gpu_milli)), Shown(_NUMBER_OF_GPUS)]


class _QuotaMap:
    """A number of GPUs, or one for each GPU model and `total`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_total, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [_NUMBER_OF_GPUS, handler(schema)]}


Quota = Annotated[dict[str, QuotaPart], _QuotaMap()]
EngineName = Annotated[str, Plain(_text(_engine)), Shown({"type": "string", "enum": list(OWN)})]
SharersName = Annotated[str, *_choice(["one", "many"], "value", "values")]
CardSettingsName = Annotated[str, *_choice(["change", "leave"], "value", "values")]
FenceName = Annotated[str, *_choice([each.value for each in Fence], "value", "values")]
ActionName = Annotated[str, *_choice([each.value for each in BudgetAction], "action", "actions")]
MarketName = Annotated[str, *_choice([each.value for each in Market], "market", "markets")]


class PoolEntry(YamlMapping):
    """Nodes of one shape, price and market."""

    nodes: NodeCount = _required("Number of nodes.", example=8)
    gpus: NodeGpus = _required(
        "GPUs of each node, such as 8 x H100; 0 for nodes without.", example="8 x H100"
    )
    cpus: CpuMilli = _required("Cores of each node.", example=96)
    memory: MemoryMib = _required("Main memory of each node: K, M, G or T, powers of 1024.", example="1T")
    market: MarketName | None = _key("How the nodes are paid for.", default=Market.RESERVED.value)
    region: Name | None = _key(
        "Where the nodes stand, as price_book has it. Left out: unsaid.", example="eu-west"
    )
    price: MicroUsd | None = _key(
        "USD per GPU-hour (per node-hour without GPUs). "
        "Left out: the model's entry in prices, then its list price; 0 without GPUs.",
        example=2.5,
    )
    nvlink_group: GroupSize | None = _key(
        "GPUs per NVLink group; 0: none. Left out: all GPUs of the node if the model has NVLink, else 0.",
        example=8,
    )
    numa: NumaDomains | None = _key("NUMA domains of a node; the GPUs are split evenly in order.", default=1)
    nodes_per_switch: NodeCount | None = _key("Nodes on one switch. Left out: all.", example=4)
    switches_per_rack: NodeCount | None = _key("Switches in one rack. Left out: all.", example=2)
    emulate: Boolean | None = _key(
        "Local engine only: this machine pretends to be these nodes.", default=False
    )
    features: list[Name] | None = _key(
        "What jobs may ask for by name (Slurm: --constraint). Left out: none.", example=["nvme"]
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, value: Any) -> Any:
        """Where GPUs are emulated, `cpus` and `memory` may be left out."""
        if isinstance(value, dict) and value.get("emulate") == "true":
            return {"cpus": "96", "memory": "1T", **value}
        return value


class ClusterEntry(YamlMapping):
    """One engine's nodes."""

    engine: EngineName | None = _key("What runs the jobs.", default=Engine.LOCAL.value)
    pools: Annotated[dict[Name, PoolEntry], _OrNothing()] | None = _key(
        "Pools by name; a name is used once over all clusters. "
        "Left out: the machine on which the yard runs (engine local), or what Slurm has.",
        example=POOLS_SHOWN,
    )
    gpus: NodeGpus | None = _key(
        "Without pools: the GPUs that the machine pretends to have. Left out: those that are found.",
        example=f"{STAND_IN_GPUS} x {STAND_IN_MODEL}",
    )
    emulate: Boolean | None = _key("Without pools: pretend to have these GPUs.", default=False)
    features: list[Name] | None = _key(
        "Without pools: what jobs may ask of the machine by name (Slurm: --constraint). Left out: none.",
        example=["nvme"],
    )
    preference: Annotated[int, *_whole(0, 1000)] | None = _key(
        "Jobs that name no cluster go to the lowest that has room.", default=0, example=1
    )
    weight: Count | None = _key(
        "Among clusters of one preference: how much of its GPUs is to be in use, beside the others. "
        "Left out: as the placement chooses, or 1 where another cluster has one.",
        example=2,
    )
    slurm: Annotated[SlurmKeys, _OrNothing()] | None = _key(
        "Slurm only: the keys of that engine. Left out: none.", example={"shared_folder": "/shared/gpuyard"}
    )
    log_limit: MemoryMib | None = _key(
        "Local engine only: how much of what an attempt writes is kept where the job names no file of its own; of a "
        "longer log the beginning and the end.",
        default="1G",
        example="200M",
    )
    card_settings: CardSettingsName | None = _key(
        "Local engine only: whether the yard may change the settings of real GPUs, which are MIG and persistence mode. "
        "With `leave`, slices are only those that are there.",
        default="change",
        example="leave",
    )
    fence: FenceName | None = _key(
        "Local engine only: what keeps a job to its own GPUs, memory, cores and files. `auto`: all that this machine "
        "can enforce, which `yard doctor` shows; `strict`: the same, and no shares of a GPU and no jobs of root; "
        "`off`: jobs are told which GPUs are theirs, and nothing holds them to it.",
        default=Fence.AUTO.value,
        example=Fence.STRICT.value,
    )
    allow_root: Boolean | None = _key(
        "Run jobs as root where a token says that somebody is root; all clusters that run jobs have to say so.",
        default=False,
    )


class GpuModelEntry(YamlMapping):
    """A GPU model that the catalogue lacks."""

    memory: MemoryMib = _required("Memory of one GPU: K, M, G or T, powers of 1024.", example="16G")
    price: MicroUsd = _required("List price in USD per GPU-hour.", example=1.46)
    nvlink: Boolean | None = _key("Whether such GPUs are linked with NVLink.", default=False)
    mig: Boolean | None = _key("Whether such a GPU can be split with MIG.", default=False)


class BudgetEntry(YamlMapping):
    """GPU time that may be spent in each window."""

    gpu_hours: GpuHoursMs = _required("GPU-hours that may be spent in each window.", example=5000)
    window: PositiveMs = _required("Length of the windows, which are aligned to the epoch.", example="30d")


class NamedBudgetEntry(YamlMapping):
    """What jobs of a kind may spend in each window."""

    gpu_hours: GpuHoursMs | None = _key(
        "GPU-hours in each window. Left out: usd says how much.", example=5000
    )
    usd: BudgetUsd | None = _key(
        "USD in each window, by the prices of the pools. Left out: gpu_hours says how much.", example=20000
    )
    tenant: Word | None = _key(
        "The tenant whose jobs count, with all below it, as a path. Left out: those of all.",
        example="research",
    )
    klass: Word | None = _key(
        "The class whose jobs count. Left out: those of all.", alias="class", example="batch"
    )
    project: Word | None = _key("The project whose jobs count. Left out: those of all.", example="llama")
    labels: Annotated[dict[str, Word], _OrNothing()] | None = _key(
        "Labels of the jobs that count (--label). Left out: those of all.", example={"team": "vision"}
    )
    users: Annotated[list[Person], _OneOrMore()] | None = _key(
        "People whose jobs count: a project or label is what a user says. Left out: everybody's.",
        example=["ana", "bob"],
    )
    window: BudgetWindow | None = _key(
        "week, month or quarter, in UTC; or a number of days such as 30d, which roll day by day.",
        default="month",
    )
    action: ActionName | None = _key(
        "What happens once it is spent or set aside: warn; soft, its jobs go behind all others; hard, none starts.",
        default=BudgetAction.HARD.value,
    )
    warn_at: list[Percent] | None = _key(
        "The parts of it, in percent, of which people are told when they are spent.",
        default=list(NamedBudget("").warn_at),
    )


class TenantEntry(YamlMapping):
    """A place in the tree of tenants."""

    parent: Word | None = _key("The tenant above it. Left out: none.", example="research")
    weight: Count | None = _key("Its share beside the others below the same parent.", default=1)
    guarantee: Quota | None = _key("GPUs it is promised, in total or by model. Left out: none.", example=16)
    limit: Quota | None = _key(
        "GPUs it may never exceed, in total or by model. Left out: no limit.",
        example={"total": 48, "H100": 32},
    )
    borrow: Quota | None = _key("GPUs it may use above its guarantee. Left out: no limit.", example=16)
    lend: Quota | None = _key("GPUs of an unused guarantee that others may use. Left out: all.", example=8)
    max_gpus_per_job: GpuMilli | None = _key("GPUs of its largest job. Left out: no limit.", example=16)
    max_gpus_per_user: GpuMilli | None = _key(
        "GPUs of each user, over all tenants at or below it. Left out: no limit.", example=8
    )
    max_running_jobs: Count | None = _key("Jobs it may run at once. Left out: no limit.", example=100)
    budget: BudgetEntry | None = _key("GPU time it may spend in each window. Left out: no limit.")


class ClassEntry(YamlMapping):
    """How a job is treated."""

    priority: Priority | None = _key("Higher goes first.", default=_CLASS.priority)
    preemptible: Boolean | None = _key(
        "Whether its jobs may be stopped for others.", default=_CLASS.preemptible
    )
    limit: PositiveMs | None = _key(
        "Longest time limit of a job, and the one it gets when it names none.",
        default=duration_text(_CLASS.limit_ms),
    )
    min_run: DurationMs | None = _key(
        "How long a job runs before it may be preempted; at most 30d.",
        default=duration_text(_CLASS.min_run_ms),
    )
    grace: DurationMs | None = _key(
        "Time between the warning and the kill; at most 30d.", default=duration_text(_CLASS.grace_ms)
    )
    tenants: Annotated[list[TenantPath], _OneOrMore()] | None = _key(
        "Tenants whose jobs may be of it, with all below them. Left out: everybody's, unless it has users.",
        example=["research", "product/ml"],
    )
    users: Annotated[list[Person], _OneOrMore()] | None = _key(
        "People whose jobs may be of it, whatever tenant they are for. Left out: only those of its tenants.",
        example=["ana"],
    )


class FairnessEntry(YamlMapping):
    """How past usage counts in the fair share."""

    half_life: PositiveMs | None = _key(
        "After this time usage counts half.", default=duration_text(_SETTINGS.half_life_ms)
    )
    period: PositiveMs | None = _key(
        "How often usage is charged; at most the half-life.", default=duration_text(_SETTINGS.period_ms)
    )
    share_weights: Annotated[dict[str, ShareWeight], _OrNothing()] | None = _key(
        "What an hour of a GPU counts, in USD by model. Left out: its list price.", example={"H100": 6.88}
    )


class RetentionEntry(YamlMapping):
    """How long something is kept of a job after its end."""

    environments: KeptMs | None = _key(
        "The environment that it was submitted with, which may hold secrets. A duration, or forever.",
        default=q.kept_text(_SETTINGS.retention.environments_ms),
        example="1d",
    )
    scripts: KeptMs | None = _key(
        "Script and command line, and the environment at the latest.",
        default=q.kept_text(_SETTINGS.retention.scripts_ms),
        example="7d",
    )
    logs: KeptMs | None = _key(
        "What it wrote, where it named no file of its own; such files are never touched.",
        default=q.kept_text(_SETTINGS.retention.logs_ms),
        example="forever",
    )
    folders: KeptMs | None = _key(
        "The folder that the yard made for it, with its checkpoint.",
        default=q.kept_text(_SETTINGS.retention.folders_ms),
    )
    images: KeptMs | None = _key(
        "An image on the yard's machine, after the last job that needed it.",
        default=q.kept_text(_SETTINGS.retention.images_ms),
        example="7d",
    )


class PolicyEntry(YamlMapping):
    """A policy made of named parts."""

    order: list[Word] | None = _key(
        "Which job goes first: criteria, the first counts most.", default=list(_POLICY.order)
    )
    placement: Word | None = _key("Which of the nodes that fit is taken.", default=_POLICY.placement)
    backfill: Word | None = _key(
        "Which jobs may overtake a job that waits for room.", default=_POLICY.backfill
    )
    backfill_depth: Count | None = _key(
        "Jobs that cannot start and are looked at in one pass.", default=_POLICY.backfill_depth
    )
    depth_per_tenant: Count | None = _key(
        "How many of them may belong to one tenant.", default=_POLICY.depth_per_tenant
    )
    preemption: list[Word] | None = _key(
        "Why a running job may be stopped.", default=list(_POLICY.preemption)
    )
    quotas: Boolean | None = _key("Whether guarantees, limits and budgets hold.", default=_POLICY.quotas)


class YardFile(YamlMapping):
    """The configuration of a yard: fleet, tenants, classes, prices, fairness and policy."""

    version: Annotated[int, Plain(_text(_version)), Shown({"const": 1})] = _required(
        "Version of this format.", example=1
    )
    clusters: Annotated[dict[Name, ClusterEntry], _OrNothing()] = _required(
        "Clusters by name: each has one engine, and pools of nodes.", example=dict(STAND_IN_CLUSTERS)
    )
    gpu_models: Annotated[dict[Name, GpuModelEntry], _OrNothing()] | None = _key(
        "GPU models beyond the catalogue, by name."
    )
    tenants: Annotated[dict[Name, Annotated[TenantEntry, _OrNothing()]], _OrNothing()] | None = _key(
        "Tenants by name, all on one level; parent makes the tree."
    )
    classes: Annotated[dict[Name, Annotated[ClassEntry, _OrNothing()]], _OrNothing()] | None = _key(
        "Classes of jobs by name. Left out: one class named batch, with all defaults."
    )
    default_class: Word | None = _key("The class of jobs that name none.", default=_SETTINGS.default_class)
    prices: Annotated[dict[str, MicroUsd], _OrNothing()] | None = _key(
        "USD per GPU-hour by GPU model, for pools that set no price. Left out: list prices.",
        example={"H100": 2.5},
    )
    currency: Currency | None = _key("What all prices are in.", default=CURRENCY)
    price_book: list[PriceEntry] | None = _key(
        "Prices with a history, by model, pool, market and region: what `yard cost` goes by. The most exact one that "
        "fits a day goes before prices. Left out: none.",
        example=[{"model": "H100", "market": "spot", "from": "2026-11-01", "price": 1.2}],
    )
    budgets: Annotated[dict[Name, NamedBudgetEntry], _OrNothing()] | None = _key(
        "What jobs of tenants or classes may spend, by the budget's name. Left out: no budgets but those of tenants."
    )
    fairness: Annotated[FairnessEntry, _OrNothing()] | None = _key("How past usage counts in the fair share.")
    earmark: PositiveMs | None = _key(
        "How long freed GPUs are kept for the job they were freed for.",
        default=duration_text(_SETTINGS.earmark_ms),
    )
    whole_gpus: GroupSize | None = _key(
        "GPUs that stay whole: while no more than these are free, none is cut into MIG slices.", default=0
    )
    attempts_per_user: AttemptCount | None = _key(
        f"Attempts that one user may have at a time, over all nodes; 0 for any number. Left out: {ATTEMPTS_PER_USER} "
        "where the yard is one machine, else any number.",
        example=500,
    )
    attempts_per_node: AttemptCount | None = _key(
        f"Attempts that one node may have at a time; 0 for any number. Left out: {ATTEMPTS_PER_NODE} where the yard is "
        "one machine, else any number.",
        example=2000,
    )
    waiting_per_user: WaitingCount | None = _key(
        "Jobs of one user that may wait, tasks of arrays among them; 0 for any number.",
        default=_SETTINGS.waiting_per_user,
    )
    recipes_per_user: StoredMib | None = _key(
        "Scripts and environments that one user's jobs may keep in the store until they end, equal ones once: M, G or "
        "T, powers of 1024; 0 for any amount.",
        default="1G",
        example="200M",
    )
    mps_users: SharersName | None = _key(
        "Whose shares one GPU may have at a time: those of one user, or of many, who then take turns.",
        default=_SETTINGS.mps_users,
    )
    partitions: Annotated[dict[Name, Annotated[list[Name], _OneOrMore()]], _OrNothing()] | None = _key(
        "Pools by names that scripts have for them (sbatch -p). Left out: pools go by their own names.",
        example={"gpu-a100": "a100", "gpu": ["h100", "a100"]},
    )
    accounts: Annotated[dict[Name, Word], _OrNothing()] | None = _key(
        "Tenants by names that scripts have for them (sbatch -A). Left out: tenants go by their own names.",
        example={"p12345": "research"},
    )
    qos: Annotated[dict[Name, Word], _OrNothing()] | None = _key(
        "Classes by names that scripts have for them (sbatch -q). Left out: classes go by their own names.",
        example={"normal": "batch"},
    )
    retention: Annotated[RetentionEntry, _OrNothing()] | None = _key(
        "How long something is kept of a job after its end."
    )
    policy: Word | None = _key("The policy in force: a preset or an entry of policies.", default="default")
    policies: Annotated[dict[Name, Annotated[PolicyEntry, _OrNothing()]], _OrNothing()] | None = _key(
        "Policies of your own, by name."
    )
    auth: Annotated[AuthEntry, _OrNothing()] | None = _key(
        "Who may do what, for `yard up --auth`. Left out: only tokens and the machine's own users."
    )
    logs: Annotated[LogsEntry, _OrNothing()] | None = _key(
        "Where what jobs write is sent besides `yard logs`. Left out: nowhere."
    )
    telemetry: Annotated[TelemetryEntry, _OrNothing()] | None = _key(
        "Where what nodes and GPUs do is read, besides collectors. Left out: nowhere."
    )
