"""What the kernel counts: of the machine in /proc and /sys, of attempts in their cgroups or by their processes."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from gpuyard.telemetry.attribution import find_attempt
from gpuyard.telemetry.sources import AttemptPlace

_SECTOR = 512
_IB_WORD = 4
"""InfiniBand counts in words of four bytes."""
_NO_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")
"""Devices that lie on others, or on none."""
_ROUNDS_MAX = 64

Values = dict[str, int]


class Kernel:
    """The files below `root`, which is the machine's own unless a test says otherwise."""

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")
        self._tick_ms = 1000 // os.sysconf("SC_CLK_TCK")
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._cgroup_mount = self._mounted()

    def _read(self, path: str) -> str:
        with open(f"{self._root}{path}", encoding="utf-8", errors="replace") as file:
            return file.read()

    def _mounted(self) -> str:
        """Where cgroup v2 is mounted; empty: nowhere."""
        with suppress(OSError):
            for line in self._read("/proc/self/mountinfo").splitlines():
                before, _, after = line.partition(" - ")
                if after.startswith("cgroup2 "):
                    return before.split()[4]
        return ""

    # ---- the machine

    def node(self) -> Values:
        """The machine's own signals. What this kernel does not tell is left out."""
        found: Values = {}
        with suppress(OSError, ValueError, IndexError):
            ticks = [int(word) for word in self._read("/proc/stat").split("\n", 1)[0].split()[1:9]]
            # All but idle, and but waiting for disks.
            found["cpu"] = (sum(ticks) - ticks[3] - ticks[4]) * self._tick_ms
        with suppress(OSError, ValueError, KeyError):
            memory = dict(
                line.split(":", 1) for line in self._read("/proc/meminfo").splitlines() if ":" in line
            )
            total, free = (int(memory[name].split()[0]) >> 10 for name in ("MemTotal", "MemAvailable"))
            found |= {"memory_used": total - free, "memory_available": free}
        with suppress(OSError, ValueError, IndexError):
            found |= self._disks()
        with suppress(OSError, ValueError, IndexError):
            found |= self._network()
        found |= self._infiniband()
        for name in ("cpu", "memory", "io"):
            with suppress(OSError, ValueError, IndexError):
                found[f"{name}_stalled"] = _stalled_ms(self._read(f"/proc/pressure/{name}"))
        return found

    def _disks(self) -> Values:
        """Whole disks: partitions and volumes lie on them and would count twice."""
        whole = [name for name in os.listdir(f"{self._root}/sys/block") if not name.startswith(_NO_DISKS)]
        rows = [line.split() for line in self._read("/proc/diskstats").splitlines()]
        mine = [row for row in rows if row[2] in whole]
        return {
            "disk_read": sum([int(row[5]) for row in mine]) * _SECTOR,
            "disk_written": sum([int(row[9]) for row in mine]) * _SECTOR,
        }

    def _network(self) -> Values:
        rows = [line.partition(":") for line in self._read("/proc/net/dev").splitlines()[2:]]
        mine = [rest.split() for name, _, rest in rows if name.strip() != "lo"]
        return {
            "net_received": sum([int(row[0]) for row in mine]),
            "net_sent": sum([int(row[8]) for row in mine]),
        }

    def _infiniband(self) -> Values:
        top = "/sys/class/infiniband"
        found: Values = {}
        with suppress(OSError, ValueError):
            for card in sorted(os.listdir(f"{self._root}{top}")):
                for port in sorted(os.listdir(f"{self._root}{top}/{card}/ports")):
                    counters = f"{top}/{card}/ports/{port}/counters"
                    for name, file in (("ib_received", "port_rcv_data"), ("ib_sent", "port_xmit_data")):
                        words = int(self._read(f"{counters}/{file}"))
                        found[name] = found.get(name, 0) + words * _IB_WORD
        return found

    # ---- attempts

    def attempt(self, place: AttemptPlace) -> Values:
        """What the processes of an attempt took, by its cgroups; where these say nothing, by its processes."""
        found: Values = {}
        if place.group:
            found |= self._group(place.group)
        found |= self._group_v1(place.groups_v1 or {})
        if ("cpu" not in found or "memory" not in found) and place.pids:
            found = self._processes(place.pids) | found
        return found

    def _group(self, folder: str) -> Values:
        found: Values = {}
        with suppress(OSError, ValueError, KeyError):
            figures = dict(line.split() for line in self._read(f"{folder}/cpu.stat").splitlines())
            found["cpu"] = int(figures["usage_usec"]) // 1000
        for name, file in (("memory", "memory.current"), ("memory_peak", "memory.peak")):
            with suppress(OSError, ValueError):
                found[name] = int(self._read(f"{folder}/{file}")) >> 20
        with suppress(OSError, ValueError):
            # Each line is a device and its figures: `259:0 rbytes=1 wbytes=2 …`.
            words = [word.partition("=") for word in self._read(f"{folder}/io.stat").split() if "=" in word]
            for name, figure in (("disk_read", "rbytes"), ("disk_written", "wbytes")):
                found[name] = sum([int(value) for each, _, value in words if each == figure])
        for name in ("memory", "io"):
            with suppress(OSError, ValueError, IndexError):
                found[f"{name}_stalled"] = _stalled_ms(self._read(f"{folder}/{name}.pressure"))
        return found

    def _group_v1(self, folders: Mapping[str, str]) -> Values:
        found: Values = {}
        if folder := folders.get("memory"):
            files = (("memory", "memory.usage_in_bytes"), ("memory_peak", "memory.max_usage_in_bytes"))
            for name, file in files:
                with suppress(OSError, ValueError):
                    found[name] = int(self._read(f"{folder}/{file}")) >> 20
        if folder := folders.get("cpuacct"):
            with suppress(OSError, ValueError):
                found["cpu"] = int(self._read(f"{folder}/cpuacct.usage")) // 1_000_000
        return found

    def _processes(self, roots: Iterable[int]) -> Values:
        """Processes and all below them. What a child took is its parent's once it has ended."""
        found: Values = {"cpu": 0, "memory": 0}
        for pid in self.below(roots):
            with suppress(OSError, ValueError, IndexError):
                fields = self._read(f"/proc/{pid}/stat").rpartition(")")[2].split()
                found["cpu"] += sum([int(ticks) for ticks in fields[11:15]]) * self._tick_ms
                found["memory"] += int(fields[21]) * self._page >> 20
        return found

    def below(self, roots: Iterable[int]) -> list[int]:
        """These processes that live, and all their descendants."""
        found, todo = [], list(roots)
        while todo:
            pid = todo.pop()
            with suppress(OSError):
                for thread in os.listdir(f"{self._root}/proc/{pid}/task"):
                    with suppress(OSError):
                        children = self._read(f"/proc/{pid}/task/{thread}/children").split()
                        todo += [int(child) for child in children]
                found.append(pid)
        return sorted(set(found))

    # ---- which process is whose

    def attempt_of(self, places: Sequence[AttemptPlace]) -> Callable[[int], str]:
        """A function that names the attempt of a process; empty: it is nobody's.

        The cgroup tells, since a process cannot leave it. An attempt without one is known by the process above.
        """
        mount = self._cgroup_mount
        groups = {
            each.group[len(mount) :] if mount and each.group.startswith(mount) else each.group: each.key
            for each in places
            if each.group
        }
        roots = {pid: each.key for each in places for pid in each.pids}

        def whose(pid: int) -> str:
            with suppress(OSError):
                for line in self._read(f"/proc/{pid}/cgroup").splitlines():
                    if line.startswith("0::") and (key := find_attempt(line[3:].strip(), groups)):
                        return key
            for _round in range(_ROUNDS_MAX):
                if pid in roots:
                    return roots[pid]
                try:
                    pid = int(self._read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])
                except (OSError, ValueError, IndexError):
                    return ""
                if pid <= 1:
                    return ""
            return ""

        return whose

    def name_of(self, pid: int) -> str:
        """The name of a process's program; empty: it is gone, or hidden."""
        with suppress(OSError):
            return self._read(f"/proc/{pid}/comm").strip()
        return ""


def _stalled_ms(text: str) -> int:
    """The total of the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=123`, which is in microseconds."""
    some = next(line for line in text.splitlines() if line.startswith("some"))
    return int(some.rpartition("total=")[2]) // 1000
