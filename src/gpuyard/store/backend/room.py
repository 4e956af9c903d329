"""Blocks of a disk that are taken before they are needed: a full disk has nothing to give any more."""

import ctypes
import os

_KEEP_SIZE = 1
_libc = ctypes.CDLL(None, use_errno=True)
_fallocate = getattr(_libc, "fallocate", None)


def allocate(path: str, size_bytes: int, *, create: bool = False, keep_size: bool = False) -> None:
    """Have so many bytes of a file on disk; what is there already stays as it is. Raises `OSError`.

    With `keep_size` the file looks as long as before: what is appended to it finds the blocks.
    """
    if _fallocate is None:
        raise OSError(0, "this system takes no blocks ahead")
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    fd = os.open(path, flags, 0o600)
    try:
        length = ctypes.c_longlong(size_bytes)
        if _fallocate(fd, _KEEP_SIZE if keep_size else 0, ctypes.c_longlong(0), length):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(fd)


def part_of(path: str, part: int, most_bytes: int, least_total_bytes: int = 64 << 20) -> int:
    """A part of the file system that a path is on, and no more than that; 0: it is too small to keep anything."""
    found = os.statvfs(path)
    total = found.f_frsize * found.f_blocks
    return min(most_bytes, total // part) if total >= least_total_bytes else 0
