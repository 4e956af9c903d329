"""Parts of GPUs: what is free on each GPU of a node, and the users that share it."""

from collections.abc import Iterator, Sequence
from functools import cache

from gpuyard.core.fleet.bits import positions
from gpuyard.core.fleet.kinds import Kind
from gpuyard.model import Grant
from gpuyard.model.units import MILLI

PLAIN = (0, MILLI)
"""What is free of a GPU that is wholly taken or wholly free."""

Sharers = dict[int, dict[int, dict[str, int]]]
"""By node and GPU: how many shares each user has there."""


class GpuFree:
    """What is free on each GPU, by node: stored only where it does not follow from the mask of wholly free GPUs."""

    __slots__ = ("_free_mask", "_kind_of", "_partly_free")

    def __init__(self, partly_free: dict[int, list[int]], free_mask: list[int], kind_of: list[Kind]) -> None:
        self._partly_free = partly_free
        self._free_mask = free_mask
        self._kind_of = kind_of

    def __getitem__(self, number: int) -> Sequence[int]:
        row = self._partly_free.get(number)
        return row if row is not None else _plain_row(self._free_mask[number], self._kind_of[number].gpus)

    def __iter__(self) -> Iterator[Sequence[int]]:
        return map(self.__getitem__, range(len(self._free_mask)))


@cache
def _plain_row(mask: int, gpus: int) -> tuple[int, ...]:
    return tuple([MILLI if mask >> gpu & 1 else 0 for gpu in range(gpus)])


def enter_share(sharers: Sharers, grant: Grant, sign: int) -> None:
    """Add a share (-1) or remove it (1)."""
    row = sharers.setdefault(grant.node, {})
    for gpu in positions[grant.gpus]:
        users = row.setdefault(gpu, {})
        users[grant.user] = users.get(grant.user, 0) - sign
        if not users[grant.user]:
            del users[grant.user]
        if not users:
            del row[gpu]
    if not row:
        del sharers[grant.node]
