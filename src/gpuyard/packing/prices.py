"""What a task of each size costs the fleet, in GPUs: the dual prices of its cutting-stock problem.

The linear program asks how much of the expected tasks, all in the same proportion, the GPUs could hold if every GPU
were filled in the best pattern:

    largest a   such that   patterns hold at least a x demand of every size,   and use no more GPUs than each model has

Its dual says what one more task of a size costs. A task of 810 milli that leaves 190 which no expected task can use
costs as much as one of 1000, and a small task that fits beside it costs nothing. Prices are scaled so that the expected
tasks cost, on average, what they ask for.

There are as many rows as sizes and models (some dozens) and far more patterns than could be listed, so patterns are
made on demand: the best one under the current prices is a knapsack. The arithmetic is the four operations on doubles
in a fixed order, which give the same bits everywhere; what leaves this module is integers.
"""

from collections.abc import Sequence

from gpuyard.model.units import MILLI
from gpuyard.packing.knapsack import fill_best, read_pattern
from gpuyard.packing.tasks import SizeDemand, unit_milli

PRICE_BITS = 20
GPU = 1 << PRICE_BITS
"""The value of one GPU."""

_STEPS_MAX = 1_000
"""Steps of the simplex method; some hundreds are usual. The prices of an unfinished run are still prices."""
_TINY = 1e-9
_ENOUGH = 1e-6
"""A pattern that improves the result by less than this is not worth a step."""
_NUDGE = 1e-7
"""Given to rows with limit 0, a different multiple to each, so that no two steps tie and none is in vain."""


def price_sizes(demand: Sequence[SizeDemand], gpus: dict[str, int]) -> list[int]:
    """The price of one task of each size, in 1/`GPU`. A size that no model serves costs what it asks for."""
    served = [i for i, each in enumerate(demand) if _models(each, gpus)]
    found = [(each.size.gpus * each.size.gpu_milli * GPU + MILLI // 2) // MILLI for each in demand]
    if served:
        program = _Program([demand[i] for i in served], gpus)
        for i, price in zip(served, program.solve(), strict=True):
            found[i] = int(price * GPU + 0.5)
    return found


def _models(demand: SizeDemand, gpus: dict[str, int]) -> list[str]:
    return [
        model
        for model in sorted(gpus)
        if gpus[model] and (not demand.size.models or model in demand.size.models)
    ]


class _Program:
    """The simplex method with the inverse of the basis written out; patterns come from knapsacks."""

    def __init__(self, demand: Sequence[SizeDemand], gpus: dict[str, int]) -> None:
        unit = unit_milli([each.size for each in demand])
        self._room = MILLI // unit
        self._steps = [-(-each.size.gpu_milli // unit) for each in demand]
        self._per_task = [each.size.gpus for each in demand]
        self._groups = _alike(demand, gpus)
        """Models that serve the same sizes, as (sizes, share of the GPUs)."""
        asked = sum([each.weight * each.size.gpus * each.size.gpu_milli for each in demand])
        self._wanted = [each.weight * MILLI / asked for each in demand]
        rows = len(demand) + len(self._groups)
        self._sizes = len(demand)
        self._inverse = [[1.0 if i == j else 0.0 for j in range(rows)] for i in range(rows)]
        self._basis = [_NUDGE * (i + 1) / rows for i in range(len(demand))] + [
            share for _s, share in self._groups
        ]

    def solve(self) -> list[float]:
        """The price of each size, in GPUs."""
        column = [(i, wanted) for i, wanted in enumerate(self._wanted)]
        top = self._enter(column)
        turn = 0
        for _ in range(_STEPS_MAX):
            found = self._pattern(top, turn)
            if found is None:
                break
            turn, column = found
            row = self._enter(column)
            if row == top:
                # The demand column left the basis: without it nothing has a price, so enter it again.
                top = self._enter([(i, wanted) for i, wanted in enumerate(self._wanted)])
        return [max(0.0, price) for price in self._inverse[top][: self._sizes]]

    def _pattern(self, top: int, turn: int) -> tuple[int, list[tuple[int, float]]] | None:
        """The next column worth entering: the models take turns, and each offers its best pattern."""
        price = self._inverse[top]
        groups = self._groups
        for offset in range(len(groups)):
            at = (turn + offset) % len(groups)
            sizes = groups[at][0]
            steps = [self._steps[i] for i in sizes]
            values = [price[i] / self._per_task[i] for i in sizes]
            best, first = fill_best(values, steps, self._room)
            if best[-1] > price[self._sizes + at] + _ENOUGH:
                counts = read_pattern(first, steps, self._room)
                column = [
                    (sizes[item], -count / self._per_task[sizes[item]]) for item, count in counts.items()
                ]
                return at, [*column, (self._sizes + at, 1.0)]
        return None

    def _enter(self, column: list[tuple[int, float]]) -> int:
        """Bring a column into the basis; returns the row that it replaced."""
        inverse, basis = self._inverse, self._basis
        moved = [sum([line[i] * value for i, value in column]) for line in inverse]
        leaving, least = -1, 0.0
        for row, value in enumerate(moved):
            if value > _TINY:
                ratio = basis[row] / value
                if leaving < 0 or ratio < least:
                    leaving, least = row, ratio
        assert leaving >= 0, "the fleet is finite, so every column runs into a limit"
        pivot = inverse[leaving]
        scale = moved[leaving]
        pivot = inverse[leaving] = [value / scale for value in pivot]
        basis[leaving] = least
        for row, value in enumerate(moved):
            if row != leaving and value:
                inverse[row] = [a - value * b for a, b in zip(inverse[row], pivot, strict=True)]
                basis[row] -= value * least
        return leaving


def _alike(demand: Sequence[SizeDemand], gpus: dict[str, int]) -> list[tuple[list[int], float]]:
    """The models that serve the same sizes, with their part of all GPUs."""
    total = sum(gpus.values())
    groups: dict[tuple[int, ...], int] = {}
    for model in sorted(gpus):
        sizes = tuple(
            [i for i, each in enumerate(demand) if not each.size.models or model in each.size.models]
        )
        if sizes and gpus[model]:
            groups[sizes] = groups.get(sizes, 0) + gpus[model]
    return [(list(sizes), count / total) for sizes, count in sorted(groups.items())]
