"""The memory of a server: the collector of garbage, and what the C library keeps of what was freed."""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
ARENAS = 2
LARGE_BYTES = 256 * 1024
"""What is as large as this has pages of its own, which go back when it is freed."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Nothing is collected meanwhile: the collector would look at thousands of new values, again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def give_back_large() -> None:
    """Have the C library keep little of what is freed, where it is glibc: before there are threads.

    Else it keeps a heap for each thread, eight for each core, and in each of them what a long script once took.
    """
    if _mallopt is not None:
        _mallopt(_ARENA_MAX, ARENAS)
        _mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
