"""The nouns of packing: what a task wants, what a node is, and sizes that are priced together."""

from collections.abc import Iterable, Sequence
from math import gcd
from typing import NamedTuple

from gpuyard.model.units import MILLI


class Task(NamedTuple):
    """What one task wants of one node."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    """Of each GPU; 0 without GPUs."""
    models: tuple[str, ...] = ()
    """Suitable GPU models; empty: any."""

    @property
    def asked_milli(self) -> int:
        """Milli of GPUs, in all."""
        return self.gpus * self.gpu_milli


class NodeShape(NamedTuple):
    """What an empty node has."""

    model: str
    gpus: int
    cpu_milli: int
    memory_mib: int

    def could_run(self, task: Task) -> bool:
        """Whether the task fits on the empty node."""
        return (
            task.gpus <= self.gpus
            and task.cpu_milli <= self.cpu_milli
            and task.memory_mib <= self.memory_mib
            and (not task.models or (self.gpus > 0 and self.model in task.models))
        )


class Size(NamedTuple):
    """What tasks with the same price have in common: GPUs, how much of each, and models."""

    gpus: int
    gpu_milli: int
    models: tuple[str, ...]


class SizeDemand(NamedTuple):
    """The expected tasks of one size."""

    size: Size
    weight: int
    """How many there are, in any unit."""
    cpu_milli: int
    """The cores of all of them together, in the same unit."""


Expected = Sequence[tuple[Task, int]]
"""Expected tasks with their weights."""


SIZES_MAX = 64
"""How many sizes are priced: those that ask for the most. The work grows with the cube of their number."""

EXACT_MAX = 24
"""Up to this many different sizes are counted exactly to the milli; more are rounded up to `ROUGH_MILLI`."""

ROUGH_MILLI = 10


def group_by_size(expected: Expected) -> list[SizeDemand]:
    """The expected tasks that want GPUs, combined by size and sorted."""
    found: dict[Size, tuple[int, int]] = {}
    for task, weight in expected:
        if task.asked_milli > 0 and weight > 0:
            size = Size(task.gpus, task.gpu_milli, tuple(sorted(set(task.models))))
            count, cpu_milli = found.get(size, (0, 0))
            found[size] = (count + weight, cpu_milli + weight * task.cpu_milli)
    most = sorted(found, key=lambda size: (-found[size][0] * size.gpus * size.gpu_milli, size))
    return [SizeDemand(size, *found[size]) for size in sorted(most[:SIZES_MAX])]


def exact_milli(sizes: Iterable[int]) -> int:
    """The largest step in which everything that fits on a GPU can be counted exactly."""
    return gcd(MILLI, *sizes)


def unit_milli(sizes: Iterable[Size]) -> int:
    """The step in which fillings are counted: exact, or rough where exact would take long."""
    milli = {size.gpu_milli for size in sizes}
    exact = exact_milli(milli)
    return exact if exact >= ROUGH_MILLI or len(milli) <= EXACT_MAX else ROUGH_MILLI
