"""Asks compiled against the fleet: the kinds of node that could serve them, and the number of tasks per node."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpuyard.core.fleet.bits import lowest_bit
from gpuyard.core.fleet.gpu_reserves import split_by_reserve
from gpuyard.core.fleet.kinds import Kind
from gpuyard.core.fleet.levels import places_for
from gpuyard.core.fleet.mig_geometry import gpus_on
from gpuyard.core.fleet.nodes import Nodes
from gpuyard.core.fleet.shapes import Shape, Way, rate_on
from gpuyard.core.fleet.walls import in_place
from gpuyard.model import Ask, Node
from gpuyard.model.mig import MIG_MODELS
from gpuyard.model.units import MILLI
from gpuyard.model.walls import Wall


class Shapes:
    """All asks seen so far, compiled."""

    def __init__(self, walls: Mapping[str, Wall] = {}) -> None:
        self.walls = walls
        """What keeps jobs out of pools, by `CLUSTER/POOL`. With others, all is to be compiled again."""
        self._by_ask: dict[Ask, Shape] = {}
        self._walled: dict[tuple[Ask, tuple[str, ...]], Shape] = {}
        """The same by the pools that are closed to the askers."""
        # Hashing an ask costs more than placing a job, and asks are shared: look up by identity first. The value holds
        # the ask, so no other ask can get the same identity.
        self._by_identity: dict[int, Shape] = {}
        self._ways = 0
        self.version = 0
        """Grows when the fleet or the weights change."""
        self.timed = False
        """Whether any ask requires a level of the fabric for a time only."""

    def of(self, ask: Ask, nodes: Nodes, weights: list[int]) -> Shape:
        """The shape of an ask."""
        shape = self._by_identity.get(id(ask))
        if shape is not None and shape.ask is ask:
            return shape
        shape = self._by_ask.get(ask)
        if shape is None:
            shape = Shape(len(self._by_ask) + len(self._walled), ask)
            self._by_ask[ask] = shape
            self._by_identity[id(shape.ask)] = shape
            self.timed = self.timed or ask.level_ms > 0
            self._compile(shape, nodes, weights)
        return shape

    def behind(self, ask: Ask, closed: tuple[str, ...], nodes: Nodes, weights: list[int]) -> Shape:
        """The shape of an ask of people to whom these pools are closed, by `CLUSTER/POOL`."""
        if not closed:
            return self.of(ask, nodes, weights)
        shape = self._walled.get((ask, closed))
        if shape is None:
            shape = Shape(len(self._by_ask) + len(self._walled), ask, closed)
            self._walled[ask, closed] = shape
            self.timed = self.timed or ask.level_ms > 0
            self._compile(shape, nodes, weights)
        return shape

    def refresh(self, nodes: Nodes, weights: list[int]) -> None:
        """Compile all asks again, after a change of the fleet, the weights or the walls."""
        self.version += 1
        for shapes in (self._by_ask, self._walled):
            for shape in shapes.values():
                self._compile(shape, nodes, weights)

    def _compile(self, shape: Shape, nodes: Nodes, weights: list[int]) -> None:
        ranked: list[tuple[int, Way]] = []
        if shape.supported:
            for index, kind in enumerate(nodes.kinds):
                ranked += self._ways_of(shape, index, kind, nodes, weights[kind.model], self.walls)
        # 1. the cluster that the job prefers; 2. nodes as near as it prefers; 3. nodes without GPUs first, if no GPU is
        # asked for; 4. cheapest model; 5. smallest node; 6. kind number.
        clusters = shape.ask.clusters

        def order(row: tuple[int, Way]) -> tuple[int, ...]:
            rank, way = row
            kind = nodes.kinds[way.kind]
            cluster = clusters.index(kind.cluster) if clusters else 0
            return cluster, rank, shape.gpus == 0 < kind.gpus, weights[way.model], kind.gpus, way.kind

        ways = [way for _rank, way in sorted(ranked, key=order)]
        shape.ways = tuple(ways)
        shape.tiers = self._tiers(shape, nodes)
        shape.in_order = (*[way for tier in shape.tiers for way in tier.values()], *ways)
        shape.walled = not ways and bool(self.walls) and bool(self.list_without_walls(shape, nodes, weights))
        shape.models = tuple(dict.fromkeys([way.model for way in ways]))
        shape.way_on = {way.kind: way for way in ways}
        shape.node_gpus = min([way.node_gpus for way in ways], default=0)
        shape.usages = [{} for _kind in nodes.kinds]
        shape.hopeless_at = -1

    def _tiers(self, shape: Shape, nodes: Nodes) -> tuple[dict[int, Way], ...]:
        """The ways on preferred nodes alone, by the index of the way that each narrows.

        The best nodes come first, each set with those before it.
        """
        ask = shape.ask
        if not (ask.prefers or nodes.marks.tainted):
            return ()
        found = []
        members = 0
        for way in shape.ways:
            members |= nodes.kinds[way.kind].members & way.pools
        for tier in nodes.marks.tiers(ask.prefers, ask.tolerates, members):
            narrow = {}
            for way in shape.ways:
                enough = (nodes.kinds[way.kind].members & tier).bit_count()
                if enough >= way.full_nodes + (way.rest_tasks > 0):
                    self._ways += 1
                    narrow[way.index] = replace(way, index=self._ways, pools=way.pools & tier)
            found.append(narrow)
        return tuple(found)

    def list_without_walls(self, shape: Shape, nodes: Nodes, weights: list[int]) -> list[Way]:
        """The ways that an ask would have if no pool had a wall."""
        if not shape.supported:
            return []
        return [
            way
            for index, kind in enumerate(nodes.kinds)
            for _rank, way in self._ways_of(shape, index, kind, nodes, weights[kind.model], {})
        ]

    def _ways_of(
        self,
        shape: Shape,
        index: int,
        kind: Kind,
        nodes: Nodes,
        weight: int,
        walls: Mapping[str, Wall],
    ) -> Iterator[tuple[int, Way]]:
        """The ways to serve an ask on nodes of one kind, ranked: one for each set of nodes that does it alike."""
        ask = shape.ask
        if kind.cluster not in ask.clusters and (ask.clusters or kind.cluster in nodes.observed):
            return
        if nodes.lacks and shape.needs & nodes.lacks.get(kind.cluster, frozenset()):
            return
        among = find_allowed(ask, nodes) & ~_behind_walls(shape, kind, nodes, walls)
        members = kind.members & among
        if not members:
            return
        if ask.models and (not kind.gpus or nodes.node[lowest_bit(members)].gpu_model not in ask.models):
            # A node without GPUs has no GPU model, whatever it is called.
            return
        parts = [(kind.cpu_milli, kind.memory_mib, among)]
        if not shape.gpus and nodes.beside_most:
            parts = split_by_reserve(nodes, members)
        for cpu_milli, memory_mib, alike in parts:
            room = (kind, cpu_milli, memory_mib)
            whole = self._way(shape, index, room, nodes, weight, alike, walls)
            if whole is not None and whole.nodes_max == 1:
                yield 0, whole
            elif whole is not None:
                for rank, level, there in places_for(shape, kind, alike):
                    way = self._way(shape, index, room, nodes, weight, there, walls)
                    if way is not None:
                        yield rank, way if level is None else replace(way, level=level)

    def _way(
        self,
        shape: Shape,
        index: int,
        room: tuple[Kind, int, int],
        nodes: Nodes,
        weight: int,
        among: int,
        walls: Mapping[str, Wall],
    ) -> Way | None:
        """The way to serve an ask on these nodes of a kind, which have so many cores and so much memory for it."""
        ask, (kind, cpu_milli, memory_mib) = shape.ask, room
        members = kind.members & among
        gpus = shape.gpus
        if shape.profile:
            geometry = MIG_MODELS.get(nodes.node[lowest_bit(members)].gpu_model)
            size = geometry.profile(shape.profile) if geometry else None
            if size is None:
                return None
            # How many slices of a profile fit on a GPU depends on the model.
            gpus = gpus_on(size, shape.slices)
        per_node = shape.tasks
        for want, have in (
            (gpus, kind.gpus),
            (shape.cpu_milli, cpu_milli),
            (shape.memory_mib, memory_mib),
        ):
            if want:
                per_node = min(per_node, have // want)
        if shape.in_domain and per_node:
            domains = kind.gpus // kind.domain_size
            if max(shape.cpu_milli * domains - cpu_milli, shape.memory_mib * domains - memory_mib) > 0:
                return None
            per_node = min(per_node, kind.domain_size // shape.gpus * domains)
        if ask.nodes_min > 1:
            # As even as possible, but never so many tasks on a node that the job needs fewer than `nodes_min` nodes.
            even = -(-shape.tasks // ask.nodes_min)
            per_node = min(per_node, even, -(-shape.tasks // (ask.nodes_min - 1)) - 1)
        if per_node == 0:
            return None
        full, rest = divmod(shape.tasks, per_node)
        fewest = full + (rest > 0)
        nodes_max = max(fewest, ask.nodes_max)
        if walls:
            far, nodes_max = _too_far(fewest, nodes_max, members, nodes, walls)
            among, members = among & ~far, members & ~far
        if fewest > members.bit_count() or (ask.nodes_max and fewest > ask.nodes_max):
            return None
        self._ways += 1
        return Way(
            index=self._ways,
            kind=index,
            model=kind.model,
            tasks_per_node=per_node,
            full_nodes=full,
            rest_tasks=rest,
            nodes_max=nodes_max,
            pools=among,
            gpus=gpus,
            node_gpus=shape.gpus * (per_node if full else rest)
            if shape.milli == MILLI and not ask.nodes_max and not shape.profile
            else 0,
            rate=rate_on(shape, kind, weight),
        )


def _behind_walls(shape: Shape, kind: Kind, nodes: Nodes, walls: Mapping[str, Wall]) -> int:
    """The nodes of a kind in pools that take nothing of these askers, or nothing as small."""
    out = 0
    for place, wall in walls.items():
        if place in shape.closed or shape.gpu_milli < wall.min_gpu_milli:
            out |= in_place(nodes, place)
    return out & kind.members


def _too_far(
    fewest: int, nodes_max: int, members: int, nodes: Nodes, walls: Mapping[str, Wall]
) -> tuple[int, int]:
    """Of these nodes those in pools that take no job on as many, and over how many nodes it may go on the others.

    A job that could be spread further than one of its pools allows goes no further on any node of this kind.
    """
    far = 0
    for place, wall in walls.items():
        there = members & in_place(nodes, place) if wall.max_nodes_per_job else 0
        if there and fewest > wall.max_nodes_per_job:
            far |= there
        elif there:
            nodes_max = min(nodes_max, wall.max_nodes_per_job)
    return far, nodes_max


def find_allowed(ask: Ask, nodes: Nodes) -> int:
    """The nodes on which an ask may be served, by pool, name, label and taint; -1: all."""
    among = -1
    if ask.pools:
        among = 0
        for pool in ask.pools:
            among |= nodes.by_pool.get(pool, 0)
    among &= nodes.marks.open_to(ask.features, ask.selects, ask.tolerates)
    if ask.on_nodes or ask.not_nodes:
        wanted, unwanted = frozenset(ask.on_nodes), frozenset(ask.not_nodes)
        named = 0
        for number, node in enumerate(nodes.node):
            names = _names(node)
            if (not wanted or not wanted.isdisjoint(names)) and unwanted.isdisjoint(names):
                named |= 1 << number
        among &= named
    return among


def _names(node: Node) -> tuple[str, str]:
    """What a job may call a node."""
    return node.name, f"{node.cluster}:{node.name}"


def gpus_on_node(nodes: Nodes, shape: Shape, number: int) -> int:
    """GPUs of one task on a node that could hold it."""
    return shape.way_on[nodes.kind[number]].gpus if shape.profile else shape.gpus
