"""Sizes of jobs, as reports group them: ranges of the GPUs that a job asks for, a gang with all its tasks.

The bounds are the same on every fleet unless a person names others (`--sizes 1,8,16`). They do not follow the nodes of
a fleet: a fleet may have nodes of several sizes, and figures of two fleets, two weeks or two yards could then not be
held against each other. The default is what most fleets have: one GPU, one node of eight, two of them, and more.

The simulator, previews and `yard waits` all group by this. Light: command lines show the default in their help.
"""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from gpuyard.quantities import GPUS_MAX, MILLI, parse_whole

BOUNDS_MAX = 16
"""More ranges than this would be no summary."""


class SizeRange(NamedTuple):
    """Some sizes of jobs that are counted together."""

    least: int
    """GPUs of the smallest job in it; 0 in the first range, which has shares, slices and jobs without GPUs too."""
    most: int | None
    """GPUs of the largest job in it; None: there is no bound."""

    @property
    def name(self) -> str:
        """`up to 1`, `2-8`, `17+`: in tables and in data alike."""
        if self.most is None:
            return f"{self.least}+"
        if not self.least:
            return f"up to {self.most}"
        return str(self.most) if self.least == self.most else f"{self.least}-{self.most}"

    @property
    def words(self) -> str:
        """As a sentence has it: `up to 1 GPU`, `2-8 GPUs`."""
        return f"{self.name} {'GPU' if self.most == 1 else 'GPUs'}"


class SizeRanges:
    """Ranges that together have every size of job; the last one is open."""

    __slots__ = ("_bounds_milli", "ranges")

    def __init__(self, bounds: Iterable[int]) -> None:
        """`bounds` are the most GPUs of each range but the last: rising, and above zero."""
        most = list(bounds)
        self._bounds_milli = [MILLI * gpus for gpus in most]
        least = [0, *[gpus + 1 for gpus in most]]
        self.ranges = tuple([SizeRange(*pair) for pair in zip(least, [*most, None], strict=True)])

    @property
    def names(self) -> list[str]:
        """Of the ranges, from the smallest jobs to the largest."""
        return [each.name for each in self.ranges]

    def place(self, gpu_milli: int) -> int:
        """Which of the ranges a job of this size is in. Between two whole numbers of GPUs the larger one counts."""
        return bisect_left(self._bounds_milli, gpu_milli)

    def name_of(self, gpu_milli: int) -> str:
        """The name of the range that a job of this size is in."""
        return self.ranges[self.place(gpu_milli)].name


SIZES_TEXT = "1,8,16"
"""The default, as people write it."""


def parse_sizes(text: str) -> SizeRanges:
    """Bounds such as `1,8,16`."""
    bounds = [parse_whole(word.strip(), least=1, most=GPUS_MAX) for word in text.split(",")]
    if len(bounds) > BOUNDS_MAX:
        raise ValueError(f"must be at most {BOUNDS_MAX} numbers of GPUs, not {len(bounds)}")
    if any([before >= after for before, after in pairwise(bounds)]):
        raise ValueError(f"must be rising numbers of GPUs such as {SIZES_TEXT}, not {text}")
    return SizeRanges(bounds)


SIZES = parse_sizes(SIZES_TEXT)
