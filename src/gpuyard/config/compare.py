"""Compares two configurations: what is added, removed or changed, in the notation of the file.

It compares what the settings say, not how a file says it: a comment, the order of keys or a default that is written
out make no difference.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from gpuyard.config.values import Access, Account, Oidc
from gpuyard.core.quota.percentages import QUOTAS, percentage_text
from gpuyard.engines.name_lists import fold_names
from gpuyard.ledger.prices import price_text
from gpuyard.ledger.units import day_text
from gpuyard.model import (
    Bounds,
    Budget,
    ClassLimit,
    GpuReserve,
    JobClass,
    NamedBudget,
    NodeMarks,
    PolicySpec,
    Settings,
    Tenant,
)
from gpuyard.model.settings import TOTAL
from gpuyard.model.units import HOUR_MS, MICRO_USD, MILLI, NO_LIMIT_MS
from gpuyard.model.walls import Wall
from gpuyard.policies.registry import find_gangs
from gpuyard.quantities import decimal_text, duration_text, kept_text, memory_text, percent_text

_NO_LIMIT = "no limit"
_EVERYBODY = "everybody"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. Nothing before: it was added; nothing after: it was removed."""

    kind: str
    """`tenant`, `class`, `price`, `market`, `region`, `wall`, `nodes`, `GPU model`, `partition`, `account`, `QOS`,
    `policy`,
    `setting`, `user` or `auth`."""
    name: str
    """The tenant's path or the class that it is about; empty where there is only one."""
    key: str
    """The key that changed; empty: the whole entry."""
    before: str
    after: str

    @property
    def what(self) -> str:
        """`added`, `removed` or `changed`."""
        if not self.key and not self.before:
            return "added"
        return "removed" if not self.key and not self.after else "changed"


def compare(before: Settings, after: Settings) -> list[Change]:
    """What changes from one to the other, section by section, sorted by name."""
    return [
        *_entries("tenant", _by(before.tenants, "path"), _by(after.tenants, "path"), _tenant),
        *_entries("class", _by(before.classes, "name"), _by(after.classes, "name"), _klass),
        *_entries("GPU model", _by(before.gpu_models, "name"), _by(after.gpu_models, "name"), _model),
        *_entries("price", before.prices, after.prices, lambda micro: {"": f"{_usd(micro)} USD/h"}),
        *_entries("price", _book(before), _book(after), lambda text: {"": text}),
        *_entries("market", before.markets, after.markets, lambda market: {"": market}),
        *_entries("region", before.regions, after.regions, lambda region: {"": region}),
        *_entries("nodes", _marked(before), _marked(after), _marks),
        *_entries("reserve", before.reserves, after.reserves, _reserve),
        *_entries("wall", before.walls, after.walls, _wall),
        *_parts("policy", "", _policy(before.policy), _policy(after.policy)),
        *_entries(
            "share weight", before.share_weights, after.share_weights,
            lambda milli: {"": f"{decimal_text(milli, MILLI)} USD/h"},
        ),
        *_entries("budget", _by(before.budgets, "name"), _by(after.budgets, "name"), _named_budget),
        *_entries("partition", before.partitions, after.partitions, lambda pools: {"": ", ".join(pools)}),
        *_entries("account", before.accounts, after.accounts, lambda tenant: {"": tenant}),
        *_entries("QOS", before.qos, after.qos, lambda klass: {"": klass}),
        *_parts("setting", "", _rest(before), _rest(after)),
    ]  # fmt: skip


def compare_people(before: Access, after: Access) -> list[Change]:
    """The same for `auth`: people, tokens, login and limits."""
    return [
        *_entries("user", before.users, after.users, _account),
        *_parts("auth", "", _tokens(before), _tokens(after)),
        *_parts("auth", "limits", _plain(before.limits), _plain(after.limits)),
        *_parts("auth", "oidc", _login(before.oidc), _login(after.oidc)),
    ]


def _account(account: Account) -> dict[str, str]:
    return {
        "role": account.role,
        "tenant": account.tenant or "the whole yard",
        "unix": account.unix or "none",
        "default_tenant": account.default_tenant or "none",
    }


def _tokens(access: Access) -> dict[str, str]:
    return {
        "token_lifetime": duration_text(access.token_ms),
        "token_lifetime_max": duration_text(access.token_ms_max),
        "uid_min": str(access.uid_min),
    }


def _login(oidc: Oidc | None) -> dict[str, str]:
    if oidc is None:
        return {}
    groups = {
        f"group {name}": f"{group.role} of {group.tenant or 'the whole yard'}"
        for name, group in oidc.groups.items()
    }
    return {**{key: text for key, text in _plain(oidc).items() if key != "groups"}, **groups}


def _plain(value: Any) -> dict[str, str]:
    return {field.name: str(getattr(value, field.name)) for field in fields(value)}


def _by(values: tuple[Any, ...], key: str) -> dict[str, Any]:
    return {getattr(value, key): value for value in values}


def _entries(
    kind: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    texts: Callable[[Any], dict[str, str]],
) -> Iterator[Change]:
    for name in sorted({*before, *after}):
        if name not in before:
            yield Change(kind, name, "", "", _told(texts(after[name])))
        elif name not in after:
            yield Change(kind, name, "", _told(texts(before[name])), "")
        else:
            yield from _parts(kind, name, texts(before[name]), texts(after[name]))


def _parts(kind: str, name: str, before: dict[str, str], after: dict[str, str]) -> Iterator[Change]:
    for key in dict.fromkeys((*before, *after)):
        # A key that only one entry has (a quota for a GPU model) has its default in the other.
        empty = _WITHOUT.get(key.partition(" ")[0], "none")
        old, new = before.get(key, empty), after.get(key, empty)
        if old != new:
            yield Change(kind, name, key, old, new)


def _told(texts: dict[str, str]) -> str:
    """A whole entry in one line, without the defaults."""
    said = [
        f"{key} {text}".strip()
        for key, text in texts.items()
        if text != _WITHOUT.get(key.partition(" ")[0]) and text not in ("", "none")
    ]
    return ", ".join(said) or "all defaults"


_WITHOUT = {
    "weight": "1",
    "guarantee": "0",
    "limit": _NO_LIMIT,
    "borrow": _NO_LIMIT,
    "lend": "all",
    "max_gpus_per_job": _NO_LIMIT,
    "max_gpus_per_user": _NO_LIMIT,
    "max_running_jobs": _NO_LIMIT,
    "max_jobs": _NO_LIMIT,
    "max_cpus": _NO_LIMIT,
    "on_limit": "wait",
    "per_job": "anything",
    "classes": _NO_LIMIT,
    "max_memory": _NO_LIMIT,
    "budget": _NO_LIMIT,
    "tenants": _EVERYBODY,
    "time_limit": _NO_LIMIT,
    "max_nodes_per_job": _NO_LIMIT,
}
"""What holds for a key that is left out."""


def _tenant(tenant: Tenant) -> dict[str, str]:
    quota = tenant.quota
    texts = {"weight": str(tenant.weight)}
    for key in QUOTAS:
        amounts: dict[str, int] = getattr(quota, key)
        models = {model: milli for model, milli in amounts.items() if model != TOTAL}
        # A guarantee by model has its sum as total, which the file need not say.
        derived = key == "guarantee" and models and amounts.get(TOTAL) == sum(models.values())
        said = {model: _gpus(milli) for model, milli in amounts.items() if model != TOTAL or not derived}
        said |= {model: percentage_text(part) for model, part in quota.percentages.get(key, {}).items()}
        if TOTAL in said:
            texts[key] = said.pop(TOTAL)
        elif key != "guarantee" or not said:
            texts[key] = _WITHOUT[key]
        for model in sorted(said):
            texts[f"{key} {model}"] = said[model]
    for key in ("max_gpus_per_job", "max_gpus_per_user"):
        most = getattr(quota, key)
        texts[key] = _NO_LIMIT if most is None else _gpus(most)
    texts["max_running_jobs"] = _NO_LIMIT if quota.max_running_jobs is None else str(quota.max_running_jobs)
    texts["max_jobs"] = _NO_LIMIT if quota.max_jobs is None else str(quota.max_jobs)
    for klass, given in sorted(quota.classes.items()):
        texts[f"classes {klass}"] = class_limit_text(given)
    texts["on_limit"] = "refuse" if quota.refuses else "wait"
    for kind, bounds in sorted(quota.per_job.items()):
        texts[f"per_job {kind}"] = bounds_text(kind, bounds)
    texts["max_cpus"] = _NO_LIMIT if quota.max_cpu_milli is None else decimal_text(quota.max_cpu_milli, MILLI)
    texts["max_memory"] = _NO_LIMIT if quota.max_memory_mib is None else memory_text(quota.max_memory_mib)
    texts["budget"] = _NO_LIMIT if tenant.budget is None else _budget(tenant.budget)
    return texts


def class_limit_text(given: ClassLimit) -> str:
    """The limits of a class in the notation of the file: `limit 2, max_running_jobs 1`."""
    limit = [] if given.milli is None else [f"limit {_gpus(given.milli)}"]
    return ", ".join([*limit, *([] if given.running is None else [f"max_running_jobs {given.running}"])])


def bounds_text(kind: str, bounds: Bounds) -> str:
    """Bounds of one job in the notation of the file: `min 1, default 1, max 2`."""

    def text(amount: int) -> str:
        return memory_text(amount) if kind == "memory" else decimal_text(amount, MILLI)

    given = (("min", bounds.least), ("default", bounds.default), ("max", bounds.most))
    return ", ".join([f"{name} {text(amount)}" for name, amount in given if amount])


def _reserve(reserve: GpuReserve) -> dict[str, str]:
    return {
        "cpus": decimal_text(reserve.cpu_milli, MILLI),
        "memory": memory_text(reserve.memory_mib),
    }


def _gpus(milli: int) -> str:
    return decimal_text(milli, MILLI)


def _budget(budget: Budget) -> str:
    hours = decimal_text(budget.gpu_ms, HOUR_MS)
    return f"{hours} GPU-hour{'' if hours == '1' else 's'} in {duration_text(budget.window_ms)}"


def _named_budget(budget: NamedBudget) -> dict[str, str]:
    usd, hours = decimal_text(budget.micro_usd, MICRO_USD), decimal_text(budget.gpu_ms, HOUR_MS)
    rolls = f"{budget.days}d, rolling" if budget.days else budget.window.value
    return {
        "amount": f"{usd} USD" if budget.micro_usd else f"{hours} GPU-hours",
        "window": rolls,
        "tenant": budget.tenant or "none",
        "class": budget.klass or "none",
        "labels": ", ".join([f"{key}={value}" for key, value in budget.labels]) or "none",
        "users": ", ".join(budget.users) or _EVERYBODY,
        "action": budget.action.value,
        "warn_at": ", ".join([percent_text(part) for part in budget.warn_at]) or "none",
    }


def _klass(klass: JobClass) -> dict[str, str]:
    return {
        "priority": str(klass.priority),
        "preemptible": _yes(klass.preemptible),
        "limit": _NO_LIMIT if klass.limit_ms >= NO_LIMIT_MS else duration_text(klass.limit_ms),
        "min_run": duration_text(klass.min_run_ms),
        "grace": duration_text(klass.grace_ms),
        "tenants": ", ".join(klass.tenants) or ("none" if klass.users else _EVERYBODY),
        "users": ", ".join(klass.users) or "none",
    }


def _wall(wall: Wall) -> dict[str, str]:
    texts = {
        f"{key} {kind}": ", ".join(getattr(askers, kind)) or "none"
        for key, askers in (("allow", wall.allow), ("deny", wall.deny))
        for kind in ("tenants", "users", "groups", "classes")
    }
    return texts | {
        "time_limit": duration_text(wall.time_limit_ms) if wall.time_limit_ms else _NO_LIMIT,
        "default_time": duration_text(wall.default_time_ms) if wall.default_time_ms else "none",
        "max_nodes_per_job": str(wall.max_nodes_per_job or _NO_LIMIT),
        "min_gpus_per_job": _gpus(wall.min_gpu_milli) if wall.min_gpu_milli else "none",
        "priority": str(wall.priority or "none"),
        "preemptible": "none" if wall.preemptible else "false",
    }


def _model(model: Any) -> dict[str, str]:
    texts = {field.name: getattr(model, field.name) for field in fields(model) if field.name != "name"}
    price = texts.pop("list_price_micro_usd_h")
    return {**{key: str(value) for key, value in texts.items()}, "price": f"{_usd(price)} USD/h"}


def _book(settings: Settings) -> dict[str, str]:
    """The prices with a history, each by what it is for and its days."""
    return {
        price_text(price)
        + (f" from {day_text(price.from_day)}" if price.from_day else "")
        + (
            f" until {day_text(price.until_day)}" if price.until_day else ""
        ): f"{_usd(price.micro_usd_h)} USD/h"
        + (f" and {_usd(price.micro_usd_kwh)} USD/kWh" if price.micro_usd_kwh else "")
        for price in settings.price_book
    }


def _marked(settings: Settings) -> dict[str, NodeMarks]:
    """Labels and taints by the nodes that have them."""
    return {
        f"{marks.cluster}{f'/{marks.pool}' if marks.pool else ''}"
        f"{f' {fold_names(marks.nodes)}' if marks.nodes else ''}": marks
        for marks in settings.marks
    }


def _marks(marks: NodeMarks) -> dict[str, str]:
    return {
        **{f"label {key}": value or "(no value)" for key, value in marks.labels},
        **{f"taint {taint.key}:{taint.effect.value}": taint.value or "(no value)" for taint in marks.taints},
    }


def _usd(micro: int) -> str:
    return decimal_text(micro, MICRO_USD)


def _policy(policy: PolicySpec) -> dict[str, str]:
    return {
        "name": policy.name,
        "order": ", ".join(policy.order),
        "placement": policy.placement,
        "backfill": policy.backfill,
        "backfill_depth": str(policy.backfill_depth),
        "depth_per_tenant": str(policy.depth_per_tenant),
        "preemption": ", ".join(policy.preemption) or "none",
        "quotas": _yes(policy.quotas),
        "gangs": find_gangs(policy) or (duration_text(policy.turn_ms) if policy.turn_ms else "none"),
        "clusters": ", ".join([f"{c.cluster} {c.preference}:{c.weight}" for c in policy.clusters]) or "none",
    }


def _rest(settings: Settings) -> dict[str, str]:
    return {
        "default_class": settings.default_class,
        "half_life": duration_text(settings.half_life_ms),
        "period": duration_text(settings.period_ms),
        "earmark": duration_text(settings.earmark_ms),
        "whole_gpus": str(settings.whole_gpus),
        "attempts_per_user": str(settings.attempts_per_user or _NO_LIMIT),
        "attempts_per_node": str(settings.attempts_per_node or _NO_LIMIT),
        "waiting_per_user": str(settings.waiting_per_user or _NO_LIMIT),
        "recipes_per_user": memory_text(settings.recipes_mib_per_user)
        if settings.recipes_mib_per_user
        else _NO_LIMIT,
        "mps_users": settings.mps_users,
        **{f"count_quotas {name}": _yes(counts) for name, counts in settings.observed.items()},
        **{
            f"retention {kind}": kept_text(getattr(settings.retention, f"{kind}_ms"))
            for kind in ("environments", "scripts", "logs", "folders", "images")
        },
    }


def _yes(value: bool) -> str:
    return str(value).lower()
