"""Cores next to GPUs: a job runs on those of the NUMA domains that its GPUs are in, and so its memory lies there, too.

The kernel gives memory next to the core that first writes to it, and memory further away only when that is used up.
Emulated nodes have the domains that yard.yaml gives them, over which the cores of this machine are spread evenly.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from gpuyard.engines.contract import Part
from gpuyard.engines.local.hosts import Host
from gpuyard.engines.machine.processes import parse_cores

_NODES = "/sys/devices/system/node"


def choose_cores(parts: Sequence[Part], hosts: Mapping[str, Host], *, emulated: bool) -> str:
    """The cores of an attempt, `0-3,8`; empty: all, since it has no GPUs, asks for more, or it makes no difference."""
    found: set[int] = set()
    for part in parts:
        host = hosts[part.node]
        count = host.node.numa_domains
        if count < 2 or not part.gpus:
            return ""
        used = {host.readings[gpu].numa for gpu in part.gpus}
        if part.cpu_milli * count > host.node.cpu_milli * len(used):
            return ""
        there = spread(tuple(sorted(os.sched_getaffinity(0))), count) if emulated else read_domains()
        own = [there.get(domain, frozenset()) for domain in sorted(used)]
        if not all(own):
            return ""
        found.update(*own)
    return cores_text(found) if found < os.sched_getaffinity(0) else ""


def spread(numbers: tuple[int, ...], count: int) -> dict[int, frozenset[int]]:
    """Cores dealt out over so many domains, in order."""
    size = len(numbers)
    return {
        each: frozenset(numbers[each * size // count : (each + 1) * size // count]) for each in range(count)
    }


@lru_cache(maxsize=1)
def read_domains(folder: str = _NODES) -> dict[int, frozenset[int]]:
    """The cores of each NUMA domain of this machine that the yard may use."""
    found: dict[int, frozenset[int]] = {}
    with suppress(OSError):
        for name in sorted(os.listdir(folder)):
            if name.startswith("node") and name[4:].isdecimal():
                with open(f"{folder}/{name}/cpulist", encoding="ascii") as file:
                    found[int(name[4:])] = frozenset(parse_cores(file.read()) & os.sched_getaffinity(0))
    return found


def cores_text(numbers: set[int]) -> str:
    """Cores as the kernel writes them, `0-3,8`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join([f"{first}-{last}" if last > first else str(first) for first, last in runs])
