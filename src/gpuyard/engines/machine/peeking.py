"""When a job last saved its work, without waiting for a file system that does not answer.

A path that a job names may lie on anything: a network mount without its server, a file system of the job's own. A
process that touches it may never come back. So the engine and supervisors look only at what lies within the job's
folder below the engine's own, on its file system, and not behind a link. Anything else is looked at by a process of
its own that became the job's user first: it sees what the job sees, and if it hangs, it hangs alone.

Only the standard library, and little of it: supervisors import this.
"""

import ctypes
import errno
import os
from collections.abc import Callable
from contextlib import suppress

from gpuyard.engines.machine.files import JOBS

SAVED = "saved"
"""In the attempt's folder: when it last saved its work, as that process has seen it."""

_SYS_OPENAT2 = 437
_RESOLVE_NO_XDEV, _RESOLVE_NO_SYMLINKS = 0x01, 0x04
_DIGITS = 20
_SET_MS = 1000
"""A clock that is off by less was not set; it goes a little faster or slower than the other."""

_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_LEAVES = (errno.EXDEV, errno.ELOOP)
_HOW = _How(os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_NO_XDEV | _RESOLVE_NO_SYMLINKS)
_HOW_POINTER, _HOW_SIZE = ctypes.byref(_HOW), ctypes.sizeof(_HOW)


class Inside:
    """The engine's folder, and what lies within it."""

    def __init__(self, root: str) -> None:
        self._start = f"{root}/"
        self._top = os.open(root, os.O_PATH | os.O_DIRECTORY)

    def time_ms(self, path: str, job_id: int) -> int | None:
        """The time of a file in a job's folder; 0: there is none; None: the path leads out of the folder.

        The server may run as root, and the folders of other jobs are other users'.
        """
        if not path.startswith(f"{self._start}{JOBS}/{job_id}/") or "/../" in path:
            return None
        fd = self._open(path)
        if fd < 0:
            # Kernels before 5.6 do not have the call.
            return None if -fd in (*_LEAVES, errno.ENOSYS) else 0
        try:
            return os.fstat(fd).st_mtime_ns // 1_000_000
        finally:
            os.close(fd)

    def there(self, path: str) -> bool:
        """Whether a path exists and nothing is mounted on it: that might not answer."""
        fd = self._open(path)
        if fd >= 0:
            os.close(fd)
        return fd >= 0 or (-fd == errno.ENOSYS and os.path.lexists(path))

    def leads_outside(self, path: str) -> bool:
        """Whether a path is a link, or a mount point."""
        fd = self._open(path)
        if fd >= 0:
            os.close(fd)
        return -fd in _LEAVES

    def _open(self, path: str) -> int:
        """A descriptor, or a negative error number: most files that are looked for do not exist."""
        inner = os.fsencode(path[len(self._start) :])
        fd: int = _libc.syscall(_SYS_OPENAT2, self._top, inner, _HOW_POINTER, _HOW_SIZE)
        return fd if fd >= 0 else -ctypes.get_errno()

    def close(self) -> None:
        """Close the folder. Closing it twice would close another file with its number."""
        if self._top >= 0:
            os.close(self._top)
            self._top = -1


def date_by_start(saved_ms: int, start: tuple[int, int], before_ms: int, now: tuple[int, int]) -> int:
    """When an attempt saved its work, by the clock of people as that went at its start; 0: it has not.

    The time of a file is by the clock as it was then, which may have been set since. `start`, `now`: the time of that
    clock, and of the one that cannot be set; `before_ms`: the time of the file before the attempt.
    """
    started_ms, began_ms = start
    last_ms = started_ms + max(0, now[1] - began_ms)
    ahead_ms = now[0] - last_ms
    if saved_ms == before_ms:
        return 0
    if abs(ahead_ms) >= _SET_MS:
        for at_ms in (saved_ms - ahead_ms, saved_ms):
            if started_ms <= at_ms <= last_ms:
                return at_ms
    return min(saved_ms, last_ms)


def look_outside(path: str, become: Callable[[], None]) -> int:
    """Start a process that looks at a path of the job; gives its pid. See `read_saved_ms` once it has ended."""
    found = os.open(SAVED, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    pid = os.fork()
    if pid == 0:
        try:
            become()
            with suppress(OSError):
                mtime_ms = os.stat(path).st_mtime_ns // 1_000_000
                os.pwrite(found, str(mtime_ms).zfill(_DIGITS).encode(), 0)
        finally:
            os._exit(0)
    os.close(found)
    return pid


def read_saved_ms(folder: str = ".") -> int:
    """The last result; 0: none yet."""
    with suppress(OSError, ValueError), open(f"{folder}/{SAVED}", "rb") as file:
        return int(file.read(_DIGITS) or 0)
    return 0
