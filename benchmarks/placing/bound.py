"""How much could have been allocated with all arrivals known: a linear program, and so an upper bound.

Every GPU is filled in patterns of tasks that fit on one GPU; the patterns of a kind of node may use its GPUs, cores and
memory, in fractions and pooled over the nodes of the kind. A task of several GPUs takes as many whole ones, not
necessarily of one node. Any task may be left out, even one that would fit. No schedule can do better.

`must` names tasks that have to be taken. With all arrivals in it that came before a policy first refused their kind,
the program says how far any policy could get that, like this one, takes whatever fits.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gpuyard.errors import YardError
from gpuyard.model.units import MILLI
from gpuyard.packing.knapsack import fill_best, read_pattern
from gpuyard.packing.tasks import NodeShape, Task, exact_milli
from placing.protocol import Comparison, PodKind, kind_of

_ROUNDS_MAX = 200
_ENOUGH = 1e-6
_SHORT = 1e-3
"""In tasks: if less than this of the required tasks is left out, it is noise of the solver."""
_MUST = 20.0
"""The gain of taking a required task, in GPUs: more than anything else that could be done instead."""


class Bound:
    """The program of one fleet and its tasks. Patterns found for one seed are reused for the next."""

    def __init__(self, nodes: Sequence[NodeShape], tasks: Sequence[Task]) -> None:
        self._tasks = list(tasks)
        self._kinds = sorted(set(nodes))
        self._many = [list(nodes).count(kind) for kind in self._kinds]
        unit = exact_milli([task.gpu_milli for task in tasks if task.gpus])
        self._room = MILLI // unit
        self._steps = [task.gpu_milli // unit for task in tasks]
        self._columns: list[dict[int, float]] = []
        self._gains: list[float] = []
        self._known: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
        self._shared: list[list[int]] = []
        for kind in range(len(self._kinds)):
            self._shared.append([])
            for number, task in enumerate(self._tasks):
                if self._kinds[kind].could_run(task):
                    self._single(kind, number, task)

    def _single(self, kind: int, number: int, task: Task) -> None:
        if task.gpus == 1 and task.gpu_milli < MILLI:
            self._shared[kind].append(number)
            self._add(kind, {number: MILLI // task.gpu_milli}, 1)
        else:
            self._add(kind, {number: 1}, task.gpus)

    def _add(self, kind: int, counts: dict[int, int], gpus: int) -> bool:
        key = (kind, tuple(sorted(counts.items())))
        if key in self._known:
            return False
        self._known.add(key)
        rows, kinds = len(self._tasks), len(self._kinds)
        column: dict[int, float] = {}
        gain = 0.0
        for number, count in counts.items():
            task = self._tasks[number]
            column[number] = float(count)
            column[rows + kinds + kind] = (
                column.get(rows + kinds + kind, 0.0) + count * task.cpu_milli / MILLI
            )
            column[rows + 2 * kinds + kind] = (
                column.get(rows + 2 * kinds + kind, 0.0) + count * task.memory_mib / 1024
            )
            gain += count * task.asked_milli / MILLI
        column[rows + kind] = float(gpus)
        self._columns.append(column)
        self._gains.append(gain)
        return True

    def most_milli(self, counts: Sequence[int], must: Sequence[int] | None = None) -> float | None:
        """The most that these counts of tasks could allocate; None if not all required tasks can be taken."""
        rows, kinds = len(self._tasks), len(self._kinds)
        limits = [float(count) for count in counts]
        limits += [count * kind.gpus for kind, count in zip(self._kinds, self._many, strict=True)]
        limits += [
            count * kind.cpu_milli / MILLI for kind, count in zip(self._kinds, self._many, strict=True)
        ]
        limits += [
            count * kind.memory_mib / 1024 for kind, count in zip(self._kinds, self._many, strict=True)
        ]
        value = short = 0.0
        for _ in range(_ROUNDS_MAX):
            value, duals, short = self._solve(limits, must)
            taken = [
                duals[i] - (duals[rows + 3 * kinds + i] if must is not None else 0.0) for i in range(rows)
            ]
            if not self._grow(taken, duals):
                break
        return value * MILLI if short < _SHORT else None

    def _solve(self, limits: list[float], must: Sequence[int] | None) -> tuple[float, list[float], float]:
        """Solve it with the patterns so far: what is allocated, the prices of its limits, what was not taken."""
        linprog, matrix = _scipy()
        columns, gains, upper = list(self._columns), list(self._gains), limits
        bounds: list[tuple[float, float | None]] = [(0.0, None)] * len(columns)
        if must is not None:
            # One more column for each task: how many required ones are taken, at most as many as are taken in all.
            first = len(limits)
            upper = limits + [0.0] * len(must)
            columns = [{**c, **{first + i: -v for i, v in c.items() if i < len(must)}} for c in columns]
            columns += [{first + i: 1.0} for i in range(len(must))]
            gains += [_MUST] * len(must)
            bounds = bounds + [(0.0, float(count)) for count in must]
        data = [value for column in columns for value in column.values()]
        row = [i for column in columns for i in column]
        at = [j for j, column in enumerate(columns) for _ in column]
        table = matrix((data, (row, at)), shape=(len(upper), len(columns)))
        found = linprog([-gain for gain in gains], A_ub=table, b_ub=upper, bounds=bounds, method="highs")
        if found.status != 0:
            raise YardError(f"the linear program of the bound was not solved: {found.message}")
        taken = float(sum(found.x[len(self._columns) :]))
        short = sum(must) - taken if must is not None else 0.0
        return -float(found.fun) - _MUST * taken, [-float(dual) for dual in found.ineqlin.marginals], short

    def _grow(self, taken: list[float], duals: list[float]) -> bool:
        """Add the best pattern of each kind under these prices; False if none improves the result."""
        rows, kinds = len(self._tasks), len(self._kinds)
        grown = False
        for kind, shared in enumerate(self._shared):
            core, memory = duals[rows + kinds + kind], duals[rows + 2 * kinds + kind]
            steps = [self._steps[i] for i in shared]
            values = [
                task.gpu_milli / MILLI
                - taken[i]
                - core * task.cpu_milli / MILLI
                - memory * task.memory_mib / 1024
                for i, task in ((i, self._tasks[i]) for i in shared)
            ]
            best, first = fill_best(values, steps, self._room)
            if best[-1] > duals[rows + kind] + _ENOUGH:
                counts = read_pattern(first, steps, self._room)
                grown = self._add(kind, {shared[item]: count for item, count in counts.items()}, 1) or grown
        return grown


def bound_pct(
    lists: Comparison, limit: Bound, seed: int, refused: dict[PodKind, int] | None = None
) -> float | None:
    """The best possible allocation of the arrivals until 100 %, with all of them known in advance.

    With `refused` (the first refusal of each kind of pod), all pods that came before the first refusal of their kind
    are taken.
    """
    order = lists.until(lists.order(seed), 100)
    numbers = range(len(lists.tasks))
    arrived, must = Counter(order), None
    if refused is not None:
        first = [refused.get(kind_of(task), len(order)) for task in lists.tasks]
        taken = Counter([number for at, number in enumerate(order) if at < first[number]])
        must = [taken[number] for number in numbers]
    milli = limit.most_milli([arrived[number] for number in numbers], must)
    return None if milli is None else 100 * milli / lists.capacity_milli


def _scipy() -> tuple[Any, Any]:
    try:
        from scipy.optimize import linprog  # noqa: PLC0415 (heavy)
        from scipy.sparse import csr_matrix  # noqa: PLC0415 (as above)
    except ImportError:
        raise YardError(
            "the bound needs scipy, which is not installed",
            hint="`make setup` installs it in the checkout.",
        ) from None
    return linprog, csr_matrix
