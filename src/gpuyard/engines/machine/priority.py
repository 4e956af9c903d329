"""How readily the kernel gives the processor to a server: before the jobs and the programs of the machine's users.

A server and its supervisors need little of it, and everybody waits for them. Only root may go first. Jobs have the
usual priority (`limits.apply`), and so has whatever else runs as a user.

Only the standard library, and little of it: supervisors import this.
"""

import os
from contextlib import suppress

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
        fd = os.open(_SESSION, os.O_WRONLY)
        try:
            os.write(fd, b"%d" % niceness)
        finally:
            os.close(fd)


def be_usual() -> None:
    """Go first no longer: what follows is a user's."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, USUAL)


def stand_back(niceness: int) -> None:
    """Let others go first: what follows is long work that a server does aside."""
    os.setpriority(os.PRIO_PROCESS, 0, niceness + max(USUAL, os.getpriority(os.PRIO_PROCESS, 0)))
