"""What a process does about signals: a new task heeds all of them as a new program does.

Whatever starts a job may ignore or block some: `nohup`, cron, a shell in the background, Python itself. Only the
standard library: supervisors use it.
"""

import signal

_SETTABLE = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
"""Every signal that the C library lets a program set."""


def reset() -> None:
    """Heed every signal by default. Those that are blocked stay so until `unblock`."""
    for number in _SETTABLE:
        signal.signal(number, signal.SIG_DFL)


def unblock() -> None:
    """Let every signal in."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
