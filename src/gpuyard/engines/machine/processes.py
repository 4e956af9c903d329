"""Which process is which. A number alone is not an identity: it is handed out again, and a reboot starts over.

Only the standard library, and little of it: supervisors import this.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Identity(NamedTuple):
    """A process, unmistakably: its number, its start in clock ticks since boot, and which boot."""

    pid: int
    ticks: int
    boot: str


class Stat(NamedTuple):
    """The part of /proc/PID/stat that we use."""

    state: str
    parent: int
    ticks: int


def boot_id() -> str:
    """Which boot of this machine this is."""
    with open(_BOOT_ID, encoding="ascii") as file:
        return file.read().strip()


def stat_of(pid: int) -> Stat | None:
    """What the kernel says of a process; None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the program stands in parentheses and may hold spaces and parentheses itself.
    fields = line[line.rindex(b")") + 2 :].split()
    return Stat(state=fields[0].decode(), parent=int(fields[1]), ticks=int(fields[19]))


def myself(boot: str) -> Identity:
    """The identity of this process."""
    stat = stat_of(os.getpid())
    assert stat is not None, "a process sees itself in /proc"
    return Identity(os.getpid(), stat.ticks, boot)


def lives(identity: Identity, boot: str) -> bool:
    """Whether this very process still runs. A zombie does not."""
    if identity.boot != boot or identity.pid <= 0:
        return False
    stat = stat_of(identity.pid)
    return stat is not None and stat.ticks == identity.ticks and not _gone(identity.pid, stat)


def _gone(pid: int, stat: Stat) -> bool:
    """Whether nothing of a process runs. If its first thread has ended, it looks like a zombie and may well run."""
    return stat.state in "ZX" and not runs(pid)


def runs(pid: int) -> bool:
    """Whether any thread of a process runs: its first one may have ended long before the others."""
    try:
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any([(stat := stat_of(each)) is not None and stat.state not in "ZX" for each in threads])


def signal_to(identity: Identity, number: int, boot: str) -> bool:
    """Send a signal to this very process and to no other that may have got its number; whether it was there."""
    try:
        fd = os.pidfd_open(identity.pid)
    except (ProcessLookupError, OSError, ValueError):
        return False
    try:
        # The descriptor holds the process, so the process that is checked now gets the signal.
        if not lives(identity, boot):
            return False
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def all_pids() -> Iterator[int]:
    """Every process number there is."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def descendants(roots: set[int]) -> set[int]:
    """Every process below `roots`, without them."""
    parents = {pid: stat.parent for pid in all_pids() if (stat := stat_of(pid)) and not _gone(pid, stat)}
    below: set[int] = set()
    for pid in parents:
        path = [pid]
        while (above := parents.get(path[-1])) is not None and above not in path:
            if above in roots or above in below:
                below.update(path)
                break
            path.append(above)
    return below - roots


def ancestors(pid: int) -> list[int]:
    """The parents of a process up to the first."""
    line: list[int] = []
    while pid > 1 and pid not in line and (stat := stat_of(pid)) is not None:
        pid = stat.parent
        line.append(pid)
    return line


def carrying(variable: str, value: str) -> set[int]:
    """Every process that was started with this variable in its environment, and its descendants."""
    wanted = f"{variable}={value}".encode()
    found = set()
    for pid in all_pids():
        if wanted in _environment(pid):
            found.add(pid)
    alive = {pid for pid in found if (stat := stat_of(pid)) and not _gone(pid, stat)}
    return (alive | descendants(alive)) if alive else alive


def _environment(pid: int) -> list[bytes]:
    """The environment a process was started with; read from a thread where the first one has ended."""
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        if found := file.read():
            return found.split(b"\0")
    stat = stat_of(pid)
    if stat is None or stat.state not in "ZX":
        return []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/environ", "rb") as file:
                if found := file.read():
                    return found.split(b"\0")
    return []


def described(pid: int) -> str:
    """A process in a few words, for people: `4711 python (D)`."""
    stat = stat_of(pid)
    with suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        # The process chose its name, so it is made harmless for a terminal.
        name = "".join([char if char.isprintable() else "?" for char in file.read().strip()])
        return f"{pid} {name} ({stat.state if stat else '?'})"
    return str(pid)


def signal_all(pids: set[int], number: int) -> None:
    """Send a signal to processes that were just seen; it is no error if one has gone since."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def user_of(pid: int) -> int | None:
    """The user id that a process runs as."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        return None
