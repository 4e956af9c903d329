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
def choose_gpus(free: int, count: int, group_size: int, gpus: int, inner: int = 0) -> int:
    """`count` of the free GPUs, in as few groups of close GPUs as possible and leaving whole groups to others.

    1. whole groups while at least a group's worth is wanted; 2. for the rest the group with the fewest free GPUs
    that still holds it; 3. otherwise the groups with the most free GPUs first. Ties go to the lowest GPU. Within a
    group those of smaller groups, of `inner` GPUs, are chosen in the same way.
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
        part = choose_gpus(pick[2], min(count, pick[0]), inner, gpus)
        chosen |= part
        count -= part.bit_count()
    return chosen


def split_domains(mask: int, size: int) -> list[int]:
    """GPUs of a node by NUMA domain, so many to each."""
    found, domain = [], (1 << size) - 1
    while mask:
        if mask & domain:
            found.append(mask & domain)
        mask &= ~domain
        domain <<= size
    return found


@lru_cache(maxsize=65_536)
def tasks_in_domains(free: int, each_task: int, size: int) -> int:
    """How many tasks have room if all GPUs of a task are in one NUMA domain."""
    return sum([part.bit_count() // each_task for part in split_domains(free, size)])


@lru_cache(maxsize=65_536)
def choose_in_domains(free: int, tasks: int, each_task: int, size: int, close: int, gpus: int) -> int:
    """GPUs for tasks of which each has all of its own in one NUMA domain.

    Task by task the domain with the fewest free GPUs that holds it, of equals the lowest; within it, close GPUs.
    """
    chosen = 0
    for _task in range(tasks):
        holds = [part for part in split_domains(free & ~chosen, size) if part.bit_count() >= each_task]
        part = min(holds, key=lambda part: (part.bit_count(), part & -part))
        chosen |= choose_gpus(part, each_task, close, gpus)
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
