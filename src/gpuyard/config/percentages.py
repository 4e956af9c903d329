"""Quotas in percent, as far as a file can be checked: known pools, a part of something, no more than all of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuyard.config.schema import TenantEntry
from gpuyard.core.quota.percentages import (
    HUNDRED_PERCENT_MILLI,
    QUOTAS,
    Gpus,
    base_of,
    percentage_text,
    resolve,
)
from gpuyard.errors import names_text, quote, suggest
from gpuyard.keys.findings import Findings
from gpuyard.model import Percentage, Quota
from gpuyard.model.settings import TOTAL


def build_amounts(entry: TenantEntry) -> Quota:
    """The amounts of a tenant's quota: numbers, and percentages."""
    amounts: dict[str, Any] = {}
    percentages: dict[str, dict[str, Percentage]] = {}
    for kind in QUOTAS:
        given = (getattr(entry, kind) or {}).items()
        amounts[kind] = {key: amount for key, amount in given if not isinstance(amount, Percentage)}
        if parts := {key: part for key, part in given if isinstance(part, Percentage)}:
            percentages[kind] = parts
    return Quota(**amounts, percentages=percentages)


def in_gpus(entry: TenantEntry, gpus: Gpus | None) -> Quota:
    """The same in GPUs alone; where the fleet is not known yet, without percentages."""
    return resolve(build_amounts(entry), gpus or {})


def check_percentages(
    tenants: Mapping[str, TenantEntry],
    gpus: Gpus | None,
    pools: Sequence[str] | None,
    findings: Findings,
) -> bool:
    """Refuse percentages of nothing, and guarantees of more than all. Whether there were none."""
    sound = True
    for name, kind, key, part in _percentages(tenants):
        path = ("tenants", name, kind, key)
        if part.pool and pools is not None and part.pool not in pools:
            text = f"unknown pool {quote(part.pool)} in {quote(kind)} of tenant {quote(name)}"
            findings.at(path, f"{text}; {suggest(part.pool, pools, 'pools')}")
            sound = False
        elif gpus is not None and part.percent_milli and not base_of(part, key, gpus):
            what = _base_text(part.pool)
            lacks = "has no GPUs" if key == TOTAL else f"has no {key}"
            text = f"{quote(kind)} of tenant {quote(name)} is {percentage_text(part)}, and {what} {lacks}"
            findings.at(path, f"{text}: that would be nothing; add nodes first, or give a number")
            sound = False
    return _check_sums(tenants, gpus is not None, findings) and sound


def _percentages(tenants: Mapping[str, TenantEntry]) -> Iterator[tuple[str, str, str, Percentage]]:
    for name, entry in tenants.items():
        for kind, parts in build_amounts(entry).percentages.items():
            for key, part in parts.items():
                yield name, kind, key, part


def _base_text(pool: str) -> str:
    """What it is a part of, where it has none."""
    return f"pool {quote(pool)}" if pool else "the fleet"


def _check_sums(tenants: Mapping[str, TenantEntry], numbered: bool, findings: Findings) -> bool:
    """Tenants below one parent are guaranteed no more than 100% of anything.

    Where the fleet is not known yet (`numbered` is False), also no more percent than their parent.
    """
    shares: dict[tuple[str | None, str, str], dict[str, int]] = {}
    for name, kind, key, part in _percentages(tenants):
        if kind == "guarantee":
            members = shares.setdefault((tenants[name].parent, key, part.pool), {})
            members[name] = part.percent_milli
    sound = True
    for (parent, key, pool), members in shares.items():
        most, owner = HUNDRED_PERCENT_MILLI, "that is more than there is"
        if parent is not None and parent in tenants and not numbered:
            own = build_amounts(tenants[parent]).percentages.get("guarantee", {}).get(key)
            if own is not None and own.pool == pool:
                most = own.percent_milli
                owner = f"{quote(parent)} itself is guaranteed {percentage_text(Percentage(most))}"
        total, crossing = 0, ""
        for name, milli in members.items():
            total += milli
            crossing = crossing or (name if total > most else "")
        if not crossing:
            continue
        parts = [f"{name} {percentage_text(Percentage(milli))}" for name, milli in members.items()]
        siblings = f"the tenants below {quote(parent)}" if parent else "the tenants at the top"
        of = f"the {key} of {_base_text(pool)}" if key != TOTAL else f"the GPUs of {_base_text(pool)}"
        text = f"{siblings} are guaranteed {percentage_text(Percentage(total))} of {of} ({names_text(parts)})"
        findings.at(("tenants", crossing, "guarantee", key), f"{text}, and {owner}; lower one of them")
        sound = False
    return sound
