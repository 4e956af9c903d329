"""Resets what a job would inherit from the shell that started the yard: priority and resource limits.

A job gets those of the machine's first process, as a service would. Only root can raise what was lowered for good; on a
yard of an ordinary user a job gets as much of them as it may. Where memory runs out, the kernel ends jobs before the
server and the supervisors that they share the machine with.

Only the standard library, and little of it: supervisors import this.
"""

import os
import resource
from contextlib import suppress

from gpuyard.engines.machine import processes

_NAMES = {
    "Max cpu time": resource.RLIMIT_CPU,
    "Max file size": resource.RLIMIT_FSIZE,
    "Max data size": resource.RLIMIT_DATA,
    "Max stack size": resource.RLIMIT_STACK,
    "Max core file size": resource.RLIMIT_CORE,
    "Max resident set": resource.RLIMIT_RSS,
    "Max processes": resource.RLIMIT_NPROC,
    "Max open files": resource.RLIMIT_NOFILE,
    "Max locked memory": resource.RLIMIT_MEMLOCK,
    "Max address space": resource.RLIMIT_AS,
}
_WIDTH = 26
"""The width of a name in the kernel's table."""

_OOM = "/proc/self/oom_score_adj"
"""How readily the kernel ends a process when memory runs out, -1000 to 1000; its children inherit it."""
_OOM_OF_A_JOB = 500

_of_the_machine: list[tuple[int, int, int]] = []


def learn(table: str = "/proc/1/limits") -> None:
    """Read the limits of the first process; once, before any job is started."""
    with suppress(OSError), open(table, encoding="ascii") as file:
        rows = [(line[:_WIDTH].strip(), line[_WIDTH:].split()) for line in file]
        _of_the_machine[:] = [
            (_NAMES[name], _number(values[0]), _number(values[1])) for name, values in rows if name in _NAMES
        ]


def _number(text: str) -> int:
    return resource.RLIM_INFINITY if text == "unlimited" else int(text)


def apply() -> None:
    """Let the calling process have them."""
    processes.be_usual()
    # Any user may raise it; what root has raised, the job's user cannot lower.
    with suppress(OSError):
        fd = os.open(_OOM, os.O_WRONLY)
        try:
            os.write(fd, b"%d" % _OOM_OF_A_JOB)
        finally:
            os.close(fd)
    for which, soft, hard in _of_the_machine:
        try:
            resource.setrlimit(which, (soft, hard))
        except (ValueError, OSError):
            most = resource.getrlimit(which)[1]
            with suppress(ValueError, OSError):
                resource.setrlimit(which, (_least(soft, most), most))


def keep_to(cpus: str) -> None:
    """Run on these cores, `0-3,8`. A group of the kernel's makes it a rule; without one it is a habit."""
    with suppress(OSError):
        os.sched_setaffinity(0, cores(cpus))


def cores(text: str) -> set[int]:
    """The cores of a list like `0-3,8`."""
    found: set[int] = set()
    for word in text.split(","):
        first, _, last = word.strip().partition("-")
        if first:
            found |= set(range(int(first), int(last or first) + 1))
    return found


def _least(one: int, other: int) -> int:
    """The smaller of two limits, where a negative number is none."""
    if one < 0 or other < 0:
        return max(one, other)
    return min(one, other)
