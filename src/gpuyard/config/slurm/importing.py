"""A Slurm site as a `yard.yaml`: nodes become pools, accounts tenants, QOS classes, weights a policy.

What comes out is a document of plain values, to be written as YAML. Only what differs from the defaults is written,
and what Slurm says and the file cannot is noted.
"""

from collections.abc import Mapping
from typing import Any

from gpuyard.config.slurm.importing_policy import import_fairness, import_policy
from gpuyard.config.slurm.importing_tenants import find_places, import_people, import_tenants
from gpuyard.engines.slurm.site.accounts import Qos
from gpuyard.engines.slurm.site.gpu_types import GpuTypes
from gpuyard.engines.slurm.site.names import choose_names, is_allowed, mend_name, tell
from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.engines.slurm.site.pools import group_nodes, read_gpus
from gpuyard.engines.slurm.site.site import SlurmSite
from gpuyard.engines.slurm.words.forms import limit_ms
from gpuyard.errors import BadInput, quote
from gpuyard.model import CATALOGUE
from gpuyard.model.units import DAY_MS, NO_LIMIT_MS
from gpuyard.quantities import CPUS_PER_NODE_MAX, duration_text, memory_text

MONTH_MS = 30 * DAY_MS
"""The longest grace and the longest protection from preemption that the file takes."""

Document = dict[str, Any]


def make_document(site: SlurmSite, types: GpuTypes, notes: Notes, conf: str = "") -> Document:
    """The file, as plain values. `conf`: the slurm.conf to give to Slurm's commands."""
    cluster = tell("cluster", site.name, mend_name(site.name), notes)
    found: Document = {
        "version": 1,
        "clusters": {cluster: _cluster(site, types, conf, notes)},
    }
    found["tenants"] = import_tenants(site, types, notes)
    found |= _classes(site, notes)
    found["fairness"] = import_fairness(site, types, notes)
    found |= import_policy(site, notes)
    users = import_people(site, notes)
    if users:
        found["auth"] = {"users": users}
    if types.strange:
        found["gpu_models"] = {name: {"memory": "16G", "price": 1} for name in types.strange}
    _other(site, notes)
    return {key: value for key, value in found.items() if value not in ({}, None)}


def _cluster(site: SlurmSite, types: GpuTypes, conf: str, notes: Notes) -> Document:
    """Observed at first: to let the yard drive it is an administrator's decision."""
    found = pools(site, types, notes)
    keys: Document = {"mode": "observe"}
    if conf:
        keys["conf"] = conf
    kinds = {kind: model for kind, model in types.chosen.items() if kind}
    if kinds:
        keys["gpu_types"] = kinds
    renamed = {was: name for was, name in find_places(site).names.items() if was != name}
    if renamed:
        keys["names"] = renamed
    return {"engine": "slurm", "slurm": keys, "pools": found}


# -- pools ---------------------------------------------------------------------------------------------------------


def pools(site: SlurmSite, types: GpuTypes, notes: Notes) -> Document:
    """The pools of the file."""
    groups = group_nodes(site, types, notes)
    if not groups:
        raise BadInput(
            f"cluster {quote(site.name)} has no node in any partition",
            "`scontrol show node` and `scontrol show partition` should list some.",
        )
    found: Document = {}
    for name, nodes in groups.items():
        first = nodes[0]
        gpus, model, group = read_gpus(first, types, notes)
        found[name] = {
            "nodes": len(nodes),
            "gpus": f"{gpus} x {model}" if gpus else 0,
            "cpus": min(max(1, first.cpus), CPUS_PER_NODE_MAX),
            "memory": memory_text(max(1, first.memory_mib)),
        }
        if not group and model in CATALOGUE and CATALOGUE[model].nvlink:
            found[name]["nvlink_group"] = 0
        words = [feature for feature in first.features if is_allowed(feature)]
        if strange := [feature for feature in first.features if not is_allowed(feature)]:
            notes.leave(f"features {', '.join(strange)} of pool {quote(name)}: no names that the file takes")
        if words:
            found[name]["features"] = words
    return found


# -- classes -------------------------------------------------------------------------------------------------------


def name_classes(site: SlurmSite) -> dict[str, str]:
    """The name of each QOS in the file."""
    return choose_names(qos.name for qos in site.qos)


def _classes(site: SlurmSite, notes: Notes) -> Document:
    if not site.qos:
        return {}
    names = name_classes(site)
    victims = {name for qos in site.qos for name in qos.preempts}
    found = {
        tell("QOS", qos.name, names[qos.name], notes): _class(qos, site, victims, notes) for qos in site.qos
    }
    _check_preemption(site, notes)
    root = next((each for each in site.associations if each.account == "root" and not each.user), None)
    usual = root.default_qos if root and root.default_qos in names else ""
    usual = usual or ("normal" if "normal" in names else site.qos[0].name)
    return {"classes": found, "default_class": names[usual]}


def _class(qos: Qos, site: SlurmSite, victims: set[str], notes: Notes) -> Document:
    exempt_ms = qos.exempt_ms
    if exempt_ms is None:
        exempt_ms = limit_ms(site.setting("PreemptExemptTime"), "PreemptExemptTime")
    entry: Document = {
        "priority": min(qos.priority, 1_000_000_000),
        "preemptible": qos.name in victims or bool(qos.preempt_mode),
        "grace": _at_most_30d(qos.grace_ms, f"GraceTime of QOS {quote(qos.name)}", notes),
        "min_run": _at_most_30d(exempt_ms, f"PreemptExemptTime of QOS {quote(qos.name)}", notes),
    }
    if 0 < qos.max_wall_ms < NO_LIMIT_MS:
        entry["limit"] = duration_text(qos.max_wall_ms)
    for what, limits in (("GrpTRES", qos.group_tres), ("MaxTRESPerJob", qos.job_tres)):
        if limits:
            notes.leave(f"{what} {_tres(limits)} of QOS {quote(qos.name)}: a class limits no resources")
    if qos.user_tres or qos.user_jobs is not None:
        jobs = "" if qos.user_jobs is None else f"{qos.user_jobs} jobs"
        limit = ", ".join(filter(None, (_tres(qos.user_tres), jobs)))
        notes.leave(f"limits for each user ({limit}) of QOS {quote(qos.name)}: users are limited by tenant")
    for what, value in qos.kept.items():
        notes.leave(f"{what} {value} of QOS {quote(qos.name)}: a class has no such limit")
    if qos.flags:
        notes.leave(f"flags {', '.join(qos.flags)} of QOS {quote(qos.name)}")
    if qos.preempt_mode not in ("", "requeue"):
        notes.leave(f"PreemptMode {qos.preempt_mode} of QOS {quote(qos.name)}: a preempted job waits again")
    return entry


def _at_most_30d(value_ms: int, what: str, notes: Notes) -> str:
    if value_ms > MONTH_MS:
        notes.guess(f"{what}: {duration_text(value_ms)} is cut to {duration_text(MONTH_MS)}")
    return duration_text(min(value_ms, MONTH_MS))


def _check_preemption(site: SlurmSite, notes: Notes) -> None:
    """Here a class may stop every preemptible class of lower priority; in Slurm those it lists."""
    victims = {name for qos in site.qos for name in qos.preempts}
    for qos in site.qos:
        ours = {each.name for each in site.qos if each.name in victims and each.priority < qos.priority}
        if qos.preempts and set(qos.preempts) != ours:
            notes.leave(
                f"QOS {quote(qos.name)} preempts {', '.join(qos.preempts)}; "
                f"by priority its class may stop: {', '.join(sorted(ours)) or 'none'}"
            )


def _tres(limits: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in limits.items())


# -- the rest ------------------------------------------------------------------------------------------------------


def _other(site: SlurmSite, notes: Notes) -> None:
    for partition in site.partitions:
        name = quote(partition.name)
        if partition.accounts:
            notes.leave(
                f"partition {name} is for accounts {', '.join(partition.accounts)}: write it as `allow` of the pool"
            )
        if partition.max_ms:
            notes.leave(
                f"MaxTime {duration_text(partition.max_ms)} of partition {name}: write it as `time_limit` of the pool"
            )
        if partition.qos:
            notes.leave(f"QOS {quote(partition.qos)} of partition {name}")
        if partition.priority_tier != 1:
            notes.leave(
                f"PriorityTier {partition.priority_tier} of partition {name}: write it as `priority` of the pool"
            )
    for reservation in site.reservations:
        notes.leave(f"reservation {quote(reservation.name)} of {len(reservation.nodes)} nodes")
    for file, names in site.untold.items():
        if names:
            notes.leave(f"{file} has no column for {', '.join(names)}: whether these are set is not known")
    for file, why in site.missing.items():
        notes.leave(f"{file.removesuffix('.txt')}: {why.splitlines()[-1] if why else 'not there'}")
