"""Choices that stay the same when an option that was not chosen disappears.

Every pass works out the bookings again. A booking comes out the same if each choice is the first in a fixed order of
all options: a job that started outside the promised room has removed only options that were not chosen.
"""

from functools import lru_cache
from itertools import combinations

from gpuyard.core.fleet.bits import lowest_bits
from gpuyard.core.fleet.kinds import Kind
from gpuyard.core.fleet.levels import RACK, SWITCH
from gpuyard.core.fleet.shapes import Way


@lru_cache(maxsize=65_536)
def choose_gpus(free: int, count: int, group_size: int, gpus: int, inner: int = 0) -> int:
    """`count` of the free GPUs: 1. in the fewest groups of close GPUs; 2. in the first such groups; 3. the lowest.

    Within these groups, those of smaller groups of `inner` GPUs are chosen in the same way.
    """
    if group_size <= 1 or group_size >= gpus or count == 0:
        return lowest_bits(free, count)
    parts = [free & (((1 << group_size) - 1) << first) for first in range(0, gpus, group_size)]
    for together in range(1, len(parts) + 1):
        for groups in combinations(parts, together):
            if sum([part.bit_count() for part in groups]) >= count:
                return choose_gpus(sum(groups), count, inner, gpus)
    raise AssertionError(f"{count} of {free:b} were said to be free")


def choose_nodes(able: list[int], rest: list[int], way: Way, kind: Kind) -> tuple[list[int], list[int]]:
    """Nodes for a gang's full sets of tasks, and the nodes that may take the rest.

    1. all on one switch, the first with enough nodes; 2. all in such a rack; 3. otherwise the lowest numbers.
    """
    wanted = way.full_nodes + (way.rest_tasks > 0)
    levels = [kind.domains[level] for level in (SWITCH, RACK) if len(kind.domains[level]) > 1]
    for members in [there for domains in levels for there in domains.values()]:
        here = [number for number in able if members >> number & 1]
        beside = [number for number in rest if members >> number & 1]
        if len(here) >= way.full_nodes and (not way.rest_tasks or len(beside) >= wanted):
            able, rest = here, beside
            break
    full = able[: way.full_nodes]
    return full, [number for number in rest if number not in full]
