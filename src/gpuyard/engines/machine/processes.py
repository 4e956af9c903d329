"""Which process is which. A number alone is not an identity: it is handed out again, and a reboot starts over.

Only the standard library, and little of it: supervisors import this.
"""

import os
import signal
from contextlib import suppress
from typing import NamedTuple

from gpuyard.engines.node.processes import all_pids, descendants, gone, stat_of
from gpuyard.engines.node.processes import boot_id as boot_id  # noqa: PLC0414 (one of these, for those above)


class Identity(NamedTuple):
    """A process, unmistakably: its number, its start in clock ticks since boot, and which boot."""

    pid: int
    ticks: int
    boot: str


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
    return stat is not None and stat.ticks == identity.ticks and not gone(identity.pid, stat)


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
    alive = {pid for pid in found if (stat := stat_of(pid)) and not gone(pid, stat)}
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


def user_of(pid: int) -> int | None:
    """The user id that a process runs as."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        return None
