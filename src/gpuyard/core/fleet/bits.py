"""Sets of small integers as the bits of a Python int.

A set of nodes is one int: membership, union and "the lowest free one" are single operations on machine words, and
the order of iteration is the order of the numbers, so that nothing depends on a hash. The GPUs of a node are a mask
in the same way.
"""

from collections.abc import Iterator
from functools import lru_cache


class _Positions(dict[int, tuple[int, ...]]):
    """Filled on demand: nodes have few GPUs, so few masks exist, and a look-up costs less than a call."""

    def __missing__(self, mask: int) -> tuple[int, ...]:
        self[mask] = found = tuple(each(mask))
        return found


positions = _Positions()
"""GPU mask -> the numbers of its GPUs, lowest first."""


def each(members: int) -> Iterator[int]:
    """The set bits, lowest first."""
    while members:
        low = members & -members
        yield low.bit_length() - 1
        members ^= low


def lowest_bit(members: int) -> int:
    """The lowest set bit's number."""
    return (members & -members).bit_length() - 1


@lru_cache(maxsize=65_536)
def choose_gpus(free: int, count: int, group_size: int, gpus: int) -> int:
    """`count` of the free GPUs, in as few NVLink groups as possible and leaving whole groups to others.

    1. whole groups while at least a group's worth is wanted; 2. for the rest the group with the fewest free GPUs
    that still holds it; 3. otherwise the groups with the most free GPUs first. Ties go to the lowest GPU.
    """
    if group_size <= 1 or group_size >= gpus:
        return lowest_bits(free, count)
    groups = []
    for first in range(0, gpus, group_size):
        part = free & (((1 << group_size) - 1) << first)
        groups.append((part.bit_count(), first, part))
    chosen = 0
    while count:
        whole = [g for g in groups if g[0] == group_size] if count >= group_size else []
        holds = [g for g in groups if g[0] >= count]
        if whole:
            pick = whole[0]
        elif holds:
            pick = min(holds)
        else:
            pick = max(groups, key=lambda g: (g[0], -g[1]))
        groups.remove(pick)
        part = lowest_bits(pick[2], min(count, pick[0]))
        chosen |= part
        count -= part.bit_count()
    return chosen


def lowest_bits(mask: int, count: int) -> int:
    """The `count` lowest set bits."""
    if mask.bit_count() == count:
        return mask
    chosen = 0
    for _ in range(count):
        low = mask & -mask
        chosen |= low
        mask ^= low
    return chosen
