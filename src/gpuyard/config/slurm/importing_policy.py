"""Slurm's priorities, backfill and preemption as a policy, and its decay as fairness."""

from typing import Any

from gpuyard.engines.slurm.site.gpu_types import GpuTypes
from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.engines.slurm.site.site import SlurmSite
from gpuyard.engines.slurm.words.forms import Unreadable, limit_ms, parse_whole, parse_words
from gpuyard.errors import quote
from gpuyard.model.units import DAY_MS
from gpuyard.quantities import PRICE_USD_MAX, duration_text

NAME = "slurm"
"""The name of the imported policy."""
NEVER_MS = 3650 * DAY_MS
"""The half-life of usage that does not fade, as good as."""
EASY = "bf_job_part_count_reserve"
"""Slurm's option for how many jobs of a partition backfill reserves room; without it, for all."""
COUNT_MAX = 1_000_000
"""The largest depth that the file takes."""
BF_MAX_JOB_TEST = 500
"""Slurm's default: jobs that its backfill looks at."""

_CRITERIA = (
    ("PriorityWeightQOS", "class"),
    ("PriorityWeightFairShare", "fair"),
    ("PriorityWeightAge", "fifo"),
)
_UNSAID = {
    "PriorityWeightJobSize": "size",
    "PriorityWeightPartition": "partition",
    "PriorityWeightAssoc": "association",
    "PriorityWeightTRES": "resources",
}


def weight(site: SlurmSite, name: str) -> int:
    """A weight of the multifactor plugin; 0: not set."""
    text = site.setting(name)
    return parse_whole(text, name, 1 << 32) if text.isdecimal() else 0


def import_policy(site: SlurmSite, notes: Notes) -> dict[str, Any]:
    """`policy` and `policies`: one policy, named `slurm`."""
    parameters = parse_words(site.setting("SchedulerParameters"))
    entry: dict[str, Any] = {
        "order": _order(site, notes),
        "placement": "best-fit",
        "backfill": _backfill(site, parameters),
    }
    entry["backfill_depth"] = _count(parameters.get("bf_max_job_test", ""), BF_MAX_JOB_TEST)
    entry["depth_per_tenant"] = _count(parameters.get("bf_max_job_user", ""), entry["backfill_depth"])
    kind, mode = site.setting("PreemptType"), site.setting("PreemptMode").upper()
    if kind == "preempt/qos" and "OFF" not in mode.split(","):
        entry["preemption"] = ["class"]
    elif kind == "preempt/partition_prio":
        notes.leave("preemption by the priority of partitions: here classes preempt")
    if "CANCEL" in mode or "SUSPEND" in mode:
        notes.leave(f"PreemptMode {mode}: a preempted job waits again")
    if "limits" not in parse_words(site.setting("AccountingStorageEnforce")) and site.associations:
        notes.guess(
            "AccountingStorageEnforce has no 'limits': Slurm holds nobody to them, and so quotas are off"
        )
        entry["quotas"] = False
    if "CR_LLN" in site.setting("SelectTypeParameters").upper():
        notes.leave("CR_LLN (least loaded node first): the policy packs nodes")
    return {"policy": NAME, "policies": {NAME: entry}}


def _order(site: SlurmSite, notes: Notes) -> list[str]:
    if site.setting("PriorityType") != "priority/multifactor":
        return ["fifo"]
    weights = [(weight(site, setting), criterion) for setting, criterion in _CRITERIA]
    for setting, what in _UNSAID.items():
        value = site.setting(setting)
        if value and value != "0":
            notes.leave(f"{setting} {value}: {what} does not count in the order")
    used = sorted([pair for pair in weights if pair[0]], key=lambda pair: -pair[0])
    order = [criterion for _, criterion in used]
    if len(used) > 1:
        said = " + ".join(f"{value} x {criterion}" for value, criterion in used)
        notes.leave(
            f"Slurm adds its priorities up ({said}); here the first that differs decides: {', '.join(order)}"
        )
    # Age is at the end of every order.
    return [each for each in order if each != "fifo"] or ["fifo"]


def _backfill(site: SlurmSite, parameters: dict[str, str]) -> str:
    """Slurm's backfill plans for every job that it looks at, unless an option limits it to the first ones."""
    if site.setting("SchedulerType") == "sched/builtin":
        return "none"
    return "easy" if _count(parameters.get(EASY, ""), 0) else "conservative"


def _count(text: str, default: int) -> int:
    return min(int(text), COUNT_MAX) if text.isdecimal() and int(text) else default


def import_fairness(site: SlurmSite, types: GpuTypes, notes: Notes) -> dict[str, Any]:
    """How usage fades, and what an hour of a GPU counts."""
    found: dict[str, Any] = {}
    half_ms = limit_ms(site.setting("PriorityDecayHalfLife"), "PriorityDecayHalfLife")
    period_ms = limit_ms(site.setting("PriorityCalcPeriod"), "PriorityCalcPeriod")
    if site.setting("PriorityDecayHalfLife") and not half_ms:
        notes.leave(
            f"PriorityDecayHalfLife 0: usage never fades; here it halves in {duration_text(NEVER_MS)}"
        )
        half_ms = NEVER_MS
    if half_ms:
        found["half_life"] = duration_text(half_ms)
    if period_ms:
        found["period"] = duration_text(min(period_ms, half_ms or period_ms))
    weights = _share_weights(site, types, notes)
    if weights:
        found["share_weights"] = weights
    return found


def _share_weights(site: SlurmSite, types: GpuTypes, notes: Notes) -> dict[str, float | int]:
    found: dict[str, float | int] = {}
    for partition in site.partitions:
        if not partition.billing:
            notes.leave(
                f"partition {quote(partition.name)} has no TRESBillingWeights: Slurm counts cores in the fair "
                "share, here GPUs count by their list price"
            )
        for key, value in partition.billing.items():
            kind, _, gpu_type = key.partition(":")
            if kind.lower() != "gres/gpu":
                if value.rstrip("KMGTP") not in ("0", "0.0"):
                    notes.leave(f"TRESBillingWeights {key}={value}: only GPUs count in the fair share")
                continue
            models = [types.model(gpu_type, notes)] if gpu_type else list(types.chosen.values())
            try:
                amount = float(value)
            except ValueError:
                amount = -1.0
            if not 0 <= amount <= PRICE_USD_MAX:
                raise Unreadable(f"TRESBillingWeights {key}={value} is not a number that can be used")
            for model in models:
                if gpu_type or model not in found:
                    found[model] = int(amount) if amount == int(amount) else round(amount, 3)
    return {model: amount for model, amount in found.items() if amount > 0}
