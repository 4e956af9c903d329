"""Processes of this machine: which is which, how readily they run, and within which limits.

A number alone is not an identity: it is handed out again, and a reboot starts over.

The kernel gives the processor to a server before the jobs and the programs of the machine's users: a server and its
supervisors need little of it, and everybody waits for them. Only root may go first. Jobs have the usual priority, and
so has whatever else runs as a user; like a service, they have the resource limits of the machine's first process. Where
memory runs out, the kernel ends jobs before the server and the supervisors that they share the machine with.

Only the standard library, and little of it: supervisors import this.
"""

import os
import resource
import signal
from contextlib import suppress
from typing import NamedTuple

from gpuyard.engines.node.kernel.processes import boot_id as boot_id  # noqa: PLC0414 (one of these, for those above)
from gpuyard.engines.node.kernel.processes import find_descendants, is_gone, list_pids, put, read_stat


class Identity(NamedTuple):
    """A process, unmistakably: its number, its start in clock ticks since boot, and which boot."""

    pid: int
    ticks: int
    boot: str


def identify_self(boot: str) -> Identity:
    """The identity of this process."""
    stat = read_stat(os.getpid())
    assert stat is not None, "a process sees itself in /proc"
    return Identity(os.getpid(), stat.ticks, boot)


def is_alive(identity: Identity, boot: str) -> bool:
    """Whether this very process still runs. A zombie does not."""
    if identity.boot != boot or identity.pid <= 0:
        return False
    stat = read_stat(identity.pid)
    return stat is not None and stat.ticks == identity.ticks and not is_gone(identity.pid, stat)


def signal_to(identity: Identity, number: int, boot: str) -> bool:
    """Send a signal to this very process and to no other that may have got its number; whether it was there."""
    try:
        fd = os.pidfd_open(identity.pid)
    except (ProcessLookupError, OSError, ValueError):
        return False
    try:
        # The descriptor holds the process, so the process that is checked now gets the signal.
        if not is_alive(identity, boot):
            return False
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def find_ancestors(pid: int) -> list[int]:
    """The parents of a process up to the first."""
    line: list[int] = []
    while pid > 1 and pid not in line and (stat := read_stat(pid)) is not None:
        pid = stat.parent
        line.append(pid)
    return line


def find_carrying(variable: str, value: str) -> set[int]:
    """Every process that was started with this variable in its environment, and its descendants."""
    wanted = f"{variable}={value}".encode()
    found = set()
    for pid in list_pids():
        if wanted in _environment(pid):
            found.add(pid)
    alive = {pid for pid in found if (stat := read_stat(pid)) and not is_gone(pid, stat)}
    return (alive | find_descendants(alive)) if alive else alive


def _environment(pid: int) -> list[bytes]:
    """The environment a process was started with; read from a thread where the first one has ended."""
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        if found := file.read():
            return found.split(b"\0")
    stat = read_stat(pid)
    if stat is None or stat.state not in "ZX":
        return []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/environ", "rb") as file:
                if found := file.read():
                    return found.split(b"\0")
    return []


def find_user(pid: int) -> int | None:
    """The user id that a process runs as."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        return None


# -- how readily the kernel gives them the processor, and how many files they may open ---------------------------------


FIRST = -10
USUAL = 0

_SESSION = "/proc/self/autogroup"
"""Where the kernel shares the processor between sessions, niceness counts inside each; a session has one of its own."""


def go_first() -> None:
    """Let this process and those that it starts go first, where they may.

    A session that others began, as that of the shell in which `yard up` was typed, stays as it is.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, FIRST)
    if os.getsid(0) == os.getpid():
        keep_first()


def keep_first() -> None:
    """In a new session: let it go as first as the process does that began it."""
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    if niceness >= USUAL:
        return
    with suppress(OSError):
        put(_SESSION, str(niceness))


def stand_back(niceness: int) -> None:
    """Let others go first: what follows is long work that a server does aside."""
    os.setpriority(os.PRIO_PROCESS, 0, niceness + max(USUAL, os.getpriority(os.PRIO_PROCESS, 0)))


_SERVER_FILES = 4096
"""A server with many connections opens more files than the jobs that it starts may."""
_first_limit: list[tuple[int, int]] = []


def raise_file_limit() -> int:
    """Let this process have more files open, as far as it may; gives how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not _first_limit:
        _first_limit.append((soft, hard))
    most = _SERVER_FILES if hard == resource.RLIM_INFINITY else min(_SERVER_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def give_back_file_limit(pid: int) -> None:
    """Give a child, and all that it starts, the limit that this process was started with."""
    if _first_limit:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _first_limit[0])


# -- what a job would inherit from the shell that started the yard, and gets from the machine's first process instead --


_LIMITS = {
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


def learn_limits(numbers: str = "/proc/sys/kernel/pid_max") -> None:
    """Read the limits of the first process; once, before any job is started.

    Of the machine's numbers of processes, one user's jobs get half: the kernel's own limit goes by memory alone, and so
    one job could take all numbers and nobody would start a process any more.
    """
    with suppress(OSError), open("/proc/1/limits", encoding="ascii") as file:
        rows = [(line[:_WIDTH].strip(), line[_WIDTH:].split()) for line in file]
        _of_the_machine[:] = [
            (_LIMITS[name], _number(values[0]), _number(values[1]))
            for name, values in rows
            if name in _LIMITS
        ]
    with suppress(OSError, ValueError), open(numbers, encoding="ascii") as file:
        most = int(file.read()) // 2
        _of_the_machine[:] = [
            (which, _least(soft, most), _least(hard, most))
            if which == resource.RLIMIT_NPROC
            else (which, soft, hard)
            for which, soft, hard in _of_the_machine
        ]


def _number(text: str) -> int:
    return resource.RLIM_INFINITY if text == "unlimited" else int(text)


def be_usual() -> None:
    """Become as a job is: with the usual priority, the limits of the machine, and first to go where memory runs out.

    Only root can raise what was lowered for good; on a yard of an ordinary user a job gets as much of them as it may.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, USUAL)
    # Any user may raise it; what root has raised, the job's user cannot lower.
    with suppress(OSError):
        put(_OOM, str(_OOM_OF_A_JOB))
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
        os.sched_setaffinity(0, parse_cores(cpus))


def parse_cores(text: str) -> set[int]:
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
