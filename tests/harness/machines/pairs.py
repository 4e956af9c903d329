"""Policies nobody has named: parts from the registry, put together so that every two of them meet somewhere."""

from functools import cache
from itertools import combinations, product

from gpuyard.model import PolicySpec
from gpuyard.policies import registry

CHOICES: dict[str, list[object]] = {
    "order": [
        *[(name,) for name in registry.ORDERS],
        ("class", "fair"),
        ("fair", "sjf"),
        ("class", "deadline"),
    ],
    "placement": list(registry.PLACEMENTS),
    "backfill": list(registry.BACKFILLS),
    "preemption": [(), *[(name,) for name in registry.PREEMPTIONS], tuple(registry.PREEMPTIONS)],
    "backfill_depth": [1_000_000, 2],
    "depth_per_tenant": [1_000_000, 1],
    "quotas": [True, False],
    "turn_ms": [0, 5_000],
}


@cache
def every_pair() -> tuple[PolicySpec, ...]:
    """Few combinations in which every two values of different parts occur together."""
    names = list(CHOICES)
    rows = [dict(zip(names, values, strict=True)) for values in product(*CHOICES.values())]

    def pairs(row: dict[str, object]) -> set[tuple[object, ...]]:
        return {(a, row[a], b, row[b]) for a, b in combinations(names, 2)}

    missing = set().union(*[pairs(row) for row in rows])
    pairs_of = [pairs(row) for row in rows]
    chosen: list[PolicySpec] = []
    while missing:
        best = max(range(len(rows)), key=lambda i: (len(pairs_of[i] & missing), -i))
        missing -= pairs_of[best]
        chosen.append(PolicySpec(f"pair-{len(chosen)}", **rows[best]))  # type: ignore[arg-type]
    return tuple(chosen)


def name_of(spec: PolicySpec) -> str:
    """A test's name for it."""
    parts = [
        "+".join(spec.order),
        spec.placement,
        spec.backfill,
        "+".join(spec.preemption) or "no-preemption",
    ]
    capped = "capped" if min(spec.backfill_depth, spec.depth_per_tenant) < 1000 else "uncapped"
    return "-".join([*parts, capped, "quotas" if spec.quotas else "no-quotas"])
