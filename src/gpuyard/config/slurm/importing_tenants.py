"""Accounts and users as tenants: shares become weights, limits on GPUs become limits."""

import re
from collections.abc import Mapping
from typing import Any

from gpuyard.config.problems import quoted
from gpuyard.config.slurm.notes import Notes
from gpuyard.config.slurm.types import GpuTypes
from gpuyard.engines.slurm.accounting import Association
from gpuyard.engines.slurm.forms import whole
from gpuyard.engines.slurm.site import Site
from gpuyard.model.settings import TOTAL

ROOT = "root"
"""Slurm's account above all others, which is no tenant."""
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}"
_WINDOWS = {"DAILY": "1d", "WEEKLY": "7d", "MONTHLY": "30d"}


def own(site: Site) -> list[Association]:
    """Associations of this cluster, without those for one partition only."""
    named = [each for each in site.associations if each.cluster == site.name]
    return [each for each in named or site.associations if not each.partition]


def paths(site: Site) -> dict[str, str]:
    """The place of every account in the tree of tenants, by its name."""
    parents = {each.account: each.parent for each in own(site) if not each.user}
    found: dict[str, str] = {ROOT: ""}

    def path(account: str, below: frozenset[str] = frozenset()) -> str:
        if account not in found:
            parent = parents.get(account, "")
            above = path(parent, below | {account}) if parent and parent not in below else ""
            found[account] = f"{above}/{account}" if above else account
        return found[account]

    for account in parents:
        path(account)
    return found


def tenant_of(account: str, user: str, places: Mapping[str, str]) -> str:
    """The tenant of a job: its user below the place of its account."""
    above = places.get(account, account)
    return "/".join(part for part in (above, user) if part) or "slurm"


def tenants(site: Site, types: GpuTypes, notes: Notes) -> dict[str, Any]:
    """Entries of accounts, and of users who have more than the usual."""
    found: dict[str, Any] = {}
    accounts = {each.account: each for each in own(site) if not each.user}
    for account in accounts.values():
        if account.account != ROOT:
            found[account.account] = _entry(account, accounts.get(account.parent), site, types, notes)
        elif account.group_tres or account.group_jobs:
            notes.leave("limits of the account root: they hold for the whole cluster")
    for each in own(site):
        if not each.user:
            continue
        entry = _entry(each, accounts.get(each.account), site, types, notes)
        if each.account != ROOT:
            entry["parent"] = each.account
        if set(entry) <= {"parent"}:
            continue
        if each.user in found:
            notes.leave(
                f"shares and limits of user {quoted(each.user)} in account {quoted(each.account)}: "
                "the name is taken, by an account or by the user elsewhere"
            )
            continue
        found[each.user] = entry
    for place in [each for each in site.associations if each.partition]:
        notes.leave(f"association of {place.user or place.account} with partition {place.partition} alone")
    return found


def people(site: Site, notes: Notes) -> dict[str, Any]:
    """Users and their places, as `auth` has them."""
    places = paths(site)
    found: dict[str, Any] = {}
    for each in own(site):
        if not each.user or each.account == ROOT:
            continue
        if each.user in found:
            notes.leave(
                f"user {quoted(each.user)} is in several accounts: under auth stands "
                f"{found[each.user]['tenant']}, not {places[each.account]}"
            )
        elif re.fullmatch(_USER, each.user):
            found[each.user] = {"tenant": places[each.account]}
        else:
            notes.leave(f"user {quoted(each.user)}: no name that auth allows")
    return found


def _entry(
    each: Association, above: Association | None, site: Site, types: GpuTypes, notes: Notes
) -> dict[str, Any]:
    who = f"user {quoted(each.user)}" if each.user else f"account {quoted(each.account)}"
    entry: dict[str, Any] = {}
    if not each.user and each.parent not in ("", ROOT):
        entry["parent"] = each.parent
    if each.share is None:
        notes.leave(f"fairshare=parent of {who}: it gets weight 1")
    elif each.share == 0:
        notes.leave(f"fairshare=0 of {who}: it gets weight 1")
    elif each.share != 1:
        entry["weight"] = each.share
    limit = _gpus(each.group_tres, f"GrpTRES of {who}", types, notes)
    if limit:
        entry["limit"] = limit[TOTAL] if set(limit) == {TOTAL} else limit
    # Slurm shows a limit for each job on everybody below who inherits it.
    inherited = above.job_tres if above is not None else {}
    if each.job_tres != inherited:
        largest = _gpus(each.job_tres, f"MaxTRESPerJob of {who}", types, notes)
        if TOTAL in largest:
            entry["max_gpus_per_job"] = largest[TOTAL]
        elif largest:
            notes.leave(f"MaxTRESPerJob of {who} by type of GPU")
    if each.group_jobs is not None:
        entry["max_running_jobs"] = max(1, each.group_jobs)
    _budget(entry, each, who, site, notes)
    if each.max_jobs is not None and (above is None or each.max_jobs != above.max_jobs):
        notes.leave(f"MaxJobs {each.max_jobs} of {who}: jobs are limited for a tenant as a whole")
    if each.max_wall_ms and (above is None or each.max_wall_ms != above.max_wall_ms):
        notes.leave(f"MaxWall of {who}: classes limit the time")
    return entry


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
        found[name] = found.get(name, 0) + whole(value, what, 10**7)
    if others:
        notes.leave(f"{what}: {','.join(others)}; only GPUs are limited")
    return dict(sorted(found.items(), key=lambda pair: (pair[0] != TOTAL, pair[0])))


def _budget(entry: dict[str, Any], each: Association, who: str, site: Site, notes: Notes) -> None:
    """GPU-minutes that may be spent are a budget where Slurm counts them in windows, not where they fade."""
    minutes = each.group_minutes.get("gres/gpu")
    others = [f"{key}={value}" for key, value in each.group_minutes.items() if key != "gres/gpu"]
    if others:
        notes.leave(f"GrpTRESMins of {who}: {','.join(others)}; only GPU-hours are budgeted")
    if minutes is None:
        return
    window = _WINDOWS.get(site.setting("PriorityUsageResetPeriod").upper(), "")
    spent = whole(minutes, "GrpTRESMins", 10**12)
    if not window or not spent:
        notes.leave(f"GrpTRESMins gres/gpu={minutes} of {who}: Slurm lets it fade, a budget has a window")
        return
    hours, rest = divmod(spent, 60)
    text = f"{hours}.{rest * 1000 // 60:03d}".rstrip("0") if rest else hours
    if rest % 3:
        notes.guess(f"GrpTRESMins of {who}: {minutes} minutes are {text} hours, cut to a thousandth")
    entry["budget"] = {"gpu_hours": text, "window": window}
