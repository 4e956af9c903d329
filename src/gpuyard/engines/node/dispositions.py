"""Signal dispositions: a new task has the default ones, as a new program does.

What starts a job may ignore or block some: `nohup`, cron, a shell in the background, a daemon, Python itself. This
file is part of the code for the nodes, which is copied there; the supervisors of this machine use it too.
"""

import signal


def reset() -> None:
    """Heed every signal by default. Blocked signals stay blocked until `unblock`."""
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            # KILL and STOP cannot be changed, and some belong to the C library.
            continue


def unblock() -> None:
    """Let every signal in."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
