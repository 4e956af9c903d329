"""cgroup v1: the limits of an attempt on machines whose kernel has its controllers in the old trees.

Such a machine may have a tree of v2 beside them without those controllers: processes are killed and frozen there
(`cgroups.Group`) and limited here. An attempt has one group in each tree that it needs, by controller. Only the
standard library, and little of it: supervisors import this.
"""

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from gpuyard.engines.local.attempt import cgroups
from gpuyard.engines.local.attempt.cgroups import OF_A_YARD, PERIOD_US, read
from gpuyard.engines.node.kernel.processes import put

CONTROLLERS = ("memory", "cpu", "cpuset", "devices")
_GONE_S = 0.2
_TRIES = 20


def trees() -> dict[str, str]:
    """Where the tree of each controller is mounted."""
    found: dict[str, str] = {}
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            words = after.split()
            if words and words[0] == "cgroup":
                for name in set(words[2].split(",")) & set(CONTROLLERS):
                    found.setdefault(name, before.split()[4])
    return found


def own_paths() -> dict[str, str]:
    """The path of this process in the tree of each controller, from its root."""
    rows = [line.split(":", 2) for line in read("/proc/self/cgroup").splitlines()]
    return {name: path for _number, names, path in rows for name in names.split(",") if name}


def find_bases(name: str, *, lacking: Iterable[str], root: bool) -> dict[str, str]:
    """The yard's own group for each of these controllers that this machine has here, made if need be."""
    where, own = trees(), own_paths()
    found = {}
    for controller in lacking:
        if controller not in where:
            continue
        inner = where[controller] + own.get(controller, "/").rstrip("/")
        for place in dict.fromkeys([where[controller], inner] if root else [inner]):
            base = os.path.join(place, name)
            with suppress(OSError):
                os.makedirs(base, exist_ok=True)
                if controller == "cpuset":
                    _spread(place, base)
                if os.access(f"{base}/tasks", os.W_OK):
                    found[controller] = base
                    break
    return found


def _spread(above: str, base: str) -> None:
    """A group of this controller has no cores and no memory before it is told."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if not read(f"{base}/{name}").strip():
            put(f"{base}/{name}", read(f"{above}/{name}").strip())


def give_up_groups(found: Mapping[str, str]) -> None:
    """Remove the yard's own groups, and those of yards that have ended, where they are empty.

    A yard that has just made its own finds it gone then, and makes it again with its next attempt.
    """
    for base in found.values():
        above = os.path.dirname(base)
        for name in [os.path.basename(base), *sorted(os.listdir(above))]:
            if OF_A_YARD.fullmatch(name):
                with suppress(OSError):
                    os.rmdir(os.path.join(above, name))


# -- one attempt -------------------------------------------------------------------------------------------------------


def make(plan: Mapping[str, Any]) -> None:
    """Make the attempt's groups with their limits; 0: none. Raises OSError where that fails."""
    groups: dict[str, str] = plan.get("v1") or {}
    for path in groups.values():
        _make(path)
    if (path := groups.get("memory", "")) and plan["memory_mib"] > 0:
        limit = str(plan["memory_mib"] << 20)
        put(f"{path}/memory.limit_in_bytes", limit)
        with suppress(OSError):
            # A kernel without swap accounting has no such file.
            put(f"{path}/memory.memsw.limit_in_bytes", limit)
    if (path := groups.get("cpu", "")) and plan["cpu_milli"] > 0:
        # The period of a new group is PERIOD_US.
        put(f"{path}/cpu.cfs_quota_us", str(max(1000, plan["cpu_milli"] * PERIOD_US // 1000)))
    if path := groups.get("cpuset", ""):
        base = os.path.dirname(path)
        _spread(os.path.dirname(base), base)
        _spread(base, path)
        if plan.get("cpus"):
            put(f"{path}/cpuset.cpus", plan["cpus"])


def _make(path: str) -> None:
    """Make a group; the yard's own above it may be removed meanwhile by another yard that ends."""
    for _ in range(_TRIES - 1):
        with suppress(FileNotFoundError):
            os.makedirs(path, exist_ok=True)
            return
    os.makedirs(path, exist_ok=True)


def join(groups: Mapping[str, str]) -> None:
    """Move the calling process, which has one thread, into the attempt's groups."""
    for path in groups.values():
        # By `cgroup.procs` it would stop every fork and every exit on the machine for some milliseconds.
        put(f"{path}/tasks", "0")


def killed_for_memory(groups: Mapping[str, str]) -> bool:
    """Whether the kernel killed a process because the group, or one that was made below it, was over its memory."""
    for folder, _folders, _files in os.walk(groups["memory"]) if "memory" in groups else ():
        with suppress(OSError, ValueError, KeyError):
            lines = read(f"{folder}/memory.oom_control").splitlines()
            if int(dict(line.split() for line in lines)["oom_kill"]) > 0:
                return True
    return False


def read_usage(groups: Mapping[str, str]) -> dict[str, int]:
    """The peak memory of all processes together in MiB; what is unknown is left out."""
    with suppress(OSError, ValueError, KeyError):
        return {"memory_mib": int(read(f"{groups['memory']}/memory.max_usage_in_bytes")) >> 20}
    return {}


def remove(groups: Mapping[str, str]) -> None:
    """Remove the attempt's groups; what is still in use is removed later (`cgroups.tidy`)."""
    until = time.monotonic() + _GONE_S
    for path in groups.values():
        cgroups.remove(path, max(0.0, until - time.monotonic()))
