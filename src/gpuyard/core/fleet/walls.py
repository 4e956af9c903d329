"""Which pools are closed to a job, by whose it is and how long it may run.

That depends on the asker and not on the ask, so an ask is compiled anew for each set of pools that are closed to its
askers: most askers share one. What a pool demands of an ask itself (its GPUs, its nodes) is judged where the ask is
compiled, in `ways`.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from gpuyard.core.fleet.nodes import Nodes
from gpuyard.core.fleet.shapes import Shape
from gpuyard.model import Ask, Grant
from gpuyard.model.walls import Askers, Wall


class Asker(NamedTuple):
    """Whose a job is."""

    tenant: str
    user: str
    groups: tuple[str, ...]
    klass: str


class Walls:
    """The walls of all pools, and what they mean for each asker."""

    def __init__(self, rules: Mapping[str, Wall]) -> None:
        """`rules` by `CLUSTER/POOL`."""
        self.rules = dict(sorted(rules.items()))
        self.timed = {place: wall for place, wall in self.rules.items() if wall.longest_default_ms}
        """Those that say how long jobs run."""
        self.ranked = any([wall.priority for wall in self.rules.values()])
        """Whether any of them puts jobs before others."""
        self.groups = frozenset(
            [name for wall in self.rules.values() for each in (wall.allow, wall.deny) for name in each.groups]
        )
        """The groups of people that any of them names."""
        self._bounds = sorted({wall.time_limit_ms for wall in self.rules.values() if wall.time_limit_ms})
        self._known: dict[tuple[Asker, int], tuple[str, ...]] = {}

    def closed_to(self, asker: Asker, limit_ms: int) -> tuple[str, ...]:
        """The pools that take no job of this asker with this time limit, by `CLUSTER/POOL`, in order."""
        # Time limits between the same two bounds are alike.
        key = (asker, bisect_left(self._bounds, limit_ms))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple(
                [
                    place
                    for place, wall in self.rules.items()
                    if 0 < wall.time_limit_ms < limit_ms or not admits(wall, asker)
                ]
            )
        return found

    def tier_of(self, ask: Ask) -> int:
        """The priority that a job has by the pools that it names: of several the lowest, of none 0."""
        tiers = [
            wall.priority
            for place, wall in self.rules.items()
            for cluster, _, pool in [place.partition("/")]
            if pool in ask.pools and (not ask.clusters or cluster in ask.clusters)
        ]
        walled = {place.partition("/")[2] for place in self.rules}
        return min(tiers) if tiers and walled.issuperset(ask.pools) else 0

    def list_counting(self, groups: Collection[str]) -> tuple[str, ...]:
        """Of someone's groups those that count here, in order."""
        return tuple(sorted(self.groups.intersection(groups)))

    def default_ms(self, nodes: Nodes, shape: Shape, most_ms: int) -> int:
        """The time limit of a job that names none and may have this shape: the longest that one of its pools gives."""
        left = 0
        for way in shape.ways:
            left |= nodes.kinds[way.kind].members & way.pools
        if not left:
            return most_ms
        longest_ms = 0
        for place, wall in self.timed.items():
            if there := left & in_place(nodes, place):
                longest_ms = max(longest_ms, wall.longest_default_ms)
                left &= ~there
        return most_ms if left else min(most_ms, longest_ms)


def in_place(nodes: Nodes, place: str) -> int:
    """The nodes of a pool of a cluster, by `CLUSTER/POOL`."""
    cluster, _, pool = place.partition("/")
    there = 0
    for kind in nodes.kinds:
        if kind.cluster == cluster:
            there |= kind.members
    return there & nodes.by_pool.get(pool, 0)


def shelters(walls: Mapping[str, Wall], nodes: Nodes, grants: Iterable[Grant]) -> bool:
    """Whether the pools of these nodes keep jobs from being stopped for others."""
    if not walls:
        return False
    there = [nodes.node[grant.node] for grant in grants]
    found = [walls.get(f"{node.cluster}/{node.pool}") for node in there]
    return any([wall is not None and not wall.preemptible for wall in found])


def admits(wall: Wall, asker: Asker) -> bool:
    """Whether a pool takes jobs of this asker."""
    return not missed_kinds(wall.allow, asker) and not named_kinds(wall.deny, asker)


def missed_kinds(askers: Askers, asker: Asker) -> list[str]:
    """The kinds that are named and of which the asker is not."""
    return [kind for kind, is_one in _answers(askers, asker) if not is_one]


def named_kinds(askers: Askers, asker: Asker) -> list[str]:
    """The kinds that are named and of which the asker is."""
    return [kind for kind, is_one in _answers(askers, asker) if is_one]


def _answers(askers: Askers, asker: Asker) -> Iterator[tuple[str, bool]]:
    """Each kind that is named, and whether the asker is of it."""
    if askers.tenants:
        paths = askers.tenants
        yield "tenants", any([asker.tenant == path or asker.tenant.startswith(f"{path}/") for path in paths])
    if askers.users:
        yield "users", asker.user in askers.users
    if askers.groups:
        yield "groups", not set(askers.groups).isdisjoint(asker.groups)
    if askers.classes:
        yield "classes", asker.klass in askers.classes
