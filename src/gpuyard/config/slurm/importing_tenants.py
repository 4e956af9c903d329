"""Accounts and users as tenants: shares become weights, limits on GPUs become limits."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuyard.engines.slurm.site.accounts import Association
from gpuyard.engines.slurm.site.gpu_types import GpuTypes
from gpuyard.engines.slurm.site.names import choose_names, tell
from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.engines.slurm.site.site import SlurmSite
from gpuyard.engines.slurm.words.forms import parse_whole
from gpuyard.errors import quote
from gpuyard.model.settings import TOTAL
from gpuyard.quantities import GPU_HOURS_MAX, duration_text

ROOT = "root"
"""Slurm's account above all others, which is no tenant."""
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}"
COUNT_MAX = 1_000_000
"""The largest weight, and the largest number of jobs, that the file takes."""
_WINDOWS = {"DAILY": "1d", "WEEKLY": "7d", "MONTHLY": "30d"}


def own(site: SlurmSite) -> list[Association]:
    """Associations of this cluster, without those for one partition only."""
    here = [each for each in site.associations if each.cluster == site.name]
    return [each for each in here or site.associations if not each.partition]


@dataclass(frozen=True, slots=True)
class Places:
    """Where accounts and users are in the tree of tenants."""

    names: Mapping[str, str]
    """The name of each account and each user in the file: one list, as tenants are one list."""
    paths: Mapping[str, str]
    """The place of every account, by Slurm's name for it."""


def find_places(site: SlurmSite) -> Places:
    """The places of a site, always the same for the same site."""
    names = choose_names(
        [each.account for each in own(site)] + [each.user for each in own(site) if each.user]
    )
    parents = {each.account: each.parent for each in own(site) if not each.user}
    found: dict[str, str] = {ROOT: ""}

    def path(account: str, below: frozenset[str] = frozenset()) -> str:
        if account not in found:
            parent = parents.get(account, "")
            known = parent in parents and parent not in below
            above = path(parent, below | {account}) if known else ""
            name = names.get(account, account)
            found[account] = f"{above}/{name}" if above else name
        return found[account]

    for account in parents:
        path(account)
    return Places(names, found)


def find_tenant(account: str, user: str, places: Places) -> str:
    """The tenant of a job: its user below the place of its account."""
    above = places.paths.get(account, account)
    return "/".join(part for part in (above, places.names.get(user, user)) if part) or "slurm"


def import_tenants(site: SlurmSite, types: GpuTypes, notes: Notes) -> dict[str, Any]:
    """Entries for accounts, and for users with settings of their own."""
    found: dict[str, Any] = {}
    names = find_places(site).names
    accounts = {each.account: each for each in own(site) if not each.user}
    for account in accounts.values():
        if account.account != ROOT:
            name = tell("account", account.account, names[account.account], notes)
            below = account.parent in accounts and account.parent != ROOT
            found[name] = {"parent": names[account.parent]} if below else {}
            found[name] |= _entry(account, accounts.get(account.parent), site, types, notes)
        elif said := _limits(account):
            notes.leave(f"limits of the account root ({said}): they hold for the whole cluster")
    for each in own(site):
        if not each.user:
            continue
        if each.account not in accounts:
            notes.leave(f"user {quote(each.user)} is in account {quote(each.account)}, which is not listed")
            continue
        name = tell("user", each.user, names[each.user], notes)
        entry: dict[str, Any] = {} if each.account == ROOT else {"parent": names[each.account]}
        entry |= _entry(each, accounts.get(each.account), site, types, notes)
        if set(entry) <= {"parent"}:
            continue
        if name in found:
            notes.leave(
                f"shares and limits of user {quote(each.user)} in account {quote(each.account)}: "
                "the name is taken, by an account or by the user elsewhere"
            )
            continue
        found[name] = entry
    for place in [each for each in site.associations if each.partition]:
        notes.leave(f"association of {place.user or place.account} with partition {place.partition} alone")
    return found


def import_people(site: SlurmSite, notes: Notes) -> dict[str, Any]:
    """Users and their places, as `auth` has them."""
    places = find_places(site).paths
    found: dict[str, Any] = {}
    for each in own(site):
        if not each.user or each.account == ROOT or each.account not in places:
            continue
        if each.user in found:
            notes.leave(
                f"user {quote(each.user)} is in several accounts: under auth stands "
                f"{found[each.user]['tenant']}, not {places[each.account]}"
            )
        elif re.fullmatch(_USER, each.user):
            found[each.user] = {"tenant": places[each.account]}
        else:
            notes.leave(f"user {quote(each.user)}: no name that auth allows")
    return found


def _entry(
    each: Association, above: Association | None, site: SlurmSite, types: GpuTypes, notes: Notes
) -> dict[str, Any]:
    """The settings of an account or a user, except for its place."""
    owner = f"user {quote(each.user)}" if each.user else f"account {quote(each.account)}"
    entry: dict[str, Any] = {}
    if each.share is None:
        notes.leave(f"fairshare=parent of {owner}: it gets weight 1")
    elif each.share == 0:
        notes.leave(f"fairshare=0 of {owner}: it gets weight 1")
    elif each.share > COUNT_MAX:
        notes.guess(f"fairshare={each.share} of {owner}: its weight is {COUNT_MAX}, the largest there is")
        entry["weight"] = COUNT_MAX
    elif each.share != 1:
        entry["weight"] = each.share
    limit = _gpus(each.group_tres, f"GrpTRES of {owner}", types, notes)
    # Slurm shows a limit per job on every association that inherits it.
    inherited = above.job_tres if above is not None else {}
    if each.job_tres != inherited:
        largest = _gpus(each.job_tres, f"MaxTRESPerJob of {owner}", types, notes)
        if largest.get(TOTAL) == 0:
            # No job may have a GPU: that is a limit of none.
            limit = {TOTAL: 0}
        elif TOTAL in largest:
            entry["max_gpus_per_job"] = largest[TOTAL]
        if set(largest) - {TOTAL}:
            notes.leave(f"MaxTRESPerJob of {owner} by type of GPU")
    if each.group_jobs == 0:
        notes.leave(
            f"GrpJobs 0 of {owner}: it may run nothing; here it may have no GPU, and jobs without may run"
        )
        limit = {TOTAL: 0}
    elif each.group_jobs is not None and each.group_jobs > COUNT_MAX:
        notes.leave(f"GrpJobs {each.group_jobs} of {owner}: more than can be said, and so no limit")
    elif each.group_jobs is not None:
        entry["max_running_jobs"] = each.group_jobs
    if limit:
        entry["limit"] = limit[TOTAL] if set(limit) == {TOTAL} else limit
    _budget(entry, each, owner, site, notes)
    _leave(each, above, owner, notes)
    return entry


def _leave(each: Association, above: Association | None, owner: str, notes: Notes) -> None:
    """Limits that the file has no word for."""
    if each.max_jobs is not None and (above is None or each.max_jobs != above.max_jobs):
        notes.leave(f"MaxJobs {each.max_jobs} of {owner}: jobs are limited for a tenant as a whole")
    if each.max_wall_ms and (above is None or each.max_wall_ms != above.max_wall_ms):
        notes.leave(f"MaxWall of {owner}: classes limit the time")
    for name, value in each.kept.items():
        inherited = name.startswith("Max") and above is not None and above.kept.get(name) == value
        if not inherited:
            notes.leave(f"{name} {value} of {owner}: a tenant has no such limit")


def _limits(each: Association) -> str:
    """All limits that are set, by Slurm's names."""
    found = {
        "GrpTRES": ",".join(f"{key}={value}" for key, value in each.group_tres.items()),
        "GrpTRESMins": ",".join(f"{key}={value}" for key, value in each.group_minutes.items()),
        "GrpJobs": "" if each.group_jobs is None else str(each.group_jobs),
        "MaxTRESPerJob": ",".join(f"{key}={value}" for key, value in each.job_tres.items()),
        "MaxJobs": "" if each.max_jobs is None else str(each.max_jobs),
        "MaxWall": duration_text(each.max_wall_ms) if each.max_wall_ms else "",
        **each.kept,
    }
    return ", ".join(f"{name} {value}" for name, value in found.items() if value)


def _gpus(limits: Mapping[str, str], what: str, types: GpuTypes, notes: Notes) -> dict[str, int]:
    """GPUs in total and by model."""
    found: dict[str, int] = {}
    others = []
    for key, value in limits.items():
        kind, _, gpu_type = key.partition(":")
        if kind != "gres/gpu":
            others.append(f"{key}={value}")
            continue
        name = types.model(gpu_type, notes) if gpu_type else TOTAL
        found[name] = found.get(name, 0) + parse_whole(value, what, 10**7)
    if others:
        notes.leave(f"{what}: {','.join(others)}; only GPUs are limited")
    return dict(sorted(found.items(), key=lambda pair: (pair[0] != TOTAL, pair[0])))


def _budget(entry: dict[str, Any], each: Association, owner: str, site: SlurmSite, notes: Notes) -> None:
    """A limit on GPU-minutes becomes a budget where Slurm counts them in windows, not where they decay."""
    minutes = each.group_minutes.get("gres/gpu")
    others = [f"{key}={value}" for key, value in each.group_minutes.items() if key != "gres/gpu"]
    if others:
        notes.leave(f"GrpTRESMins of {owner}: {','.join(others)}; only GPU-hours are budgeted")
    if minutes is None:
        return
    window = _WINDOWS.get(site.setting("PriorityUsageResetPeriod").upper(), "")
    spent = parse_whole(minutes, "GrpTRESMins", 10**12)
    if not window or not spent:
        why = "Slurm lets it fade, a budget has a window" if spent else "a budget of nothing cannot be said"
        notes.leave(f"GrpTRESMins gres/gpu={minutes} of {owner}: {why}")
        return
    if spent > GPU_HOURS_MAX * 60:
        notes.leave(f"GrpTRESMins gres/gpu={minutes} of {owner}: more than can be said, and so no budget")
        return
    hours, rest = divmod(spent, 60)
    text = f"{hours}.{rest * 1000 // 60:03d}".rstrip("0") if rest else hours
    if rest % 3:
        notes.guess(f"GrpTRESMins of {owner}: {minutes} minutes are {text} hours, cut to a thousandth")
    entry["budget"] = {"gpu_hours": text, "window": window}
