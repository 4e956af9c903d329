"""The shape of `yard.yaml`: every key, its type, its bounds and what it means.

These models serve twice: they check a file, and they give editors a JSON Schema with the same descriptions.
Values come out in gpuyard's units. What a file leaves out stays `None` here and is filled in by the defaults of the
`model` values, so there is one set of defaults; the JSON Schema shows them.
"""

from functools import cache
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, create_model, model_validator
from pydantic import PlainValidator as Plain
from pydantic import WithJsonSchema as Shown
from pydantic_core import CoreSchema, core_schema

from gpuyard import quantities as q
from gpuyard.config.access import AuthEntry, Person, TenantPath
from gpuyard.config.prices import Currency, PriceEntry
from gpuyard.config.servers import LogsEntry, TelemetryEntry
from gpuyard.config.values import ATTEMPTS_PER_NODE, ATTEMPTS_PER_USER
from gpuyard.engines.registry import DEFAULT, OWN, Stand, kind_of, kinds, own_kinds
from gpuyard.errors import quote, suggest
from gpuyard.keys import values
from gpuyard.keys.fields import Boolean, Count, DurationMs, MemoryMib, Name, PositiveMs, Word, YamlMapping
from gpuyard.keys.fields import OneOrMore as _OneOrMore
from gpuyard.keys.fields import OrNothing as _OrNothing
from gpuyard.keys.fields import choice as _choice
from gpuyard.keys.fields import key as _key
from gpuyard.keys.fields import positive as _positive
from gpuyard.keys.fields import required as _required
from gpuyard.keys.fields import text as _text
from gpuyard.keys.fields import whole as _whole
from gpuyard.keys.tree import Nothing
from gpuyard.ledger.prices import CURRENCY
from gpuyard.model import (
    BudgetAction,
    JobClass,
    Market,
    NamedBudget,
    Percentage,
    PolicySpec,
    Settings,
    Window,
)
from gpuyard.model.settings import TOTAL
from gpuyard.model.stand_in import STAND_IN_CLUSTERS, STAND_IN_GPUS, STAND_IN_MODEL
from gpuyard.policies.registry import BALANCED, GANGS
from gpuyard.quantities import DURATION_PATTERN, duration_text

_CLASS = JobClass("")
_POLICY = PolicySpec("")
POOLS_SHOWN = {"h100": {"nodes": 8, "gpus": "8 x H100", "cpus": 96, "memory": "1T"}}
"""What messages and the schema show of `pools`."""
_SETTINGS = Settings()


def _version(text: str) -> int:
    if text != "1":
        raise ValueError(f"must be 1, the only format this release reads, not {quote(text)}")
    return 1


def _engine(text: str) -> str:
    if text not in OWN and kind_of(text) is None:
        names = [*OWN, *kinds()]
        raise ValueError(f"names an unknown engine {quote(text)}; {suggest(text, names, 'engines')}")
    return text


def _total(value: object) -> object:
    """A bare number is the total over all GPU models."""
    return {TOTAL: value} if isinstance(value, str) else value


_GPU_AMOUNTS = [
    {"type": "number", "minimum": 0, "maximum": q.GPUS_MAX},
    {"type": "string", "pattern": values.PERCENTAGE_PATTERN},
]
_PRICE = Shown({"type": "number", "minimum": 0, "maximum": q.PRICE_USD_MAX})
_KEPT = Shown(
    {"anyOf": [{"type": "string", "pattern": DURATION_PATTERN, "minLength": 2}, {"const": q.FOREVER}]}
)
_GPUS = {"anyOf": [{"type": "string", "pattern": values.GPUS_PATTERN}, {"const": 0}]}

Priority = Annotated[int, *_whole(-1_000_000_000, 1_000_000_000)]
Tier = Annotated[int, *_whole(0, 65_533)]
NodeCount = Annotated[int, *_whole(1, q.NODES_MAX)]
GroupSize = Annotated[int, *_whole(0, q.GPUS_PER_NODE_MAX)]
AttemptCount = Annotated[int, *_whole(0, 1_000_000)]
WaitingCount = Annotated[int, *_whole(0, 1_000_000_000)]
NumaDomains = Annotated[int, *_whole(1, 64)]
NodeGpus = Annotated[tuple[int, str], Plain(_text(values.gpus_of_node)), Shown(_GPUS)]
CpuMilli = Annotated[int, Plain(_text(q.parse_cpu_milli)), _positive(q.CPUS_PER_NODE_MAX)]
StoredMib = Annotated[
    int,
    Plain(_text(q.parse_stored_mib)),
    Shown({"anyOf": [{"type": "string", "pattern": q.MEMORY_PATTERN}, {"const": 0}]}),
]
MicroUsd = Annotated[int, Plain(_text(q.parse_micro_usd)), _PRICE]
ShareWeight = Annotated[int, Plain(_text(q.parse_share_weight)), _positive(q.PRICE_USD_MAX)]
GpuMilli = Annotated[int, Plain(_text(q.parse_positive_gpu_milli)), _positive(q.GPUS_MAX)]
GpuHoursMs = Annotated[int, Plain(_text(q.parse_gpu_hours_ms)), _positive(q.GPU_HOURS_MAX)]
BudgetUsd = Annotated[int, Plain(_text(q.parse_budget_usd)), _positive(q.BUDGET_USD_MAX)]
BudgetWindow = Annotated[
    tuple[Window, int],
    Plain(_text(values.budget_window)),
    Shown({"type": "string", "pattern": r"^(week|month|quarter|[1-9][0-9]{0,2}d)$"}),
]
Percent = Annotated[
    int, Plain(_text(q.parse_percent)), Shown({"type": "integer", "minimum": 1, "maximum": q.PERCENT_MAX})
]
KeptMs = Annotated[int, Plain(_text(q.parse_kept_ms)), _KEPT]
QuotaPart = Annotated[int | Percentage, Plain(_text(values.gpu_amount)), Shown({"anyOf": _GPU_AMOUNTS})]


def _label_value(value: object) -> str:
    """A label without a value has an empty one."""
    return "" if value is Nothing.NOTHING else str(_text(str)(value))


class _QuotaMap:
    """A number or a percentage of GPUs, or one for each GPU model and `total`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_total, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [*_GPU_AMOUNTS, handler(schema)]}


Quota = Annotated[dict[str, QuotaPart], _QuotaMap()]
EngineName = Annotated[str, Plain(_text(_engine)), Shown({"type": "string", "enum": list(OWN)})]
SharersName = Annotated[str, *_choice(["one", "many"], "value", "values")]
ActionName = Annotated[str, *_choice([each.value for each in BudgetAction], "action", "actions")]
OnLimitName = Annotated[str, *_choice(["wait", "refuse"], "value", "values")]
GangsName = Annotated[str, *_choice(list(GANGS), "value", "values")]
MarketName = Annotated[str, *_choice([each.value for each in Market], "market", "markets")]


LabelValue = Annotated[str, Plain(_label_value), Shown({"type": ["string", "null"]})]
Labels = Annotated[dict[str, LabelValue], _OrNothing()]


class MarksEntry(YamlMapping):
    """What the yard says of nodes, for jobs that choose them."""

    labels: Labels | None = _key(
        "Labels of the nodes, which jobs may select (--select); a label without a value is a feature. Default: none.",
        example={"example.com/disk": "nvme"},
    )
    taints: list[Word] | None = _key(
        "Taints of the nodes, KEY[=VALUE]:EFFECT. Jobs that do not tolerate them stay away (NoSchedule), come last "
        "(PreferNoSchedule) or are stopped too (NoExecute). Default: none.",
        example=["maintenance:NoSchedule"],
    )


class ReserveEntry(YamlMapping):
    """What jobs without GPUs leave to each GPU of a node."""

    cpus: CpuMilli | None = _key("Cores for each GPU. Default: none.", example=8)
    memory: MemoryMib | None = _key("Main memory for each GPU. Default: none.", example="64G")


class AskersEntry(YamlMapping):
    """Jobs by whose they are."""

    tenants: Annotated[list[TenantPath], _OneOrMore()] | None = _key(
        "Tenants, each with all below it. Default: of any.", example=["research"]
    )
    users: Annotated[list[Person], _OneOrMore()] | None = _key(
        "People by name. Default: of anybody.", example=["ana", "bob"]
    )
    groups: Annotated[list[Word], _OneOrMore()] | None = _key(
        "Groups of people: of the machine, or of the identity provider. Default: of any.", example=["physics"]
    )
    classes: Annotated[list[Word], _OneOrMore()] | None = _key(
        "Classes. Default: of any.", example=["interactive"]
    )


class WallEntry(YamlMapping):
    """What keeps jobs out of a pool."""

    allow: AskersEntry | None = _key(
        "Whose jobs the pool takes: a job has to be of each kind that is named. Default: everybody's.",
        example={"users": ["ana", "bob"]},
    )
    deny: AskersEntry | None = _key(
        "Whose jobs it does not take, whatever allow says: those of any kind that is named. Default: nobody's.",
        example={"classes": ["idle"]},
    )
    time_limit: PositiveMs | None = _key(
        "The longest time limit of a job. Default: its class's.", example="4h"
    )
    default_time: PositiveMs | None = _key(
        "The time limit of a job that names none. Default: time_limit, then that of its class.", example="1h"
    )
    max_nodes_per_job: NodeCount | None = _key("The most nodes of one job. Default: any number.", example=2)
    min_gpus_per_job: GpuMilli | None = _key("The fewest GPUs of one job. Default: any number.", example=8)
    priority: Tier | None = _key(
        "Jobs that name the pool go before jobs that name none or one with less, whatever their classes.",
        default=0,
        example=10,
    )
    preemptible: Boolean | None = _key(
        "Whether jobs that run there may be stopped to make room for others, if their class allows it.",
        default=True,
    )


class PoolEntry(WallEntry):
    """Nodes of one shape, price and market."""

    nodes: NodeCount = _required("Number of nodes.", example=8)
    gpus: NodeGpus = _required(
        "GPUs of each node, such as 8 x H100; 0 for nodes without.", example="8 x H100"
    )
    cpus: CpuMilli = _required("Cores of each node.", example=96)
    memory: MemoryMib = _required("Main memory of each node: K, M, G or T, powers of 1024.", example="1T")
    market: MarketName | None = _key("How the nodes are paid for.", default=Market.RESERVED.value)
    region: Name | None = _key(
        "The region of the nodes, as price_book names it. Default: none.", example="eu-west"
    )
    price: MicroUsd | None = _key(
        "USD per GPU-hour (per node-hour without GPUs). "
        "Default: the model's entry in prices, then its list price; 0 without GPUs.",
        example=2.5,
    )
    nvlink_group: GroupSize | None = _key(
        "GPUs per NVLink group; 0: none. Default: all GPUs of the node if the model has NVLink, else 0.",
        example=8,
    )
    numa: NumaDomains | None = _key(
        "NUMA domains of a node; the GPUs are divided evenly among them, in order.", default=1
    )
    nodes_per_switch: NodeCount | None = _key("Nodes on one switch. Default: all.", example=4)
    switches_per_rack: NodeCount | None = _key("Switches in one rack. Default: all.", example=2)
    fabric: Name | None = _key(
        "The network that its nodes are on, such as one of InfiniBand: no job of several tasks is on two. "
        "Default: that of all pools of the cluster that name none.",
        example="ib0",
    )
    reserve: ReserveEntry | None = _key(
        "Cores and memory of a node that jobs without GPUs leave to each of its GPUs. Default: none.",
        example={"cpus": 8, "memory": "64G"},
    )
    emulate: Boolean | None = _key(
        "Local engine only: whether this machine pretends to be these nodes.", default=False
    )
    features: list[Name] | None = _key(
        "Features of the nodes, which jobs may ask for (--constraint). Default: none.", example=["nvme"]
    )
    labels: Labels | None = _key(
        "Labels of the pool's nodes, in place of those of the cluster. Default: none.",
        example={"example.com/disk": "nvme"},
    )
    taints: list[Word] | None = _key(
        "Taints of the pool's nodes, besides those of the cluster. Default: none.",
        example=["maintenance:NoSchedule"],
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, value: Any) -> Any:
        """Where GPUs are emulated, `cpus` and `memory` may be left out."""
        if isinstance(value, dict) and value.get("emulate") == "true":
            return {"cpus": "96", "memory": "1T", **value}
        return value


class ClusterEntry(YamlMapping):
    """The nodes of one engine, without the keys of engines, which `make_cluster_model` has too."""

    engine: EngineName | None = _key("The engine that runs the jobs.", default=DEFAULT)
    pools: Annotated[dict[Name, PoolEntry], _OrNothing()] | None = _key(
        "Pools by name; a name is unique over all clusters. Default: the yard's own machine (engine "
        "local), or the nodes that Slurm has.",
        example=POOLS_SHOWN,
    )
    gpus: NodeGpus | None = _key(
        "Without pools: the GPUs that the machine pretends to have. Default: the GPUs that it finds.",
        example=f"{STAND_IN_GPUS} x {STAND_IN_MODEL}",
    )
    emulate: Boolean | None = _key("Without pools: whether to pretend to have these GPUs.", default=False)
    features: list[Name] | None = _key(
        "Without pools: the machine's features, which jobs may ask for (--constraint). Default: none.",
        example=["nvme"],
    )
    labels: Labels | None = _key(
        "Labels of all nodes of the cluster. Default: none.", example={"example.com/site": "north"}
    )
    taints: list[Word] | None = _key(
        "Taints of all nodes of the cluster. Default: none.", example=["maintenance:NoSchedule"]
    )
    nodes: dict[str, MarksEntry] | None = _key(
        "Labels and taints of single nodes, by name or as n[1-4]. Default: none.",
        example={"h100-[0001-0002]": {"labels": {"example.com/disk": "nvme"}}},
    )
    walls: Annotated[dict[Name, WallEntry], _OrNothing()] | None = _key(
        "Without pools: the walls of pools that the engine has, by pool; a pool of the file has these keys "
        "itself. Default: none.",
        example={"debug": {"time_limit": "30m"}},
    )
    preference: Annotated[int, *_whole(0, 1000)] | None = _key(
        "Jobs that name no cluster go to the cluster with the lowest preference that has room.",
        default=0,
        example=1,
    )
    weight: Count | None = _key(
        "Among clusters of one preference: how much of its GPUs to use, relative to the others. "
        "Default: as the placement chooses, or 1 if another cluster has a weight.",
        example=2,
    )
    allow_root: Boolean | None = _key(
        "Whether jobs of people whose token makes them root run as root; all clusters that run jobs "
        "must have this key.",
        default=False,
    )


_BEFORE_ENGINES = "weight"
"""People see the keys of engines after this one."""


@cache
def make_cluster_model() -> type[YamlMapping]:
    """All keys of a cluster in a file, those of engines among them, in the order in which people see them."""
    kinds = own_kinds()
    of_engines: dict[str, Any] = {}
    for kind in kinds:
        if kind.stand is not Stand.BESIDE and kind.keys is not None:
            text = f"{kind.title} only: the keys of that engine. Default: none."
            of_engines[kind.name] = (
                Annotated[kind.keys, _OrNothing()] | None,
                _key(text, example=kind.example),
            )
    for kind in kinds:
        if kind.stand is Stand.BESIDE:
            of_engines |= _fields(kind.keys)
    fields: dict[str, Any] = {}
    for name, each in _fields(ClusterEntry).items():
        fields[name] = each
        if name == _BEFORE_ENGINES:
            fields |= of_engines
    return create_model("ClusterEntry", __base__=YamlMapping, __doc__="The nodes of one engine.", **fields)


def models_beside() -> list[type[Any]]:
    """Models of keys that old files have beside `engine`."""
    return [kind.keys for kind in own_kinds() if kind.stand is Stand.EITHER and kind.keys is not None]


def _fields(model: type[Any] | None) -> dict[str, Any]:
    return {name: (each.annotation, each) for name, each in model.model_fields.items()} if model else {}


class GpuModelEntry(YamlMapping):
    """A GPU model that the catalogue lacks."""

    memory: MemoryMib = _required("Memory of one GPU: K, M, G or T, powers of 1024.", example="16G")
    price: MicroUsd = _required("List price in USD per GPU-hour.", example=1.46)
    nvlink: Boolean | None = _key("Whether its GPUs are linked with NVLink.", default=False)
    mig: Boolean | None = _key("Whether its GPUs can be cut with MIG.", default=False)


class BudgetEntry(YamlMapping):
    """GPU time that may be spent in each window."""

    gpu_hours: GpuHoursMs = _required("GPU-hours that may be spent in each window.", example=5000)
    window: PositiveMs = _required("Length of the windows, which are aligned to the epoch.", example="30d")


class NamedBudgetEntry(YamlMapping):
    """What jobs of one kind may spend in each window."""

    gpu_hours: GpuHoursMs | None = _key(
        "GPU-hours in each window. Default: none, then usd is required.", example=5000
    )
    usd: BudgetUsd | None = _key(
        "USD in each window, by the prices of the pools. Default: none, then gpu_hours is required.",
        example=20000,
    )
    tenant: Word | None = _key(
        "The path of the tenant whose jobs count, with all below it. Default: jobs of all tenants.",
        example="research",
    )
    klass: Word | None = _key(
        "The class whose jobs count. Default: jobs of all classes.", alias="class", example="batch"
    )
    project: Word | None = _key(
        "The project whose jobs count. Default: jobs of all projects.", example="llama"
    )
    labels: Annotated[dict[str, Word], _OrNothing()] | None = _key(
        "Labels of the jobs that count (--label). Default: jobs with any labels.", example={"team": "vision"}
    )
    users: Annotated[list[Person], _OneOrMore()] | None = _key(
        "People whose jobs count, since any user may set a project or label. Default: everybody.",
        example=["ana", "bob"],
    )
    window: BudgetWindow | None = _key(
        "week, month or quarter, in UTC; or a rolling number of days such as 30d.",
        default="month",
    )
    action: ActionName | None = _key(
        "What happens once all of it is spent or set aside. warn: only the warning; soft: its jobs go "
        "behind all others; hard: no job starts.",
        default=BudgetAction.HARD.value,
    )
    warn_at: list[Percent] | None = _key(
        "The parts of it, in percent, at which the yard warns people.",
        default=list(NamedBudget("").warn_at),
    )


class GpuBoundsEntry(YamlMapping):
    """GPUs of one job."""

    min: GpuMilli | None = _key("The fewest GPUs of a job. Default: none.", example=1)
    default: GpuMilli | None = _key("GPUs of each task of a job that names none. Default: none.", example=1)
    max: GpuMilli | None = _key("The most GPUs of a job: max_gpus_per_job. Default: no limit.", example=2)


class CpuBoundsEntry(YamlMapping):
    """Cores of one job."""

    min: CpuMilli | None = _key("The fewest cores of a job. Default: none.", example=1)
    default: CpuMilli | None = _key("Cores of each task of a job that names none. Default: none.", example=4)
    max: CpuMilli | None = _key("The most cores of a job. Default: no limit.", example=32)


class MemoryBoundsEntry(YamlMapping):
    """Memory of one job."""

    min: MemoryMib | None = _key("The least memory of a job. Default: none.", example="1G")
    default: MemoryMib | None = _key(
        "Memory of each task of a job that names none. Default: none.", example="16G"
    )
    max: MemoryMib | None = _key("The most memory of a job. Default: no limit.", example="256G")


class PerJobEntry(YamlMapping):
    """What one job of a tenant, or of one below it, may ask for: all of its tasks together."""

    gpus: GpuBoundsEntry | None = _key("GPUs. Default: any number.")
    cpus: CpuBoundsEntry | None = _key("Cores. Default: any number.")
    memory: MemoryBoundsEntry | None = _key("Memory. Default: any amount.")


class ClassLimitEntry(YamlMapping):
    """What the jobs of one class may have, of a tenant and those below it."""

    limit: GpuMilli | None = _key("The most GPUs of those that run. Default: no limit.", example=2)
    max_running_jobs: Count | None = _key("The most that run at once. Default: no limit.", example=1)


class TenantEntry(YamlMapping):
    """A tenant."""

    parent: Word | None = _key("The tenant above it. Default: none.", example="research")
    weight: Count | None = _key("Its weight relative to the other tenants below the same parent.", default=1)
    guarantee: Quota | None = _key(
        "GPUs that it gets back from others when it needs them, in total or by model: a number, or a percentage of "
        "the fleet, of the model or of a pool (40%, 40% of POOL). Default: none.",
        example=16,
    )
    limit: Quota | None = _key(
        "The most GPUs it may hold, in total or by model, as a number or a percentage. Default: no limit.",
        example={"total": 48, "H100": 32},
    )
    borrow: Quota | None = _key(
        "GPUs it may use above its guarantee, or a percentage. Default: no limit.", example=16
    )
    lend: Quota | None = _key(
        "GPUs of an unused guarantee that others may use, or a percentage. Default: all.", example=8
    )
    max_gpus_per_job: GpuMilli | None = _key("The most GPUs of one job. Default: no limit.", example=16)
    max_gpus_per_user: GpuMilli | None = _key(
        "The most GPUs of one user, over all tenants at or below it. Default: no limit.", example=8
    )
    max_running_jobs: Count | None = _key("The most jobs it may run at once. Default: no limit.", example=100)
    max_jobs: Count | None = _key(
        "The most jobs it may have, waiting or running; one more is refused. Default: no limit.", example=500
    )
    max_cpus: CpuMilli | None = _key(
        "The most cores of all its running jobs, as many as they name. Default: no limit.", example=40
    )
    max_memory: MemoryMib | None = _key(
        "The most memory of all its running jobs, as much as they name. Default: no limit.", example="200G"
    )
    classes: Annotated[dict[str, ClassLimitEntry], _OrNothing()] | None = _key(
        "What its jobs of a class may have, by class. Default: as much as jobs of any class.",
        example={"interactive": {"limit": 2, "max_running_jobs": 1}},
    )
    per_job: PerJobEntry | None = _key("What one of its jobs may ask for. Default: anything.")
    on_limit: OnLimitName | None = _key(
        "What becomes of a job that would be over limit, max_cpus or max_memory, beside all that wait or run: wait, or "
        "refuse.",
        default="wait",
    )
    budget: BudgetEntry | None = _key("GPU time it may spend in each window. Default: no limit.")


class ClassEntry(YamlMapping):
    """How a job is treated."""

    priority: Priority | None = _key("Higher goes first.", default=_CLASS.priority)
    preemptible: Boolean | None = _key(
        "Whether its jobs may be stopped to make room for others.", default=_CLASS.preemptible
    )
    limit: PositiveMs | None = _key(
        "The longest time limit of a job, and the limit of a job that names none.",
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
        "Tenants whose jobs may be of this class, with all below them. Default: all tenants, unless it "
        "has users.",
        example=["research", "product/ml"],
    )
    users: Annotated[list[Person], _OneOrMore()] | None = _key(
        "People whose jobs may be of this class, whatever their tenant. Default: only those of its tenants.",
        example=["ana"],
    )


class FairnessEntry(YamlMapping):
    """How past usage counts in the fair share."""

    half_life: PositiveMs | None = _key(
        "The time after which past usage counts half.", default=duration_text(_SETTINGS.half_life_ms)
    )
    period: PositiveMs | None = _key(
        "How often usage is charged; at most the half-life.", default=duration_text(_SETTINGS.period_ms)
    )
    share_weights: Annotated[dict[str, ShareWeight], _OrNothing()] | None = _key(
        "What a GPU-hour counts, in USD by model. Default: the model's list price.", example={"H100": 6.88}
    )


class RetentionEntry(YamlMapping):
    """How long the files of a job are kept after its end."""

    environments: KeptMs | None = _key(
        "The job's environment, which may hold secrets. A duration, or forever.",
        default=q.kept_text(_SETTINGS.retention.environments_ms),
        example="1d",
    )
    scripts: KeptMs | None = _key(
        "The script and command line; the environment is removed with them at the latest.",
        default=q.kept_text(_SETTINGS.retention.scripts_ms),
        example="7d",
    )
    logs: KeptMs | None = _key(
        "The job's output, unless it named a file of its own; such files are never removed.",
        default=q.kept_text(_SETTINGS.retention.logs_ms),
        example="forever",
    )
    folders: KeptMs | None = _key(
        "The folder that the yard made for the job, with its checkpoint.",
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
        "Which job goes first: a list of criteria, the most important first.", default=list(_POLICY.order)
    )
    placement: Word | None = _key("Which of the suitable nodes is chosen.", default=_POLICY.placement)
    backfill: Word | None = _key(
        "Which jobs may overtake a job that waits for room.", default=_POLICY.backfill
    )
    backfill_depth: Count | None = _key(
        "How many jobs that cannot start one pass examines.", default=_POLICY.backfill_depth
    )
    depth_per_tenant: Count | None = _key(
        "How many of them may belong to one tenant.", default=_POLICY.depth_per_tenant
    )
    preemption: list[Word] | None = _key(
        "The rules by which a running job may be stopped.", default=list(_POLICY.preemption)
    )
    quotas: Boolean | None = _key(
        "Whether guarantees, limits and budgets are enforced.", default=_POLICY.quotas
    )


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
        "Classes of jobs by name. Default: one class named batch, with all defaults."
    )
    default_class: Word | None = _key("The class of jobs that name none.", default=_SETTINGS.default_class)
    prices: Annotated[dict[str, MicroUsd], _OrNothing()] | None = _key(
        "USD per GPU-hour by GPU model, for pools that set no price. Default: list prices.",
        example={"H100": 2.5},
    )
    currency: Currency | None = _key("The currency of all prices.", default=CURRENCY)
    price_book: list[PriceEntry] | None = _key(
        "Prices with a history, by model, pool, market and region, which `yard cost` uses. The most "
        "specific entry for a day overrides prices. Default: none.",
        example=[{"model": "H100", "market": "spot", "from": "2026-11-01", "price": 1.2}],
    )
    budgets: Annotated[dict[Name, NamedBudgetEntry], _OrNothing()] | None = _key(
        "What jobs of tenants or classes may spend, by the budget's name. Default: only the budgets of "
        "tenants."
    )
    fairness: Annotated[FairnessEntry, _OrNothing()] | None = _key("How past usage counts in the fair share.")
    earmark: PositiveMs | None = _key(
        "How long freed GPUs are kept for the job that they were freed for.",
        default=duration_text(_SETTINGS.earmark_ms),
    )
    whole_gpus: GroupSize | None = _key(
        "GPUs that stay whole: while no more than this many are free, none is cut into MIG slices.", default=0
    )
    attempts_per_user: AttemptCount | None = _key(
        f"The most live attempts of one user, over all nodes; 0: no limit. Default: {ATTEMPTS_PER_USER} "
        "where the yard is one machine, else any number.",
        example=500,
    )
    attempts_per_node: AttemptCount | None = _key(
        f"The most live attempts on one node; 0: no limit. Default: {ATTEMPTS_PER_NODE} where the yard is "
        "one machine, else any number.",
        example=2000,
    )
    waiting_per_user: WaitingCount | None = _key(
        "The most waiting jobs of one user, counting tasks of arrays; 0: no limit.",
        default=_SETTINGS.waiting_per_user,
    )
    recipes_per_user: StoredMib | None = _key(
        "How much one user's live jobs may keep in the store as scripts and environments, equal ones "
        "counted once: M, G or T, powers of 1024; 0 for any amount.",
        default="1G",
        example="200M",
    )
    mps_users: SharersName | None = _key(
        "Whether one GPU may hold shares of one user at a time, or of many, which then take turns.",
        default=_SETTINGS.mps_users,
    )
    partitions: Annotated[dict[Name, Annotated[list[Name], _OneOrMore()]], _OrNothing()] | None = _key(
        "Pools by the names that scripts use for them (sbatch -p). Default: pools have only their own names.",
        example={"gpu-a100": "a100", "gpu": ["h100", "a100"]},
    )
    accounts: Annotated[dict[Name, Word], _OrNothing()] | None = _key(
        "Tenants by the names that scripts use for them (sbatch -A). Default: tenants have only their "
        "own names.",
        example={"p12345": "research"},
    )
    qos: Annotated[dict[Name, Word], _OrNothing()] | None = _key(
        "Classes by the names that scripts use for them (sbatch -q). Default: classes have only their "
        "own names.",
        example={"normal": "batch"},
    )
    retention: Annotated[RetentionEntry, _OrNothing()] | None = _key(
        "How long the files of a job are kept after its end."
    )
    policy: Word | None = _key("The policy in force: a preset or an entry of policies.", default="default")
    policies: Annotated[dict[Name, Annotated[PolicyEntry, _OrNothing()]], _OrNothing()] | None = _key(
        "Policies of your own, by name."
    )
    gangs: GangsName | None = _key(
        "How soon a gang that waits comes by age in its team, under a policy with fair share.",
        default=BALANCED,
    )
    auth: Annotated[AuthEntry, _OrNothing()] | None = _key(
        "The rights of people, for `yard up --auth`. Default: only tokens and the machine's own users."
    )
    logs: Annotated[LogsEntry, _OrNothing()] | None = _key(
        "Where the output of jobs is sent besides `yard logs`. Default: nowhere."
    )
    telemetry: Annotated[TelemetryEntry, _OrNothing()] | None = _key(
        "Where the yard reads samples of nodes and GPUs, besides collectors. Default: nowhere."
    )
