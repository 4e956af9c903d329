"""What is free on each GPU of a node, worked out from what is kept."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from gpuyard.model.units import MILLI

if TYPE_CHECKING:
    from gpuyard.core.nodes import Nodes


class GpuFree:
    """What is free on each GPU, by node: kept only where it does not follow from the mask of wholly free GPUs."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: "Nodes") -> None:
        self._nodes = nodes

    def __getitem__(self, number: int) -> Sequence[int]:
        row = self._nodes.odd.get(number)
        return (
            row
            if row is not None
            else _plain_row(self._nodes.free_mask[number], self._nodes.home[number].gpus)
        )

    def __iter__(self) -> Iterator[Sequence[int]]:
        return map(self.__getitem__, range(len(self._nodes.node)))


@cache
def _plain_row(mask: int, gpus: int) -> tuple[int, ...]:
    return tuple([MILLI if mask >> gpu & 1 else 0 for gpu in range(gpus)])
