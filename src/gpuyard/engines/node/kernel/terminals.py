"""Terminals as the kernel has them: a pair of ends, a size, and the session that one belongs to.

Runs beside the job, on this machine and on the nodes of a cluster: only the standard library, nothing newer than
Python 3.6.
"""

import fcntl
import os
import struct
import termios
from typing import Optional, Tuple

ROWS_AND_COLUMNS = (24, 80)
"""The size of a terminal that no client has looked at yet."""


def open_pty(owner: Optional[Tuple[int, int]] = None) -> Tuple[int, int]:
    """A new terminal, master and slave; `owner`: the user that may open it by its name."""
    master, slave = os.openpty()
    set_size(master, *ROWS_AND_COLUMNS)
    if owner is not None:
        os.fchown(slave, owner[0], owner[1])
    os.fchmod(slave, 0o600)
    return master, slave


def set_size(fd: int, rows: int, columns: int) -> None:
    """Tell a terminal its size; its foreground is told in turn."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))


def take(slave: int) -> None:
    """Make a terminal this session's own, and its standard input and output."""
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    high = os.dup(slave)
    for target in range(3):
        os.dup2(high, target)
    if high > 2:
        os.close(high)


def say(slave: int, text: str) -> None:
    """Tell the person at a terminal what went wrong."""
    os.write(slave, "yard: {}\r\n".format(text).encode("utf-8", "replace"))
