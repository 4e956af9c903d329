"""Tenants and classes as a script of sacctmgr commands. It may be run again: it updates what is there."""

import shlex
from collections.abc import Mapping

from gpuyard.config.values import Config
from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.engines.slurm.words.forms import duration_text
from gpuyard.errors import quote
from gpuyard.model import JobClass, Tenant
from gpuyard.model.settings import TOTAL
from gpuyard.model.units import MILLI, MINUTE_MS, NO_LIMIT_MS

_SHELL = """\
#!/bin/sh
{head}Accounts, users and QOS for slurmdbd. It may be run again.
set -eu
CLUSTER=${{CLUSTER:-{cluster}}}
# What is there already is no fault: the line below it sets what it is to be.
add() {{ sacctmgr -i add "$@" >/dev/null 2>&1 || :; }}
change() {{ sacctmgr -i modify "$@" >/dev/null || {{ echo "sacctmgr modify $* failed" >&2; exit 1; }}; }}
# To be where it is already counts as a failure to sacctmgr.
move() {{ sacctmgr -i modify "$@" >/dev/null 2>&1 || :; }}
"""

_CHECK = """\
# sacctmgr sets no default where somebody with a list of their own may not use it, and does not call that a failure.
set_to=$(sacctmgr -nP show assoc where account=root cluster=$CLUSTER format=user,defaultqos | sed -n 's/^|//p')
[ "$set_to" = {default} ] || {{ echo "the default QOS is '$set_to', not {default}" >&2; exit 1; }}"""


def list_people(config: Config, more: tuple[str, ...]) -> dict[str, str]:
    """Users and the account each belongs to: those under `auth`, and tenants that are marked as people."""
    found = {}
    for name, account in (config.access.users if config.access else {}).items():
        found[name] = account.tenant.rpartition("/")[2]
    for tenant in config.settings.tenants:
        above, _, name = tenant.path.rpartition("/")
        if name in more:
            found[name] = above.rpartition("/")[2]
    return found


def write_script(
    config: Config, cluster: str, kinds: Mapping[str, str], known: Mapping[str, str], head: str, notes: Notes
) -> str:
    """The text of the script."""
    lines = [_SHELL.format(head=head, cluster=shlex.quote(cluster))]
    lines += ["# Classes are QOS."]
    lines += _qos(config, notes)
    lines += ["", "# Tenants are accounts, with weights as shares and limits as GrpTRES."]
    of_users = []
    for tenant in config.settings.tenants:
        above, _, name = tenant.path.rpartition("/")
        values = _values(tenant, kinds, notes)
        if name in known and known[name] == above.rpartition("/")[2]:
            of_users.append((name, above.rpartition("/")[2], values))
            continue
        parent = above.rpartition("/")[2] or "root"
        lines.append(f"add account {name} cluster=$CLUSTER parent={parent}")
        lines.append(f"move account where name={name} cluster=$CLUSTER set parent={parent}")
        lines.append(f"change account where name={name} cluster=$CLUSTER set {values}")
    lines += _users(known, of_users)
    lines += ["", "# Everybody may use these classes."]
    closed = [klass for klass in config.settings.classes if klass.tenants or klass.users]
    names = ",".join(klass.name for klass in config.settings.classes if klass not in closed)
    default = config.settings.default_class
    lines.append(f"change account where name=root cluster=$CLUSTER set qos={names}")
    for klass in closed:
        lines += _whose(klass, known, notes)
    lines.append(f"change account where name=root cluster=$CLUSTER set defaultqos={default}")
    lines.append(_CHECK.format(default=default))
    return "\n".join(lines) + "\n"


def _whose(klass: JobClass, known: Mapping[str, str], notes: Notes) -> list[str]:
    """Commands that give a class to its own accounts and users only."""
    lines = []
    for tenant in klass.tenants:
        above, _, name = tenant.rpartition("/")
        account = above.rpartition("/")[2]
        is_user = name in known and known[name] == account
        kind, where = ("user", f" account={account or 'root'}") if is_user else ("account", "")
        lines.append(f"change {kind} where name={name}{where} cluster=$CLUSTER set qos+={klass.name}")
    for name in klass.users:
        if name in known:
            lines.append(f"change user where name={name} cluster=$CLUSTER set qos+={klass.name}")
        else:
            notes.leave(f"user {quote(name)} of class {quote(klass.name)}: no such user is made")
    notes.guess(
        f"class {quote(klass.name)} is given to its accounts and users (qos+=); run again, the script takes it from "
        "nobody"
    )
    return lines


def _users(known: Mapping[str, str], of_users: list[tuple[str, str, str]]) -> list[str]:
    if not known:
        return []
    lines = ["", "# People."]
    own = {(name, account): values for name, account, values in of_users}
    for name, account in known.items():
        place = account or "root"
        lines.append(f"add user {name} cluster=$CLUSTER account={place} defaultaccount={place}")
        values = own.get((name, account))
        if values:
            lines.append(f"change user where name={name} account={place} cluster=$CLUSTER set {values}")
    return lines


def _values(tenant: Tenant, kinds: Mapping[str, str], notes: Notes) -> str:
    quota = tenant.quota
    owner = f"tenant {quote(tenant.path)}"
    for what, given in (("guarantee", quota.guarantee), ("borrow", quota.borrow), ("lend", quota.lend)):
        if given:
            notes.leave(f"{what} of {owner}: Slurm has limits and shares, and nothing is promised")
    if quota.max_gpus_per_user is not None:
        notes.leave(f"max_gpus_per_user of {owner}: Slurm limits users by QOS (MaxTRESPerUser) or one by one")
    if quota.max_jobs is not None:
        notes.leave(f"max_jobs of {owner}: GrpSubmitJobs={quota.max_jobs} counts the same")
    if quota.per_job:
        notes.leave(f"per_job of {owner}: Slurm has least and most of a job by QOS (MinTRES, MaxTRESPerJob)")
    if quota.classes:
        notes.leave(f"limits of {owner} by class: Slurm has them for a whole QOS (GrpTRES, MaxJobs)")
    if quota.refuses:
        notes.leave(f"on_limit of {owner}: Slurm refuses by QOS (Flags=DenyOnLimit)")
    if quota.max_cpu_milli is not None or quota.max_memory_mib is not None:
        notes.leave(
            f"max_cpus and max_memory of {owner}: Slurm counts what it allots, the yard what jobs name "
            "(GrpTRES=cpu=…,mem=…)"
        )
    if tenant.budget is not None:
        hours = tenant.budget.gpu_ms // 3_600_000
        notes.leave(
            f"budget of {owner}: GrpTRESMins=gres/gpu={hours * 60} is near, but it fades with PriorityDecayHalfLife"
        )
    strange = [model for model in quota.limit if model != TOTAL and model not in kinds]
    if strange:
        notes.leave(f"limit of {owner} for {', '.join(strange)}: the cluster has none")
    limits = [_tres("gres/gpu", quota.limit.get(TOTAL), owner, notes)]
    limits += [
        _tres(f"gres/gpu:{kind}", quota.limit.get(model), owner, notes) for model, kind in kinds.items()
    ]
    per_job = _tres("gres/gpu", quota.max_gpus_per_job, owner, notes)
    jobs = -1 if quota.max_running_jobs is None else quota.max_running_jobs
    return f"fairshare={tenant.weight} GrpTRES={','.join(limits)} MaxTRESPerJob={per_job} GrpJobs={jobs}"


def _tres(name: str, milli: int | None, owner: str, notes: Notes) -> str:
    """A limit; -1 takes away one that is there."""
    if milli is None:
        return f"{name}=-1"
    if milli % MILLI:
        notes.guess(f"a limit of {owner} is cut to whole GPUs")
    return f"{name}={milli // MILLI}"


# -- QOS -----------------------------------------------------------------------------------------------------------


def _qos(config: Config, notes: Notes) -> list[str]:
    classes = config.settings.classes
    lowest = min(0, *[klass.priority for klass in classes])
    if lowest < 0:
        notes.guess(f"priorities are raised by {-lowest}: Slurm has none below 0")
    lines = [f"add qos {klass.name}" for klass in classes]
    for klass in classes:
        lines.append(
            f"change qos where name={klass.name} set priority={klass.priority - lowest} "
            f"gracetime={_whole_s(klass.grace_ms, klass, notes)} "
            f"maxwall={_wall(klass, notes)} "
            f"preemptmode={'requeue' if klass.preemptible else 'cluster'} "
            f"preemptexempttime={duration_text(klass.min_run_ms)}"
        )
        if klass.preemptible and klass.min_run_ms:
            notes.guess(
                "min_run doubles with each preemption that a job has suffered; PreemptExemptTime stays the same"
            )
    return lines + _preemption(classes)


def _preemption(classes: tuple[JobClass, ...]) -> list[str]:
    """What each class may preempt: all preemptible classes of lower priority.

    Once a list was emptied, slurmdbd 22.05 sees a loop in it until it is restarted. So no list is set to empty: what
    should not be there is taken away, last of all.
    """
    lines, last = [], []
    for klass in classes:
        victims = [each.name for each in classes if each.preemptible and each.priority < klass.priority]
        others = [each.name for each in classes if each is not klass]
        if victims:
            lines.append(f"change qos where name={klass.name} set preempt={','.join(victims)}")
        elif others:
            last.append(f"change qos where name={klass.name} set preempt-={','.join(others)}")
    said = "# If Slurm sees a loop of preemption where there is none, restart slurmdbd and run this again."
    return [said, *lines, *last] if lines or last else []


def _whole_s(value_ms: int, klass: JobClass, notes: Notes) -> int:
    if value_ms % 1000:
        notes.guess(f"the grace of class {quote(klass.name)} is rounded up to seconds")
    return -(-value_ms // 1000)


def _wall(klass: JobClass, notes: Notes) -> str:
    """Slurm counts limits in minutes."""
    if klass.limit_ms >= NO_LIMIT_MS:
        return "-1"
    rounded = -(-klass.limit_ms // MINUTE_MS) * MINUTE_MS
    if rounded != klass.limit_ms:
        notes.guess(f"the limit of class {quote(klass.name)} is rounded up to minutes")
    return duration_text(rounded)
