"""Which user's program listens at a port of this machine, according to the kernel.

Any user may listen at a port that is free. A token that is sent there without TLS would fall to that user: it is sent
only to a server of root, of a system account, or of the asker.
"""

import os
import socket
import sys

from gpuyard.config.values import UID_MIN
from gpuyard.errors import YardError

_LISTEN, _ESTABLISHED = "0A", "01"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def check_listener(connection: socket.socket) -> None:
    """Raise if an ordinary user other than the asker is at the other end. Other machines are not looked at."""
    there, here = connection.getpeername()[:2], connection.getsockname()[:2]
    if there[0] != "::1" and not there[0].startswith("127."):
        return
    for uid in _owners(there, here):
        if uid not in (0, os.geteuid()) and uid >= UID_MIN:
            raise YardError(
                f"user {uid} of this machine listens on port {there[1]}, and your token is not for them",
                "Is the yard down, or at another port? Over its socket no token is needed: leave YARD_URL out.",
            )


def _owners(there: tuple[str, int], here: tuple[str, int]) -> list[int]:
    """Users of the sockets that listen at an address or have accepted a connection at it."""
    ours = {_written(*there), _written("::ffff:" + there[0], there[1]) if "." in there[0] else ""}
    theirs = {_written(*here), _written("::ffff:" + here[0], here[1]) if "." in here[0] else ""}
    anywhere = {_written("0.0.0.0", there[1]), _written("::", there[1])}
    found = []
    for table in _TABLES:
        try:
            with open(table, encoding="ascii") as file:
                lines = file.readlines()[1:]
        except OSError:
            # A kernel without IPv6, or another system: there is nothing to learn.
            continue
        for line in lines:
            _number, local, remote, state, _queues, _timer, _retries, uid, *_rest = line.split()
            listens = state == _LISTEN and local in ours | anywhere
            if listens or (state == _ESTABLISHED and local in ours and remote in theirs):
                found.append(int(uid))
    return found


def _written(host: str, port: int) -> str:
    """An address as the kernel's tables have it: words of 32 bits in the machine's own order."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    words = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
    return "".join([f"{word:08X}" for word in words]) + f":{port:04X}"
