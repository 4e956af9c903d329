"""The policy of a `yard.yaml` in Slurm's words: fragments of slurm.conf and gres.conf, and a script for sacctmgr.

What Slurm can say is written in a form that `yard slurm import` reads back as it was. What it cannot say is noted.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpuyard.config.slurm.exporting_accounts import list_people, write_script
from gpuyard.config.slurm.importing_policy import EASY
from gpuyard.config.values import Config
from gpuyard.core.quota.percentages import amount_of, percentage_words, resolve
from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.engines.slurm.words.forms import duration_text, guess_models
from gpuyard.errors import BadInput, quote
from gpuyard.model import CATALOGUE, GpuModel, Market, Node, PolicySpec, Pool, Settings
from gpuyard.model.units import MICRO_USD, MILLI, MINUTE_MS

HEAD = "# Made by `yard slurm export` from {source}. "
_STEP = 100
"""How much more a criterion counts than the next one."""
_WEIGHTS = {"class": "PriorityWeightQOS", "fair": "PriorityWeightFairshare", "fifo": "PriorityWeightAge"}
_BACKFILLS = {"easy": "sched/backfill", "none": "sched/builtin", "conservative": "sched/backfill"}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the administrator says about the site."""

    cluster: str = ""
    """Slurm's name for the cluster; empty: as in the file."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Models by the types that the site has for them."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """The real names of a pool's nodes, as a list of Slurm's."""
    users: tuple[str, ...] = ()
    """Tenants that are people, beside those under `auth`."""
    source: str = "yard.yaml"


def export(config: Config, wishes: Wishes, notes: Notes) -> dict[str, str]:
    """The files, by name."""
    names = list(config.clusters)
    if len(names) != 1 and not wishes.cluster:
        raise BadInput(
            f"the file has {len(names)} clusters, and Slurm's files are for one",
            f"Say which with --cluster: {', '.join(names) or 'add one to the file'}.",
        )
    own = wishes.cluster if wishes.cluster in names else names[0] if len(names) == 1 else ""
    config = _in_gpus(config, notes)
    pools = [pool for pool in config.pools if pool.cluster == own]
    unknown = [name for name in wishes.hosts if name not in {pool.name for pool in pools}]
    if unknown:
        raise BadInput(
            f"--nodes {unknown[0]}=…: there is no such pool", f"Pools: {', '.join(p.name for p in pools)}."
        )
    types = {model: kind for kind, model in wishes.types.items()}
    models = {node.gpu_model for pool in pools for node in pool.nodes if node.gpus}
    kinds = {model: types.get(model) or _type(model) for model in sorted(models)}
    head = HEAD.format(source=wishes.source)
    _leave_fleet(config, pools, notes)
    known = list_people(config, wishes.users)
    return {
        "slurm.conf": head
        + "Lines for slurm.conf.\n"
        + _slurm_conf(config, pools, kinds, wishes, known, notes),
        "gres.conf": head + "Lines for gres.conf.\n" + _gres_conf(pools, kinds, wishes),
        "sacctmgr.sh": write_script(config, wishes.cluster or own, kinds, known, head, notes),
    }


def _in_gpus(config: Config, notes: Notes) -> Config:
    """The same with percentages as numbers of GPUs, of the fleet that the file describes."""
    gpus: dict[tuple[str, str], int] = {}
    for pool in config.pools:
        for node in pool.nodes:
            if node.gpus:
                gpus[pool.name, node.gpu_model] = gpus.get((pool.name, node.gpu_model), 0) + node.gpus
    tenants = []
    for tenant in config.settings.tenants:
        quota = tenant.quota
        if quota.percentages and not gpus:
            unknown = "the file does not say how many GPUs there are"
            notes.leave(f"percentages of tenant {quote(tenant.path)}: {unknown}")
            quota = replace(quota, percentages={})
        for key, part in quota.percentages.get("limit", {}).items():
            count = amount_of(part, key, gpus) // MILLI
            notes.guess(
                f"limit of tenant {quote(tenant.path)}: {percentage_words(part, key, gpus)} is written as {count}; "
                "export again when nodes come or go"
            )
        tenants.append(replace(tenant, quota=resolve(quota, gpus)))
    return replace(config, settings=replace(config.settings, tenants=tuple(tenants)))


def _type(model: str) -> str:
    """A type that is read back as the model: its name in lower case, if that is enough."""
    small = model.lower()
    return small if guess_models(small) == (model,) else model


# -- slurm.conf ----------------------------------------------------------------------------------------------------


def _slurm_conf(
    config: Config,
    pools: list[Pool],
    kinds: Mapping[str, str],
    wishes: Wishes,
    known: Mapping[str, str],
    notes: Notes,
) -> str:
    settings = config.settings
    policy = settings.policy
    tracked = ["gres/gpu", *[f"gres/gpu:{kind}" for kind in kinds.values()]]
    enforce = "associations,limits,qos,safe" if policy.quotas else "associations,qos"
    lines = [
        "",
        "# Accounts, users and limits come from slurmdbd: run sacctmgr.sh.",
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageEnforce={enforce}",
        f"AccountingStorageTRES={','.join(tracked)}",
        "",
        "# Priority.",
        "PriorityType=priority/multifactor",
        *_weights(policy, notes),
        f"PriorityDecayHalfLife={duration_text(_minutes(settings.half_life_ms, 'half_life', notes))}",
        f"PriorityCalcPeriod={duration_text(_minutes(settings.period_ms, 'period', notes))}",
        "",
        "# Backfill and preemption.",
        *_scheduler(policy, notes),
        "",
        "# GPUs are given out one by one, with cores and memory.",
        "GresTypes=gpu",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "",
    ]
    if any(pool.name not in wishes.hosts for pool in pools):
        lines.append(
            "# The names are those of a yard: put those of your machines in their place, here and below."
        )
    lines += [_node_line(pool, kinds, wishes, notes) for pool in pools if pool.nodes]
    lines += _partitions(config, pools, kinds, wishes, known)
    return "\n".join(lines) + "\n"


def _minutes(value_ms: int, what: str, notes: Notes) -> int:
    """Slurm keeps these in minutes or coarser; what is finer is rounded up."""
    rounded = -(-value_ms // MINUTE_MS) * MINUTE_MS
    if rounded != value_ms:
        notes.guess(f"{quote(what)} is rounded up to whole minutes")
    return rounded


def _weights(policy: PolicySpec, notes: Notes) -> list[str]:
    """Weights that let an earlier criterion outweigh the later ones."""
    sayable = [each for each in policy.order if each in _WEIGHTS and each != "fifo"]
    for each in policy.order:
        if each not in _WEIGHTS:
            notes.leave(f"order {quote(each)}: Slurm has no such factor")
    if len(sayable) > 1:
        notes.guess(
            f"here {sayable[0]} decides before {sayable[1]}; Slurm adds them up, each counting {_STEP} times the next"
        )
    named = dict.fromkeys(_WEIGHTS.values(), 0)
    worth = _STEP
    for each in ["fifo", *reversed(sayable)]:
        named[_WEIGHTS[each]] = worth
        worth *= _STEP
    return [f"{setting}={value}" for setting, value in named.items()]


def _scheduler(policy: PolicySpec, notes: Notes) -> list[str]:
    kind = _BACKFILLS.get(policy.backfill, "sched/backfill")
    for rule in policy.preemption:
        if rule != "class":
            notes.leave(f"preemption {quote(rule)}: Slurm preempts by QOS only")
    if policy.placement != "best-fit":
        notes.leave(f"placement {quote(policy.placement)}: Slurm has its own")
    lines = [f"SchedulerType={kind}"]
    if kind == "sched/backfill":
        user = (
            ""
            if policy.depth_per_tenant == policy.backfill_depth
            else f",bf_max_job_user={policy.depth_per_tenant}"
        )
        # Slurm reserves room for every job that it looks at, unless this makes it do so for the first one only.
        first = f",{EASY}=1" if policy.backfill == "easy" else ""
        lines.append(f"SchedulerParameters=bf_max_job_test={policy.backfill_depth}{user}{first},bf_continue")
    if "class" in policy.preemption:
        lines += [
            "PreemptType=preempt/qos",
            "PreemptMode=REQUEUE",
            "# A preempted job waits for its credential to expire: two minutes, or what AuthInfo=cred_expire=N says.",
        ]
    else:
        lines += ["PreemptType=preempt/none", "PreemptMode=OFF"]
    return lines


# -- nodes and partitions ------------------------------------------------------------------------------------------


def _hosts(pool: Pool, wishes: Wishes) -> str:
    told = wishes.hosts.get(pool.name)
    if told:
        return told
    first, last = (re.sub(r"^.*-", "", node.name) for node in (pool.nodes[0], pool.nodes[-1]))
    return pool.nodes[0].name if len(pool.nodes) == 1 else f"{pool.name}-[{first}-{last}]"


def _node_line(pool: Pool, kinds: Mapping[str, str], wishes: Wishes, notes: Notes) -> str:
    node = pool.nodes[0]
    if node.cpu_milli % MILLI:
        notes.guess(f"pool {quote(pool.name)}: parts of a core are left out")
    gpus = f" Gres=gpu:{kinds[node.gpu_model]}:{node.gpus}" if node.gpus else ""
    features = f" Feature={','.join(node.features)}" if node.features else ""
    cpus = max(1, node.cpu_milli // MILLI)
    return f"NodeName={_hosts(pool, wishes)} CPUs={cpus} RealMemory={node.memory_mib}{gpus}{features} State=UNKNOWN"


def _partitions(
    config: Config, pools: list[Pool], kinds: Mapping[str, str], wishes: Wishes, known: Mapping[str, str]
) -> list[str]:
    """A partition for each pool; closed to tenants that have a limit of 0 for its model."""
    accounts = {
        tenant.path.rpartition("/")[2]: tenant
        for tenant in config.settings.tenants
        if tenant.path.rpartition("/")[2] not in known
    }
    lines = []
    for place, pool in enumerate(pool for pool in pools if pool.nodes):
        node = pool.nodes[0]
        barred = {
            name
            for name, tenant in accounts.items()
            if node.gpus and _closed(config, tenant.path, node.gpu_model)
        }
        allowed = ""
        if barred:
            allowed = f" AllowAccounts={','.join(name for name in accounts if name not in barred) or 'root'}"
        default = " Default=YES" if place == 0 else ""
        lines.append(
            f"PartitionName={pool.name} Nodes={_hosts(pool, wishes)}{default} MaxTime=INFINITE State=UP"
            f"{allowed} TRESBillingWeights={billing(config, kinds)}"
        )
    return lines


def _closed(config: Config, path: str, model: str) -> bool:
    """Whether a tenant, or one above it, may have no GPU of this model."""
    limits = {tenant.path: tenant.quota.limit for tenant in config.settings.tenants}
    parts = path.split("/")
    above = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    return any(limits.get(each, {}).get(model) == 0 for each in above)


def billing(config: Config, kinds: Mapping[str, str]) -> str:
    """How much an hour of a GPU counts in the fair share; cores and memory count nothing, as in the yard."""
    known: dict[str, GpuModel] = {**CATALOGUE, **{each.name: each for each in config.settings.gpu_models}}
    parts = ["CPU=0.0", "Mem=0.0"]
    for model, kind in kinds.items():
        milli = config.settings.share_weights.get(model)
        if milli is None:
            milli = max(1, known[model].list_price_micro_usd_h * MILLI // MICRO_USD)
        parts.append(f"GRES/gpu:{kind}={milli // MILLI}.{milli % MILLI:03d}")
    return ",".join(parts)


def _gres_conf(pools: list[Pool], kinds: Mapping[str, str], wishes: Wishes) -> str:
    lines = [
        "# Where slurmd is built with NVML, AutoDetect=nvml finds the files by itself.",
        "AutoDetect=off",
    ]
    for pool in pools:
        if pool.nodes and pool.nodes[0].gpus:
            node = pool.nodes[0]
            lines.append(
                f"NodeName={_hosts(pool, wishes)} Name=gpu Type={kinds[node.gpu_model]} {_files(node)}"
            )
    return "\n".join(lines) + "\n"


def _files(node: Node) -> str:
    return "File=/dev/nvidia0" if node.gpus == 1 else f"File=/dev/nvidia[0-{node.gpus - 1}]"


def _leave_fleet(config: Config, pools: list[Pool], notes: Notes) -> None:
    for pool in pools:
        if pool.market is not Market.RESERVED:
            notes.leave(f"market {pool.market.value} of pool {quote(pool.name)}")
        for node in pool.nodes[:1]:
            if node.numa_domains > 1:
                notes.leave(f"numa of pool {quote(pool.name)}: say Cores= in gres.conf, or AutoDetect=nvml")
        if reserve := config.settings.reserves.get(f"{pool.cluster}/{pool.name}"):
            each = reserve.cpu_milli // MILLI
            instead = f": say RestrictedCoresPerGPU={each} on its NodeName lines" if each else ""
            notes.leave(f"reserve of pool {quote(pool.name)}{instead}")
        if len({node.switch for node in pool.nodes}) > 1:
            notes.leave(f"switches of pool {quote(pool.name)}: they go into topology.conf")
        if fabric := pool.nodes[0].fabric:
            notes.leave(f"fabric {quote(fabric)} of pool {quote(pool.name)}: it goes into topology.conf")
    for pool in pools:
        if f"{pool.cluster}/{pool.name}" in config.settings.walls:
            notes.leave(
                f"wall of pool {quote(pool.name)}: give its partition AllowAccounts, AllowGroups, AllowQos, MaxTime, "
                "DefaultTime, MaxNodes and PriorityTier by hand"
            )
    if config.prices:
        notes.leave(f"prices of {', '.join(config.prices)}: Slurm knows no money")
    elif pools:
        notes.leave("prices: Slurm knows no money; usage is weighted by list price")
    if config.settings.attempts_per_user:
        notes.leave("attempts_per_user: Slurm limits users by QOS (MaxJobsPerUser)")
    if config.settings.waiting_per_user != Settings().waiting_per_user:
        notes.leave("waiting_per_user: Slurm limits users by QOS (MaxSubmitJobsPerUser)")
    if config.settings.recipes_mib_per_user != Settings().recipes_mib_per_user:
        notes.leave("recipes_per_user: Slurm limits the size of one script (max_script_size)")
    if config.settings.attempts_per_node:
        notes.leave("attempts_per_node: Slurm has no such limit")
    if config.settings.whole_gpus:
        notes.leave("whole_gpus: Slurm does not cut GPUs on demand")
