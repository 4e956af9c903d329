"""Quotas in percent: of the GPUs of nodes that exist, up or down, of the fleet, a model or a pool; rounded down.

A percentage stays one in the settings and becomes a number here, when fleet or settings change. A node that goes down
exists, so it changes no quota and stops no job.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuyard.model import Percentage, Quota
from gpuyard.model.settings import TOTAL
from gpuyard.model.units import MILLI
from gpuyard.quantities import decimal_text

Gpus = Mapping[tuple[str, str], int]
"""GPUs of nodes that exist, by pool and GPU model."""

QUOTAS = ("guarantee", "limit", "borrow", "lend")
"""What of a quota is an amount of GPUs, in total or by model."""

HUNDRED_PERCENT_MILLI = 100 * MILLI


def resolve(quota: Quota, gpus: Gpus) -> Quota:
    """The quota in GPUs alone."""
    if not quota.percentages:
        return quota
    found: dict[str, Any] = {}
    for kind in QUOTAS:
        parts = quota.percentages.get(kind, {})
        found[kind] = {
            **getattr(quota, kind),
            **{key: amount_of(part, key, gpus) for key, part in parts.items()},
        }
    for key, part in quota.percentages.get("borrow", {}).items():
        own = quota.percentages.get("guarantee", {}).get(key)
        if own is not None and own.pool == part.pool:
            # 40 % and 60 % more are all of it: rounded down once, not twice.
            both = Percentage(own.percent_milli + part.percent_milli, part.pool)
            found["borrow"][key] = amount_of(both, key, gpus) - found["guarantee"][key]
    if guarantee := found["guarantee"]:
        # A promise of some H100 is one of as many GPUs too.
        models = sum([milli for model, milli in guarantee.items() if model != TOTAL])
        guarantee[TOTAL] = max(guarantee.get(TOTAL, 0), models)
    return replace(quota, **found, percentages={})


def amount_of(part: Percentage, key: str, gpus: Gpus) -> int:
    """A percentage in milli-GPU, under a GPU model or `total`."""
    return base_of(part, key, gpus) * part.percent_milli // HUNDRED_PERCENT_MILLI * MILLI


def base_of(part: Percentage, key: str, gpus: Gpus) -> int:
    """The GPUs of which it is a part."""
    return sum(
        [count for (pool, model), count in gpus.items() if part.pool in ("", pool) and key in (TOTAL, model)]
    )


def percentage_text(part: Percentage) -> str:
    """A percentage as the file has it: `40%`, `25% of training`."""
    return f"{decimal_text(part.percent_milli, MILLI)}%" + (f" of {part.pool}" if part.pool else "")


def percentage_words(part: Percentage, key: str, gpus: Gpus) -> str:
    """The same with what it is a part of: `40% of 30 GPUs`, `25% of 16 H100 of training`."""
    base = base_of(part, key, gpus)
    what = (f"GPU{'' if base == 1 else 's'}") if key == TOTAL else key
    pool = f" of {part.pool}" if part.pool else ""
    return f"{decimal_text(part.percent_milli, MILLI)}% of {base} {what}{pool}"
