"""A small process that forks supervisors: a fork of it costs a millisecond where a new Python costs fifteen.

Its standard input is a socket to the engine. One message is the folder of one attempt; the supervisor forked for it
answers on the same socket. It ends when the engine does; supervisors do not, since they are in sessions of their own.
Started as `python -I -S -c "…" [GROUP]`, without site-packages; it and all supervisors live in that cgroup.
"""

import gc
import os
import signal
import socket
import sys
from contextlib import suppress

from gpuyard.engines.local.attempt import limits
from gpuyard.engines.local.attempt.cgroups import Cgroup
from gpuyard.engines.local.attempt.supervisor import SIGNALS, supervise
from gpuyard.engines.machine import priority

_MESSAGE_BYTES_MAX = 8192


def main() -> None:
    """Fork a supervisor for every message until the engine goes."""
    # Blocked before any fork, so that no supervisor can get a signal before it listens.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are reaped by the kernel
    priority.keep_first()
    engine = socket.socket(fileno=0)
    if len(sys.argv) > 1:
        # Out of the server's own group, which a service manager kills as a whole when the server stops.
        with suppress(OSError):
            group = Cgroup(sys.argv[1])
            group.make(memory_mib=0, cpu_milli=0)
            group.join()
    limits.learn()
    gc.collect()
    gc.freeze()
    gc.disable()
    while message := engine.recv(_MESSAGE_BYTES_MAX):
        try:
            pid = os.fork()
        except OSError as error:
            folder = message.decode()
            engine.send(f"{os.path.basename(folder)}\n{error}".encode())
            continue
        if pid == 0:
            code = 1
            try:
                supervise(message.decode(), engine)
                code = 0
            except BaseException:  # a supervisor must never come back as a second spawner
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(code)
