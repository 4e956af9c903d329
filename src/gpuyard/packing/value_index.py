"""The nodes by what a task would cost there, kept up to date node by node: the live side of packing.

For every size of task the nodes are in sets by their key: the cost, then what stays idle on the node (see `values`). A
change of one node moves it from one set to another. The keys are those of `benchmarks/placing/kernel.py`; a
test checks that both choose the same.
"""

from bisect import bisect_left
from functools import lru_cache

from gpuyard.core.fleet.bits import each
from gpuyard.core.fleet.gpu_reserves import leave_out_reserved
from gpuyard.core.fleet.mig_geometry import charge_of
from gpuyard.core.fleet.mig_placing import find_uncut_free
from gpuyard.core.fleet.nodes import Nodes
from gpuyard.core.fleet.shapes import Shape
from gpuyard.model.units import MILLI
from gpuyard.packing.ranking import Ranking
from gpuyard.packing.slices.value_index import SliceValueIndex
from gpuyard.packing.tasks import NodeShape, Task
from gpuyard.packing.values import CORE_BITS, KEY_BITS, NO_ROOM, QUANTUM, Values, compute_values

_KNOWN_MAX = 50_000
"""How many combinations of idle GPUs, or keys of one size, are cached before the cache starts over."""
_SIZES_MAX = 2_000
"""How many sizes of task have their nodes sorted before the cache starts over."""


class ValueIndex:
    """What is idle everywhere, and what it is worth to the expected tasks."""

    def __init__(self, mix: list[tuple[Shape, int]]) -> None:
        self._mix = mix
        self._fleet: list[int] | None = None
        """The members of each kind for which everything below was computed."""
        self._values = Values(MILLI, 2, (0,), ())
        self._sums: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
        """By kind and what is idle on the GPUs, smallest first: what that is worth, row by row."""
        self._costs: dict[tuple[int, int, int], Costs] = {}
        self.slices = SliceValueIndex(mix)

    def best(self, nodes: Nodes, shape: Shape, members: int) -> int:
        """The node for one task: 1. least cost, 2. least idle afterwards, 3. lowest number; -1: none has room."""
        members = leave_out_reserved(nodes, shape, members)
        costs = self.costs(nodes, shape)
        costs.refresh(self, nodes)
        shifted = nodes.overlaid & members
        key, best = costs.least(nodes, 0, shape.memory_mib, members ^ shifted)
        for number in each(shifted):
            if shape.memory_mib <= nodes.memory_free[number]:
                own = costs.key(self, nodes, number)
                if own < key or (own == key != NO_ROOM and number < best):
                    key, best = own, number
        return best if key != NO_ROOM else -1

    def gpu(self, nodes: Nodes, shape: Shape, number: int) -> int:
        """The GPU of a node for one share: 1. least cost, 2. least left, 3. lowest number."""
        free = find_uncut_free(nodes, number)
        costs = self.costs(nodes, shape)
        options = costs.options(self, nodes.kind[number], nodes.cpu_free[number], tuple(free))
        taken = min(options)[1]
        return next(gpu for gpu, left in enumerate(free) if left == taken)

    def costs(self, nodes: Nodes, shape: Shape) -> "Costs":
        """The costs of a size of task (not refreshed)."""
        self._compile(nodes)
        key = (shape.gpus, shape.milli, shape.cpu_milli)
        costs = self._costs.get(key)
        if costs is None:
            if len(self._costs) >= _SIZES_MAX:
                self._costs.clear()
            costs = self._costs[key] = Costs(*key, len(nodes.node))
        return costs

    def _compile(self, nodes: Nodes) -> None:
        """Compute the values again if the fleet has changed."""
        fleet = [kind.members for kind in nodes.kinds]
        if self._fleet == fleet:
            return
        self._fleet = fleet
        kinds = []
        for kind in nodes.kinds:
            first = (kind.members & -kind.members).bit_length() - 1
            model = nodes.node[first].gpu_model if first >= 0 else ""
            kinds.append(
                (NodeShape(model, kind.gpus, kind.cpu_milli, kind.memory_mib), kind.members.bit_count())
            )
        expected = [(_task(shape), weight * shape.tasks) for shape, weight in self._mix]
        self._values = _worth(tuple(expected), tuple(kinds))
        self._sums.clear()
        self._costs.clear()

    def sums(self, kind: int, left: tuple[int, ...]) -> tuple[int, ...]:
        """What the idle GPUs of a node are worth, row by row. Overdrawn GPUs count as not idle."""
        found = self._sums.get((kind, left))
        if found is None:
            if len(self._sums) >= _KNOWN_MAX:
                self._sums.clear()
            unit, columns, core_costs, tables = self._values
            table, at = tables[kind], [max(0, milli) // unit for milli in left]
            found = self._sums[kind, left] = tuple(
                [sum([table[row * columns + column] for column in at]) for row in range(len(core_costs))]
            )
        return found

    def worth(self, cpu_milli: int, sums: tuple[int, ...]) -> int:
        """The value of a node with this many idle cores."""
        return min(
            [
                (cost * cpu_milli >> CORE_BITS) + value
                for cost, value in zip(self._values.core_costs, sums, strict=True)
            ]
        )


class Costs(Ranking):
    """The nodes by the key that they have for tasks of one size (GPUs, milli of each, cores)."""

    __slots__ = ("_known", "cpu_milli", "gpus", "milli")

    def __init__(self, gpus: int, milli: int, cpu_milli: int, nodes: int) -> None:
        super().__init__(nodes)
        self.gpus = gpus
        self.milli = milli if gpus else 0
        self.cpu_milli = cpu_milli
        self._known: dict[tuple[int, int, tuple[int, ...]], int] = {}

    def refresh(self, index: ValueIndex, nodes: Nodes) -> None:
        """Compute the keys of the nodes that have changed."""
        self.bring_up(nodes, lambda number: self.key(index, nodes, number))

    def key(self, index: ValueIndex, nodes: Nodes, number: int) -> int:
        """The key of one node; `NO_ROOM` without room. Memory is not checked."""
        cpu_free = nodes.cpu_free[number]
        if cpu_free < self.cpu_milli or nodes.closed[number]:
            return NO_ROOM
        kind, left = nodes.kind[number], tuple(find_uncut_free(nodes, number))
        found = self._known.get((kind, cpu_free, left))
        if found is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            cost = min(self.options(index, kind, cpu_free, left), default=(NO_ROOM, 0))[0]
            idle = sum([max(0, milli) for milli in left]) - self.gpus * self.milli
            found = NO_ROOM if cost == NO_ROOM else (cost << KEY_BITS) + idle
            self._known[kind, cpu_free, left] = found
        return found

    def options(
        self, index: ValueIndex, kind: int, cpu_free: int, left: tuple[int, ...]
    ) -> list[tuple[int, int]]:
        """What each way to take the GPUs costs, with what was idle on the chosen GPU. Empty without room."""
        gpus, milli = self.gpus, self.milli
        row = tuple(sorted(left))
        fitting = row[bisect_left(row, milli) :] if gpus else ()
        if len(fitting) < gpus:
            return []
        had = index.worth(cpu_free, index.sums(kind, row))
        found = []
        # Whole GPUs are all alike. Shares of several GPUs take those with the least left that suffice.
        taken: list[tuple[int, ...]] = [fitting[:gpus]]
        if gpus == 1 and milli < MILLI:
            taken = [(free,) for free in sorted(set(fitting))]
        for frees in taken:
            rest = list(row)
            for free in frees:
                rest[rest.index(free)] = free - milli
            rest.sort()
            has = index.worth(cpu_free - self.cpu_milli, index.sums(kind, tuple(rest)))
            found.append(((had - has) // QUANTUM, frees[0] if frees else 0))
        return found


@lru_cache(maxsize=8)
def _worth(expected: tuple[tuple[Task, int], ...], kinds: tuple[tuple[NodeShape, int], ...]) -> Values:
    # Cached, because estimates run many copies of one state forward.
    return compute_values(expected, kinds)


def _task(shape: Shape) -> Task:
    gpus, milli = shape.gpus, shape.milli if shape.gpus else 0
    if shape.profile:
        # A slice that no GPU has takes no GPU.
        milli = charge_of(shape.profile)
        gpus = shape.slices if milli else 0
    return Task(shape.cpu_milli, shape.memory_mib, gpus, milli, tuple(shape.ask.models))
