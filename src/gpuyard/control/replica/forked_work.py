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

from gpuyard.engines.machine import processes

_PR_SET_PDEATHSIG = 1
_NICE = 10
"""The copy has a lower priority than requests."""
_libc = ctypes.CDLL(None, use_errno=True)


class ForkedWork:
    """One piece of work, under way from the moment that this is made."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        """`make` runs in the copy. What it looks at must be locked by this thread, or it may be half changed."""
        server = os.getpid()
        self._out = os.memfd_create("gpuyard-fork", os.MFD_CLOEXEC)
        self._pid = os.fork()
        if not self._pid:
            _work(make, self._out, server)

    def done(self) -> bool:
        """Whether it is over, well or not."""
        if self._pid:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._pid, self._code = 0, os.waitstatus_to_exitcode(status)
        return not self._pid

    def result(self) -> bytes | None:
        """What it gave back, once it is done; None: it came to nothing. Can be asked for once."""
        size = os.lseek(self._out, 0, os.SEEK_END)
        os.lseek(self._out, 0, os.SEEK_SET)
        with os.fdopen(self._out, "rb") as file:
            found = file.read(size)
        return found if self._code == 0 else None

    def end(self) -> None:
        """It is no longer wanted."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0
        os.close(self._out)


def _work(make: Callable[[], bytes], out: int, server: int) -> None:
    """In the copy: nothing of it may reach the server's code."""
    code = 1
    try:
        # A collection would touch every object, and with it copy the memory of the server.
        gc.disable()
        _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        os.closerange(3, out)
        os.closerange(out + 1, os.sysconf("SC_OPEN_MAX"))
        processes.stand_back(_NICE)
        if os.getppid() == server:
            left = memoryview(make())
            while left:
                left = left[os.write(out, left) :]
            code = 0
    finally:
        os._exit(code)
