"""The nodes by how little a task would fragment them, kept up to date node by node.

For every size of task the nodes are in sets by their score (see `packing.fgd.measure`). A change of one node moves it
from one set to another, and the best node is the lowest bit of the highest set.
"""

from bisect import bisect_right

from gpuyard.core.fleet.bits import each
from gpuyard.core.fleet.gpu_reserves import leave_out_reserved
from gpuyard.core.fleet.mig_placing import find_uncut_free
from gpuyard.core.fleet.nodes import DirtyNodes, Nodes
from gpuyard.core.fleet.shapes import Shape, Way
from gpuyard.packing.fgd.measure import Idle, Task, Uses, compute_thresholds

_IDLE_MAX = 50_000
"""How many combinations of idle GPUs, with their scores, are cached before the cache starts over."""
_SIZES_MAX = 2_000
"""How many sizes of task have their nodes sorted by score before the cache starts over."""

NO_ROOM = -1
"""The score of a node without the room."""


class Scores:
    """The nodes by the score that they give to tasks of one size (GPUs, milli of each, cores)."""

    __slots__ = ("_offset", "_score", "_sets", "_used", "_watch", "cpu_milli", "gpus", "milli")

    def __init__(self, shape: Shape, offsets: list[int], nodes: int) -> None:
        self.gpus = shape.gpus
        self.milli = shape.milli
        self.cpu_milli = shape.cpu_milli
        self._offset = offsets
        """By `Uses`: the offset of its part of the keys into `Idle.scores`."""
        self._score = [NO_ROOM] * nodes
        self._sets = [0] * 100
        """The nodes by score."""
        self._used = 0
        """The scores that at least one node has, as a set."""
        self._watch = DirtyNodes()

    def refresh(self, demand: "FgdIndex", nodes: Nodes) -> None:
        """Score the nodes that have changed."""
        changed = self._watch.changed(nodes)
        if not changed:
            return
        demand.refresh(nodes)
        idle_of, scores, sets = demand.idle, self._score, self._sets
        for number in changed:
            score = self.score(demand, nodes, number, idle_of[number])
            before = scores[number]
            if score != before:
                scores[number] = score
                bit = 1 << number
                if before != NO_ROOM:
                    sets[before] ^= bit
                    if not sets[before]:
                        self._used ^= 1 << before
                if score != NO_ROOM:
                    sets[score] |= bit
                    self._used |= 1 << score

    def score(self, demand: "FgdIndex", nodes: Nodes, number: int, idle: Idle) -> int:
        """The score of one node with this idle; `NO_ROOM` without room. Memory is not checked."""
        before = nodes.cpu_free[number]
        after = before - self.cpu_milli
        if after < 0 or nodes.closed[number]:
            return NO_ROOM
        uses = demand.uses[number]
        had, has = bisect_right(uses.cpus, before), bisect_right(uses.cpus, after)
        key = self._offset[uses.index] + had * uses.stride + has
        found = idle.scores.get(key)
        if found is None:
            options = self.options(demand, uses, idle, had, has)
            found = idle.scores[key] = max([score for score, _had in options], default=NO_ROOM)
        return found

    def options(
        self, demand: "FgdIndex", uses: Uses, idle: Idle, had: int, has: int
    ) -> list[tuple[int, int]]:
        """The score of each way to take the GPUs, with what was idle on the chosen GPU."""
        if not self.gpus:
            return [(demand.score(uses.of(idle, has) - uses.of(idle, had)), 0)]
        kept = demand.weight * self.gpus * self.milli - uses.of(idle, had)
        return [
            (demand.score(kept + uses.of(demand.idle_as(left), has)), taken)
            for taken, left in idle.after(self.gpus, self.milli)
        ]

    def best(self, nodes: Nodes, memory_mib: int, members: int) -> tuple[int, int]:
        """Of a set of nodes: 1. highest score, 2. lowest number. As (score, node); `NO_ROOM`: there is none."""
        used, sets, memory_free = self._used, self._sets, nodes.memory_free
        while used:
            score = used.bit_length() - 1
            found = sets[score] & members
            while found:
                low = found & -found
                number = low.bit_length() - 1
                if memory_mib <= memory_free[number]:
                    return score, number
                found ^= low
            used ^= 1 << score
        return NO_ROOM, 0


class FgdIndex:
    """The expected tasks, compiled against the fleet, and every node's score under them."""

    def __init__(self, mix: list[tuple[Shape, int]]) -> None:
        self.mix = mix
        self.weight = sum([weight for _shape, weight in mix])
        self._thresholds = compute_thresholds(self.weight)
        self._fleet = -1
        """Number of nodes for which everything below was compiled."""
        self.uses: list[Uses] = []
        """By node."""
        self.idle: list[Idle] = []
        """By node; for shifted nodes, as they were."""
        self._watch = DirtyNodes()
        self._sizes: list[int] = []
        self._all_uses: list[Uses] = []
        self._known: dict[tuple[int, ...], Idle] = {}
        self._scores: dict[tuple[int, int, int], Scores] = {}
        self._by_shape: dict[int, tuple[tuple[Way, ...], int, Scores]] = {}
        """By shape: its ways, the nodes they lead to, its scores. If the ways change, the rest is void."""
        self._keys = 0

    # -- the measure -----------------------------------------------------------------------------------------

    def fragmented(self, nodes: Nodes, number: int) -> int:
        """W F of a node: useless idle milli times the sum of the weights."""
        self._compile(nodes)
        idle = self._idle_of(nodes, number)
        uses = self.uses[number]
        return self.weight * sum(idle.left) - uses.of(idle, bisect_right(uses.cpus, nodes.cpu_free[number]))

    def score(self, gain: int) -> int:
        """The score of an improvement of W F."""
        return bisect_right(self._thresholds, gain)

    # -- choosing --------------------------------------------------------------------------------------------

    def best(self, nodes: Nodes, shape: Shape, members: int) -> int:
        """The node for one task: 1. highest score, 2. lowest number; -1: none of them has room."""
        members = leave_out_reserved(nodes, shape, members)
        _ways, _all, scores = self.of(nodes, shape)
        scores.refresh(self, nodes)
        shifted = nodes.overlaid & members
        score, best = scores.best(nodes, shape.memory_mib, members ^ shifted)
        for number in each(shifted):
            if shape.memory_mib <= nodes.memory_free[number]:
                own = scores.score(self, nodes, number, self._idle_of(nodes, number))
                if own > score or (own == score and own != NO_ROOM and number < best):
                    score, best = own, number
        return best if score != NO_ROOM else -1

    def gpu(self, nodes: Nodes, shape: Shape, number: int) -> int:
        """The GPU of a node for one share, by the same score; of equals, the lowest number."""
        scores = self.of(nodes, shape)[2]
        uses, cpu_free = self.uses[number], nodes.cpu_free[number]
        had, has = bisect_right(uses.cpus, cpu_free), bisect_right(uses.cpus, cpu_free - shape.cpu_milli)
        options = scores.options(self, uses, self._idle_of(nodes, number), had, has)
        top = max(options)[0]
        alike = {taken for score, taken in options if score == top}
        return next(gpu for gpu, left in enumerate(find_uncut_free(nodes, number)) if left in alike)

    def of(self, nodes: Nodes, shape: Shape) -> tuple[tuple[Way, ...], int, Scores]:
        """The ways of a shape, the nodes they lead to, and their scores (not refreshed)."""
        self._compile(nodes)
        known = self._by_shape.get(shape.index)
        if known is None or known[0] is not shape.ways:
            members = 0
            for way in shape.ways:
                members |= nodes.kinds[way.kind].members & way.pools
            known = self._by_shape[shape.index] = (shape.ways, members, self._scores_of(shape))
        return known

    # -- compiling -------------------------------------------------------------------------------------------

    def _scores_of(self, shape: Shape) -> Scores:
        key = (shape.gpus, shape.milli, shape.cpu_milli)
        scores = self._scores.get(key)
        if scores is None:
            if len(self._scores) >= _SIZES_MAX:
                self._scores.clear()
                self._by_shape.clear()
            offsets = []
            for uses in self._all_uses:
                offsets.append(self._keys)
                self._keys += uses.stride * uses.stride
            scores = self._scores[key] = Scores(shape, offsets, self._fleet)
        return scores

    def _compile(self, nodes: Nodes) -> None:
        """Compile against the fleet if it has changed. Its shapes are already compiled again by then."""
        if self._fleet == len(nodes.node):
            return
        self._fleet = len(nodes.node)
        self._sizes = sorted({shape.milli for shape, _weight in self.mix if shape.gpus})
        by_kind: dict[tuple[int, str], Uses] = {}
        self.uses, self._all_uses, offset = [], [], 0
        for kind, node in zip(nodes.kind, nodes.node, strict=True):
            uses = by_kind.get((kind, node.pool))
            if uses is None:
                uses = Uses(len(self._all_uses), offset, self._tasks(kind, node.pool), self._sizes)
                by_kind[kind, node.pool] = uses
                self._all_uses.append(uses)
                offset += uses.stride
            self.uses.append(uses)
        self._known.clear()
        self._scores.clear()
        self._by_shape.clear()
        self._keys = 0
        nothing = Idle((), self._sizes)
        self.idle = [nothing] * self._fleet
        self._watch = DirtyNodes()

    def _tasks(self, kind: int, pool: str) -> list[Task]:
        """The expected tasks that an empty node of this kind and pool could run."""
        found = []
        for shape, weight in self.mix:
            way = shape.way_on.get(kind)
            if way is not None and shape.gpus and (not shape.ask.pools or pool in shape.ask.pools):
                tasks = way.tasks_per_node
                found.append(Task(shape.milli, shape.gpus * tasks, shape.cpu_milli * tasks, weight))
        return found

    def refresh(self, nodes: Nodes) -> None:
        """Update what is idle on the nodes that have changed."""
        for number in self._watch.changed(nodes):
            self.idle[number] = self._idle_of(nodes, number)

    def _idle_of(self, nodes: Nodes, number: int) -> Idle:
        return self.idle_as(tuple(find_uncut_free(nodes, number)))

    def idle_as(self, free: tuple[int, ...]) -> Idle:
        """The cached findings for these idle GPUs; overdrawn GPUs count as not idle."""
        idle = self._known.get(free)
        if idle is None:
            if len(self._known) >= _IDLE_MAX:
                self._known.clear()
            left = tuple(sorted([max(0, milli) for milli in free]))
            idle = self._known.get(left)
            if idle is None:
                idle = self._known[left] = Idle(left, self._sizes)
            self._known[free] = idle
        return idle
