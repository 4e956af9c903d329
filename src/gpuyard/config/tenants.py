"""From the flat list of tenants in the file to the tree, with promises that can be kept.

A guarantee is a promise, so it is checked: the guarantees of the tenants below a parent must fit in the parent's,
model by model and in sum, and those at the top must fit in the fleet.
"""

from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from itertools import pairwise
from typing import Any

from gpuyard.config import fleet
from gpuyard.config.percentages import build_amounts, check_percentages, in_gpus
from gpuyard.config.schema import NamedBudgetEntry, TenantEntry, YardFile
from gpuyard.core.quota.percentages import QUOTAS, Gpus
from gpuyard.errors import names_text, quote, suggest
from gpuyard.keys.findings import Findings
from gpuyard.keys.problems import Path
from gpuyard.model import Bounds, Budget, BudgetAction, ClassLimit, NamedBudget, Quota, Tenant
from gpuyard.model.settings import TOTAL
from gpuyard.model.units import MILLI
from gpuyard.quantities import decimal_text, memory_text
from gpuyard.wire.job_fields import PROJECT

DEPTH_MAX = 16
"""Levels of the tree. Every decision walks up from a leaf, and paths name every level."""

_CYCLE_SHOWN_MAX = 20

PER_JOB = ("gpus", "cpus", "memory")
"""What one job may ask for."""


def list_named_models(file: YardFile) -> Iterator[tuple[Path, str]]:
    """Every GPU model that a quota names, with its place."""
    for name, entry in (file.tenants or {}).items():
        for kind in QUOTAS:
            for model in getattr(entry, kind) or {}:
                if model != TOTAL:
                    yield ("tenants", name, kind, model), model


def check_tenants(file: YardFile, gpus: Gpus | None, models: Iterable[str], findings: Findings) -> None:
    """Refuse a list that is no tree, and guarantees that contradict each other or the fleet.

    `gpus` are those of the fleet by pool and model; None: an engine knows.
    """
    given = file.tenants or {}
    whole = _check_tree(given, findings)
    for name, each in given.items():
        _check_per_job(name, each, fleet.find_largest(file), findings)
    if not check_percentages(given, gpus, fleet.list_pools(file), findings):
        return
    tenants = {name: in_gpus(entry, gpus) for name, entry in given.items()}
    capacity_milli = {} if gpus is None else _sum_milli(gpus, models)
    for name, entry in tenants.items():
        _check_own(name, entry, findings)
    if not whole:
        return
    children: dict[str | None, list[str]] = {}
    for name, each in given.items():
        children.setdefault(each.parent, []).append(name)
    for parent, below in children.items():
        if parent is None:
            _check_fleet(tenants, below, capacity_milli, findings)
        else:
            _check_below(tenants, parent, below, capacity_milli.keys(), findings)


def _sum_milli(gpus: Gpus, models: Iterable[str]) -> dict[str, int]:
    """Milli-GPU of the whole fleet for every known model, and the sum under `total`."""
    capacity = dict.fromkeys((TOTAL, *models), 0)
    for (_pool, model), count in gpus.items():
        capacity[model] = capacity.get(model, 0) + count * MILLI
        capacity[TOTAL] += count * MILLI
    return capacity


def _check_tree(tenants: dict[str, TenantEntry], findings: Findings) -> bool:
    """Every parent exists, no tenant is above itself, no branch is too long. Whether all that holds."""
    sound = True
    level: dict[str, int] = {}
    for start in tenants:
        # A dict keeps the order of the way up and knows at once whether it came by here before.
        trail: dict[str, None] = {}
        here: str | None = start
        while here is not None and here in tenants and here not in level and here not in trail:
            trail[here] = None
            here = tenants[here].parent
        way = list(trail)
        if here is not None and here not in tenants:
            text = f"unknown tenant {quote(here)} as parent of {quote(way[-1])}"
            known = (name for name in tenants if name != way[-1])
            findings.at(("tenants", way[-1], "parent"), f"{text}; {suggest(here, known, 'tenants')}")
            sound = False
        elif here in trail:
            findings.at(("tenants", here, "parent"), _cycle_text(way[way.index(here) :]))
            sound = False
        above = level.get(here, 0) if here is not None else 0
        for step, name in enumerate(reversed(way), start=above + 1):
            level[name] = step
        if sound and above + len(way) > DEPTH_MAX:
            text = f"tenant {quote(start)} is more than {DEPTH_MAX} levels deep; that is the limit"
            findings.at(("tenants", start, "parent"), text)
            sound = False
    return sound


def _cycle_text(cycle: list[str]) -> str:
    shown = cycle if len(cycle) <= _CYCLE_SHOWN_MAX else [*cycle[:_CYCLE_SHOWN_MAX], "…"]
    return f"tenants form a cycle of parents: {' -> '.join([*shown, cycle[0]])}; remove one 'parent'"


def _promised_milli(guarantee: dict[str, int]) -> int:
    """The sum of a guarantee over all models."""
    return max(guarantee.get(TOTAL, 0), sum(milli for model, milli in guarantee.items() if model != TOTAL))


def _guaranteed_milli(entry: Quota, model: str) -> int:
    return _promised_milli(entry.guarantee) if model == TOTAL else entry.guarantee.get(model, 0)


def gpus_text(milli: int, model: str = TOTAL) -> str:
    """Milli-GPU as a person would say it: `1.5 GPUs`, `8 H100`."""
    count = decimal_text(milli, MILLI)
    return f"{count} GPU{'' if milli == MILLI else 's'}" if model == TOTAL else f"{count} {model}"


def _check_own(name: str, entry: Quota, findings: Findings) -> None:
    """One tenant's numbers against each other."""
    guarantee, limit = entry.guarantee, entry.limit
    owner = f"tenant {quote(name)}"
    promised = _promised_milli(guarantee)
    if TOTAL in guarantee and promised > guarantee[TOTAL]:
        text = f"{owner} is guaranteed {gpus_text(promised)} by model"
        total = f"but only {gpus_text(guarantee[TOTAL])} in total; raise the total"
        findings.at(("tenants", name, "guarantee", TOTAL), f"{text}, {total}")
    for model, most in limit.items():
        least = promised if model == TOTAL else guarantee.get(model, 0)
        if most < least:
            path = ("tenants", name, "limit", model)
            text = f"the limit of {owner}, {gpus_text(most, model)}, is below its guarantee"
            findings.at(path, f"{text}, {gpus_text(least, model)}; raise the limit or lower the guarantee")


def _check_per_job(name: str, entry: TenantEntry, largest: dict[str, int] | None, findings: Findings) -> None:
    """The bounds of one job against each other, and what each of its tasks gets against the largest node."""
    path: Path = ("tenants", name, "per_job")
    if entry.max_gpus_per_job is not None and _most_gpus(entry) is not None:
        text = f"tenant {quote(name)} has 'max_gpus_per_job' and 'max' of 'gpus' of 'per_job', which are the same"
        findings.at((*path, "gpus", "max"), f"{text}; remove one of them")
    for kind in PER_JOB if entry.per_job is not None else ():
        bounds = getattr(entry.per_job, kind)
        given = [(key, getattr(bounds, key)) for key in ("min", "default", "max") if bounds is not None]
        known = [(key, amount) for key, amount in given if amount is not None]
        for (low, least), (high, most) in pairwise(known):
            if least > most:
                text = f"{quote(low)} of {quote(kind)} of 'per_job' of tenant {quote(name)} is above {quote(high)}"
                findings.at((*path, kind, low), f"{text}; lower it, or raise {quote(high)}")
        default = dict(known).get("default", 0)
        if largest is not None and default > largest[kind]:
            noun = {"gpus": "GPUs", "cpus": "cores"}.get(kind, "of memory")
            has = memory_text(largest[kind]) if kind == "memory" else decimal_text(largest[kind], MILLI)
            text = (
                f"'default' of {quote(kind)} of 'per_job' of tenant {quote(name)} is more than any node has"
            )
            findings.at((*path, kind, "default"), f"{text}: the largest has {has} {noun}; lower it")


def _sums_milli(tenants: dict[str, Quota], names: list[str]) -> dict[str, int]:
    """The sum of these tenants' guarantees, by model and in total."""
    sums = {TOTAL: 0}
    for name in names:
        guarantee = tenants[name].guarantee
        sums[TOTAL] += _promised_milli(guarantee)
        for model, milli in guarantee.items():
            if model != TOTAL:
                sums[model] = sums.get(model, 0) + milli
    return sums


def _check_below(
    tenants: dict[str, Quota], parent: str, below: list[str], models: Set[str], findings: Findings
) -> None:
    """The guarantees of the tenants below one must fit in its own."""
    for model, milli in _sums_milli(tenants, below).items():
        own = _guaranteed_milli(tenants[parent], model)
        if milli > own and model in models:
            text = (
                f"the tenants below {quote(parent)} are guaranteed {gpus_text(milli, model)}, "
                f"but it has a guarantee of only {gpus_text(own, model)}; raise it or lower theirs"
            )
            path = ("tenants", parent, "guarantee", model)
            if tenants[parent].guarantee:
                findings.at(path, text)
            else:
                findings.at_key(path[:2], text)


def _check_fleet(
    tenants: dict[str, Quota], top: list[str], capacity_milli: dict[str, int], findings: Findings
) -> None:
    """The fleet must have what the tenants at the top are guaranteed. The first tenant beyond it is marked."""
    for model, milli in _sums_milli(tenants, top).items():
        # A model that is not known has been refused already.
        there = capacity_milli.get(model, milli)
        if milli <= there:
            continue
        parts, running, crossing = [], 0, ""
        for name in top:
            part = _guaranteed_milli(tenants[name], model)
            running += part
            if part:
                parts.append(f"{name} {decimal_text(part, MILLI)}")
            if running > there and not crossing:
                crossing = name
        text = (
            f"the tenants at the top are guaranteed {gpus_text(milli, model)} ({names_text(parts)}), "
            f"but the fleet has only {gpus_text(there, model)}; lower a guarantee or add nodes"
        )
        findings.at(("tenants", crossing, "guarantee", model), text)


def build_tenants(file: YardFile) -> tuple[Tenant, ...]:
    """The tenants by path, sorted, so that a parent comes before what is below it."""
    tenants = file.tenants or {}

    def path(name: str) -> str:
        parent = tenants[name].parent
        return name if parent is None else f"{path(parent)}/{name}"

    built = (
        Tenant(path(name), entry.weight or 1, _quota(entry), _budget(entry))
        for name, entry in tenants.items()
    )
    return tuple(sorted(built, key=lambda tenant: tenant.path.split("/")))


def _quota(entry: TenantEntry) -> Quota:
    quota = build_amounts(entry)
    guarantee = quota.guarantee
    if guarantee and TOTAL not in quota.percentages.get("guarantee", {}):
        # A promise of 16 H100 is one of 16 GPUs too. Without the total, `borrow: 8` would count from zero.
        guarantee = {TOTAL: _promised_milli(guarantee), **guarantee}
    return replace(
        quota,
        guarantee=guarantee,
        max_gpus_per_job=entry.max_gpus_per_job or _most_gpus(entry),
        max_gpus_per_user=entry.max_gpus_per_user,
        max_running_jobs=entry.max_running_jobs,
        max_cpu_milli=entry.max_cpus,
        max_memory_mib=entry.max_memory,
        max_jobs=entry.max_jobs,
        per_job=_per_job(entry),
        classes={
            klass: ClassLimit(given.limit, given.max_running_jobs)
            for klass, given in (entry.classes or {}).items()
        },
        refuses=entry.on_limit == "refuse",
    )


def _most_gpus(entry: TenantEntry) -> int | None:
    gpus = entry.per_job.gpus if entry.per_job is not None else None
    return gpus.max if gpus is not None else None


def _per_job(entry: TenantEntry) -> dict[str, Bounds]:
    """The bounds of one job that its tenant gives. The most GPUs are a quota of their own."""
    found = {}
    for kind in PER_JOB if entry.per_job is not None else ():
        given = getattr(entry.per_job, kind)
        if given is not None:
            most = None if kind == "gpus" else given.max
            found[kind] = Bounds(given.min or 0, given.default or 0, most)
    return {kind: bounds for kind, bounds in found.items() if bounds != Bounds()}


def _budget(entry: TenantEntry) -> Budget | None:
    return (
        None if entry.budget is None else Budget(gpu_ms=entry.budget.gpu_hours, window_ms=entry.budget.window)
    )


def check_class_limits(file: YardFile, classes: Set[str], findings: Findings) -> None:
    """Refuse limits of classes that there are not, and limits that limit nothing."""
    for name, entry in (file.tenants or {}).items():
        for klass, given in (entry.classes or {}).items():
            path: Path = ("tenants", name, "classes", klass)
            if klass not in classes:
                known = suggest(klass, sorted(classes), "classes")
                findings.at_key(path, f"unknown class {quote(klass)} of tenant {quote(name)}; {known}")
            elif given.limit is None and given.max_running_jobs is None:
                text = (
                    f"class {quote(klass)} of tenant {quote(name)} has neither 'limit' nor 'max_running_jobs'"
                )
                findings.at_key(path, f"{text}; give one of them, or remove the key")


def check_budgets(file: YardFile, paths: list[str], classes: Set[str], findings: Findings) -> None:
    """Refuse budgets of no amount or of two, of unknown jobs, and two of the same kind for the same jobs."""
    seen: dict[tuple[object, ...], str] = {}
    for name, entry in (file.budgets or {}).items():
        path: Path = ("budgets", name)
        owner = f"budget {quote(name)}"
        if (entry.gpu_hours is None) == (entry.usd is None):
            has = (
                "has neither 'gpu_hours' nor 'usd'" if entry.usd is None else "has both 'gpu_hours' and 'usd'"
            )
            findings.at_key(path, f"{owner} {has}; give one of them")
        if entry.tenant is not None and entry.tenant not in paths:
            known = suggest(entry.tenant, paths, "tenants") if paths else "the file has no tenants"
            findings.at((*path, "tenant"), f"unknown tenant {quote(entry.tenant)} of {owner}; {known}")
        if entry.klass is not None and entry.klass not in classes:
            known = suggest(entry.klass, sorted(classes), "classes")
            findings.at((*path, "class"), f"unknown class {quote(entry.klass)} of {owner}; {known}")
        rule = _named(name, entry)
        if entry.users == []:
            text = f"'users' of {owner} is empty; name at least one, or remove the key"
            findings.at((*path, "users"), text)
        what = (rule.tenant, rule.klass, rule.labels, rule.users, rule.micro_usd > 0, rule.window, rule.days)
        if what in seen:
            text = f"{owner} counts the same jobs over the same window as {quote(seen[what])}; remove one of them"
            findings.at_key(path, text)
        seen[what] = name


def build_budgets(file: YardFile) -> tuple[NamedBudget, ...]:
    """The named budgets, sorted by name."""
    return tuple([_named(name, entry) for name, entry in sorted((file.budgets or {}).items())])


def _named(name: str, entry: NamedBudgetEntry) -> NamedBudget:
    given: dict[str, Any] = {}
    if entry.window is not None:
        given["window"], given["days"] = entry.window
    if entry.action is not None:
        given["action"] = BudgetAction(entry.action)
    if entry.users is not None:
        given["users"] = tuple(sorted(set(entry.users)))
    if entry.warn_at is not None:
        given["warn_at"] = tuple(sorted(set(entry.warn_at)))
    return NamedBudget(
        name,
        gpu_ms=entry.gpu_hours or 0,
        micro_usd=entry.usd or 0,
        tenant=entry.tenant or "",
        klass=entry.klass or "",
        labels=tuple(
            sorted({**(entry.labels or {}), **({PROJECT: entry.project} if entry.project else {})}.items())
        ),
        **given,
    )
