"""The one list of policies: parts by name, presets, and how a policy is put together.

A placement may also come from an installed package, by an entry point.
"""

from dataclasses import replace
from functools import cache

from gpuyard.core.fleet.placing import Placer, Ranker
from gpuyard.core.jobs.order import Criterion, FairShare, Order
from gpuyard.core.schedule.passes import Rule
from gpuyard.core.schedule.policy import BackfillFactory, Policy
from gpuyard.errors import YardError, quote
from gpuyard.model import PolicySpec
from gpuyard.model.units import HOUR_MS
from gpuyard.policies.backfill.conservative import Conservative
from gpuyard.policies.backfill.easy import Easy
from gpuyard.policies.backfill.none import NoBackfill
from gpuyard.policies.order.by_class import ByClass
from gpuyard.policies.order.deadline import Deadline
from gpuyard.policies.order.fifo import Fifo
from gpuyard.policies.order.sjf import Sjf
from gpuyard.policies.order.srtf import Srtf
from gpuyard.policies.placement import best_fit, fgd, first_fit, pack
from gpuyard.policies.placement.across_clusters import rank_by_cluster
from gpuyard.policies.preemption.by_class import PreemptByClass
from gpuyard.policies.preemption.reclaim import Reclaim
from gpuyard.policies.preemption.srtf import PreemptLonger

ENTRY_POINTS = "gpuyard.placements"
"""The entry points of packages with a placement: each names a module with `place` and, if it compares kinds, `rank`."""

ORDERS: dict[str, Criterion | FairShare] = {
    part.name: part for part in (Fifo(), ByClass(), FairShare(), Sjf(), Srtf(), Deadline())
}
PLACEMENTS: dict[str, Placer] = {
    best_fit.NAME: best_fit.place,
    first_fit.NAME: first_fit.place,
    fgd.NAME: fgd.place,
    pack.NAME: pack.place,
}
RANKS: dict[str, Ranker] = {fgd.NAME: fgd.rank, pack.NAME: pack.rank}
"""Placements that compare nodes of all kinds."""
BACKFILLS: dict[str, BackfillFactory] = {part.name: part for part in (NoBackfill(), Easy(), Conservative())}
PREEMPTIONS: dict[str, Rule] = {part.name: part for part in (Reclaim(), PreemptByClass(), PreemptLonger())}

GANGS = {"patient": 24 * HOUR_MS, "balanced": 6 * HOUR_MS, "eager": HOUR_MS}
"""How long a gang waits before it comes by age in its team, by the words of `gangs`."""
BALANCED = "balanced"

PRESETS: dict[str, PolicySpec] = {
    spec.name: spec
    for spec in (
        PolicySpec(
            "default", order=("class", "fair"), preemption=("reclaim", "class"), turn_ms=GANGS[BALANCED]
        ),
        PolicySpec("fifo", order=("fifo",)),
        PolicySpec("strict-fifo", order=("fifo",), backfill="none"),
        PolicySpec("class", order=("class",), preemption=("class",)),
        PolicySpec("fair", order=("fair",), preemption=("reclaim",), turn_ms=GANGS[BALANCED]),
        PolicySpec("sjf", order=("sjf",)),
        PolicySpec("srtf", order=("srtf",), preemption=("srtf",)),
        PolicySpec("deadline", order=("deadline",)),
        PolicySpec("conservative", order=("fifo",), backfill="conservative", backfill_depth=50),
        PolicySpec("fgd", order=("fifo",), placement="fgd"),
        PolicySpec("pack", order=("fifo",), placement="pack"),
    )
}


@cache
def add_installed() -> None:
    """Add the placements of installed packages. A built-in one keeps its name.

    Looking for packages takes time: it is done once, when a name is not built in.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415

    for entry in entry_points(group=ENTRY_POINTS):
        try:
            part = entry.load()
            place, rank = part.place, getattr(part, "rank", None)
        except Exception as error:
            raise YardError(
                f"the placement {entry.name} ({entry.value}) cannot be loaded: {error}",
                "Repair the package that has it, or remove the package.",
            ) from error
        if entry.name not in PLACEMENTS:
            PLACEMENTS[entry.name] = place
            if rank is not None:
                RANKS[entry.name] = rank


def has_placement(name: str) -> bool:
    """Whether there is a placement of this name, built in or installed."""
    if name not in PLACEMENTS:
        add_installed()
    return name in PLACEMENTS


def with_gangs(spec: PolicySpec, word: str) -> PolicySpec:
    """The policy with another `gangs`. Without fair share there is nothing that it would change."""
    return replace(spec, turn_ms=GANGS[word]) if FairShare.name in spec.order else spec


def find_gangs(spec: PolicySpec) -> str:
    """The word of `gangs` that a policy goes by; empty: none."""
    return next((word for word, turn_ms in GANGS.items() if turn_ms == spec.turn_ms), "")


def build(spec: PolicySpec) -> Policy:
    """The policy that a spec names. Names are checked where they are read; an unknown one here is a KeyError.

    A placement's package may have been removed since its name was read.
    """
    if not has_placement(spec.placement):
        raise YardError(
            f"policy {quote(spec.name)} has the placement {quote(spec.placement)}, which is not installed",
            "Install the package that has it, or start with a yard.yaml whose policy has another placement.",
        )
    parts = [ORDERS[name] for name in spec.order]
    fair = [i for i, part in enumerate(parts) if isinstance(part, FairShare)]
    at = fair[0] if fair else 0
    before = tuple(p for p in parts[:at] if not isinstance(p, FairShare))
    after = tuple(p for p in parts[at:] if not isinstance(p, FairShare))
    if tuple(spec.order) == ("fifo",):
        # Age and id come last in every order, so this order needs no criterion.
        after = ()
    return Policy(
        spec,
        Order(before, bool(fair), after, bool(spec.preemption), spec.turn_ms),
        PLACEMENTS[spec.placement],
        rank_by_cluster(spec.clusters, RANKS.get(spec.placement))
        if spec.clusters
        else RANKS.get(spec.placement),
        tuple(PREEMPTIONS[name] for name in spec.preemption),
        BACKFILLS[spec.backfill],
    )
