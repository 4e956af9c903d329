"""A fleet as flat columns, and tasks that arrive on it one by one: what the kernel works on.

`bench_pack.py` and `bench_place.py` run on it. The live placement uses the same values on the core's own columns.
"""

from collections.abc import Callable, Sequence
from typing import Any

from gpuyard.model.units import MILLI
from gpuyard.packing.fgd.measure import compute_thresholds
from gpuyard.packing.tasks import Expected, NodeShape, Task
from gpuyard.packing.values import WEIGHING, Weighing, compute_values
from placing import kernel
from placing.compiled import compiled

POLICIES = {"random": kernel.RANDOM, "best-fit": kernel.BEST_FIT, "fgd": kernel.FGD, "pack": kernel.PACK}
"""The placements of the published comparison, and ours."""


class Board:
    """Nodes, the sizes of task that may arrive, and the columns for both."""

    def __init__(
        self,
        nodes: Sequence[NodeShape],
        tasks: Sequence[Task],
        expected: Expected,
        policy: str,
        *,
        compile_it: bool,
        weighing: Weighing = WEIGHING,
    ) -> None:
        self.policy = POLICIES[policy]
        self.nodes = list(nodes)
        self.kinds = sorted(set(nodes))
        number = {kind: i for i, kind in enumerate(self.kinds)}
        self._kind = [number[node] for node in nodes]
        self._compiled = compile_it
        self._module: Any = compiled() if compile_it else kernel
        self._sizes = self._column(
            [x for t in tasks for x in (t.cpu_milli, t.memory_mib, t.gpus, t.gpu_milli)]
        )
        self._count = len(tasks)
        self._allowed = self._column([int(kind.could_run(task)) for task in tasks for kind in self.kinds])
        values = compute_values(
            expected, [(kind, self._kind.count(i)) for i, kind in enumerate(self.kinds)], weighing
        )
        self._values = (
            self._column([value for table in values.tables for value in table]),
            self._column(values.core_costs),
            values.unit,
            values.columns,
        )
        self._frag = self._fragments(expected)
        self.fleet: Any = ()
        """The columns of the nodes: the second has their cores, the third their memory, the fourth their GPUs."""
        self.cache: Any = ()
        self.refused_while_fitting = 0

    def _column(self, values: Sequence[int]) -> Any:
        if not self._compiled:
            return list(values)
        import numpy  # noqa: PLC0415 (heavy, and only to compile)

        return numpy.array(values, dtype=numpy.int64)

    def empty(self, arrivals: int) -> None:
        """Start again with nothing placed, and room for `arrivals` entries in the log."""
        count, width = len(self.nodes), max([node.gpus for node in self.nodes], default=1) or 1
        gpu = [MILLI if i < node.gpus else 0 for node in self.nodes for i in range(width)]
        tables, cores, unit, columns = self._values
        rows = len(cores)
        self.fleet = (
            self._column(self._kind),
            self._column([node.cpu_milli for node in self.nodes]),
            self._column([node.memory_mib for node in self.nodes]),
            self._column(gpu),
            self._column([node.gpus for node in self.nodes]),
            width,
            tables,
            cores,
            unit,
            columns,
            self._column([0] * (count * rows)),
            self._column([0] * count),
        )
        per = (count + kernel.BLOCK - 1) // kernel.BLOCK
        self.cache = (
            self._column([kernel.NO_ROOM] * (self._count * count)),
            self._column([kernel.NO_ROOM] * (self._count * per)),
            self._column([*range(count), *[0] * arrivals]),
            self._column(range(count)),
            self._column([0] * self._count),
            self._column([count]),
            self._allowed,
            len(self.kinds),
            self._column([0] * len(self.kinds)),
        )
        self._spare = self._column([0] * rows)
        for node in range(count):
            self._module.sum_up(self.fleet, node)
        self.refused_while_fitting = 0

    def run(self, order: Sequence[int], draws: Sequence[int] = (), *, check: bool = True) -> list[int]:
        """Let tasks arrive, by the number of their size; returns the node of each, or -1. `draws` are for `random`."""
        play, went = self.ready(order, draws, check=check)
        play()
        return [int(node) for node in went]

    def ready(
        self, order: Sequence[int], draws: Sequence[int] = (), *, check: bool
    ) -> tuple[Callable[[], None], Any]:
        """The run, with everything prepared and nothing placed yet, and the column that will get the nodes."""
        self.empty(len(order))
        arrivals, went = self._column(order), self._column([0] * len(order))
        drawn = self._column(draws or [0] * len(order))
        told = (self.policy, self.fleet, self._frag, self.cache, self._sizes, arrivals, drawn, went)

        def play() -> None:
            self.refused_while_fitting = int(self._module.run(*told, self._spare, int(check)))

        return play, went

    def key(self, size: int, node: int) -> tuple[int, int]:
        """The key of a node for a size of task, and the GPU, computed without caches."""
        if not self._allowed[size * len(self.kinds) + self._kind[node]]:
            return kernel.NO_ROOM, 0
        found = self._module.key_of(
            self.policy, self.fleet, self._frag, node, self._sizes, size * 4, self._spare
        )
        return int(found[0]), int(found[1])

    def _fragments(self, expected: Expected) -> Any:
        """The tables of `kernel.useful`: the weight of the tasks that could run, by size, GPUs and cores."""
        wants = [(task, weight) for task, weight in expected if task.gpus]
        sizes = sorted({task.gpu_milli for task, _weight in wants})
        most = max([task.gpus for task, _weight in wants], default=1)
        by_kind = [[(t, w) for t, w in wants if kind.could_run(t)] for kind in self.kinds]
        limits = [sorted({task.cpu_milli for task, _weight in tasks}) for tasks in by_kind]
        classes = max([len(each) for each in limits], default=0) + 1
        weights = [0] * (len(self.kinds) * len(sizes) * (most + 1) * classes)
        for kind, tasks in enumerate(by_kind):
            for task, weight in tasks:
                z, first = sizes.index(task.gpu_milli), limits[kind].index(task.cpu_milli) + 1
                for gpus in range(task.gpus, most + 1):
                    for within in range(first, classes):
                        weights[((kind * len(sizes) + z) * (most + 1) + gpus) * classes + within] += weight
        starts = [0]
        for each in limits:
            starts.append(starts[-1] + len(each))
        total = sum([weight for _task, weight in expected])
        return (
            self._column(sizes),
            self._column([limit for each in limits for limit in each]),
            self._column(starts),
            self._column(weights),
            most,
            classes,
            self._column(compute_thresholds(total)),
            total,
        )
