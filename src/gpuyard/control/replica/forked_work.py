"""Long work on the replica beside the server: in a copy of its process, made in a moment by the kernel.

Whatever takes seconds with a hundred thousand jobs would keep the replica locked, and a library in C that does not let
other threads have their turn would keep every request waiting. The copy has the replica as of that moment, gives
back bytes, and ends with the server. It has none of the server's files, sockets and locks.
"""

import ctypes
import gc
import os
import signal
from collections.abc import Callable
from typing import BinaryIO

from gpuyard.engines.machine import processes
from gpuyard.engines.machine.beside_process import Child, Ends, fork

_PR_SET_PDEATHSIG = 1
_NICE = 10
"""The copy has a lower priority than requests."""
_libc = ctypes.CDLL(None, use_errno=True)


class ForkedWork:
    """One piece of work, under way from the moment that this is made."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        """`make` runs in the copy. What it looks at must be locked by this thread, or it may be half changed."""
        server = os.getpid()
        out = os.fdopen(os.memfd_create("gpuyard-fork", os.MFD_CLOEXEC), "rb")
        its = os.fdopen(os.dup(out.fileno()), "wb")
        self._child: Child[tuple[BinaryIO]] = fork(lambda: _work(make, server), Ends((out,), (its,)))

    def done(self) -> bool:
        """Whether it is over, well or not."""
        return not self._child.alive

    def result(self) -> bytes | None:
        """What it gave back, once it is done; None: it came to nothing. Can be asked for once."""
        (out,) = self._child.line
        out.seek(0)
        found = out.read()
        well = self._child.wait() == 0
        self.end()
        return found if well else None

    def end(self) -> None:
        """It is no longer wanted."""
        self._child.end()


def _work(make: Callable[[], bytes], server: int) -> None:
    """In the copy, whose standard input takes what it made."""
    # A collection would touch every object, and with it copy the memory of the server.
    gc.disable()
    _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    processes.stand_back(_NICE)
    if os.getppid() == server:
        left = memoryview(make())
        while left:
            left = left[os.write(0, left) :]
        os._exit(0)
