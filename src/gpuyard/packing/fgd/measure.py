"""How much of what is idle the expected tasks could not use: the measure of FGD (ATC'23), in integers.

For a node and an expected task m of popularity p(m), where `left` is the idle milli of each GPU:

    F(m) = sum of those `left` that are smaller than what m wants of a GPU    if m could run there now
    F(m) = sum of all `left`                                                 otherwise, and if m wants no GPU
    F    = sum over m of p(m) F(m)

"Could run" asks for the cores, the GPU model and enough GPUs, as published; memory is checked when a task is really
placed. A placement is scored `int(100 sigmoid((F before - F after) / 1000))`. For gangs, the
tasks that share a node count together.

With integer weights w(m) of sum W, W F = W (all idle) - U, where U sums w(m) x (idle of the GPUs that are large
enough) over the m that could run. Only U has to be computed, and it depends on little: the node's kind, between which
of the expected core counts its free cores are, and what is idle on its GPUs in any order. So U is cached by these.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from gpuyard.model.units import MILLI

_LOGIT_PICO = (
    40_005_334_614, 80_042_707_674, 120_144_311_842, 160_342_650_075, 200_670_695_462, 241_162_056_817,
    281_851_152_141, 322_773_392_263, 363_965_377_201, 405_465_108_108, 447_312_218_044, 489_548_225_319,
    532_216_813_747, 575_364_144_904, 619_039_208_406, 663_294_217_410, 708_185_057_924, 753_771_802_376,
    800_119_300_112, 847_297_860_387, 895_384_047_055, 944_461_608_841, 994_622_575_144, 1_045_968_555_183,
    1_098_612_288_668, 1_152_679_509_938, 1_208_311_205_925, 1_265_666_373_331, 1_324_925_414_744,
    1_386_294_361_120, 1_450_010_175_506, 1_516_347_489_368, 1_585_627_263_740, 1_658_228_076_604,
    1_734_601_055_388, 1_815_289_966_638, 1_900_958_761_193, 1_992_430_164_690, 2_090_741_096_934,
    2_197_224_577_336, 2_313_634_929_181, 2_442_347_035_369, 2_586_689_344_098, 2_751_535_313_042,
    2_944_438_979_166, 3_178_053_830_348, 3_476_098_689_835, 3_891_820_298_111, 4_595_119_850_135,
)  # fmt: skip
"""ln(s / (100 - s)) for the scores 51 to 99: where 100 sigmoid(x) reaches s, in units of 10^-12. Written out, because
the last digit of a logarithm may differ between machines."""


def compute_thresholds(weight: int) -> list[int]:
    """The smallest improvement, in milli-GPU x weight, for each score from 1 to 99."""
    logits = [-x for x in reversed(_LOGIT_PICO)] + [0] + list(_LOGIT_PICO)
    return [-(-weight * MILLI * logit // 10**12) for logit in logits]


class Idle:
    """What is idle on the GPUs of a node, in any order, with what was computed about it."""

    __slots__ = ("_after", "left", "scores", "tails", "usable")

    def __init__(self, left: tuple[int, ...], sizes: list[int]) -> None:
        self.left = left
        """Milli per GPU, smallest first."""
        self.tails: list[tuple[int, int]] = []
        """For each size of request: the idle milli on GPUs that are large enough, and how many GPUs they are."""
        for size in sizes:
            fitting = left[bisect_left(left, size) :]
            self.tails.append((sum(fitting), len(fitting)))
        self.usable: dict[int, int] = {}
        """Cache of `Uses.of`."""
        self.scores: dict[int, int] = {}
        """Cache of scores, by `Scores`, kind and cores."""
        self._after: dict[tuple[int, int], tuple[tuple[int, tuple[int, ...]], ...]] = {}

    def after(self, gpus: int, milli: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """The ways to take that much, each as what the GPU had and what is left on all; whole GPUs are all alike."""
        found = self._after.get((gpus, milli))
        if found is None:
            found = self._after[gpus, milli] = tuple(self._taken(gpus, milli))
        return found

    def _taken(self, gpus: int, milli: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        left = self.left
        first = bisect_left(left, milli)
        if len(left) - first < gpus:
            return
        if gpus == 1 and milli < MILLI:
            for at in range(first, len(left)):
                if at == first or left[at] != left[at - 1]:
                    yield left[at], tuple(sorted((*left[:at], left[at] - milli, *left[at + 1 :])))
            return
        # Several shares take the GPUs with the least left that suffice, as elsewhere.
        rest = [free - milli for free in left[first : first + gpus]]
        yield MILLI, tuple(sorted((*left[:first], *rest, *left[first + gpus :])))


class Task(NamedTuple):
    """What an expected task wants of one node."""

    milli: int
    """Of each GPU."""
    gpus: int
    cpu_milli: int
    weight: int


class Uses:
    """What the expected tasks could use of a node, for all nodes of one kind and pool."""

    __slots__ = ("_offset", "_weights", "cpus", "index", "stride")

    def __init__(self, index: int, offset: int, tasks: list[Task], sizes: list[int]) -> None:
        self.index = index
        self._offset = offset
        self.cpus = sorted({task.cpu_milli for task in tasks})
        """Core counts that make a difference. A class of free cores is how many of these it covers."""
        self.stride = len(self.cpus) + 1
        most = max([task.gpus for task in tasks], default=0)
        self._weights: list[list[list[int]]] = []
        """By size of request, GPUs that are large enough, and class of free cores: the weight that could run."""
        for size in sizes:
            table = [[0] * self.stride for _ in range(most + 1)]
            for milli, gpus, cpu_milli, weight in tasks:
                if milli == size:
                    for row in table[gpus:]:
                        for column in range(bisect_right(self.cpus, cpu_milli), self.stride):
                            row[column] += weight
            self._weights.append(table)

    def of(self, idle: Idle, cores: int) -> int:
        """U: weight x useful idle milli, with free cores of this class."""
        key = self._offset + cores
        found = idle.usable.get(key)
        if found is None:
            found = 0
            for (fitting, count), table in zip(idle.tails, self._weights, strict=True):
                if count:
                    found += fitting * table[min(count, len(table) - 1)][cores]
            idle.usable[key] = found
        return found
