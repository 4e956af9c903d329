"""The memory of a server: the collector of garbage, and what the C library keeps of what was freed."""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

E = TypeVar("E", bound=BaseException)

_libc = ctypes.CDLL(None)
_mallopt, _malloc_trim = (getattr(_libc, name, None) for name in ("mallopt", "malloc_trim"))
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
ARENAS = 2
LARGE_BYTES = 256 * 1024
"""What is as large as this has pages of its own, which go back when it is freed."""


@contextmanager
def pause_collection() -> Iterator[None]:
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


def give_back_free() -> None:
    """Have the C library give back all that is free, where it knows how to."""
    if _malloc_trim is not None:
        _malloc_trim(0)


def strip_traceback(error: E) -> E:
    """An error that has been dealt with, without the calls in which it was raised; likewise those it came from.

    They hold what they worked on, such as a long script, and often the error itself: then only the collector would free
    it, which seldom looks at what has become old.
    """
    behind: BaseException | None = error
    while behind is not None:
        # An error is the context of whatever is raised while it is dealt with, `from None` or not.
        before = behind.__cause__ or behind.__context__
        behind.__traceback__ = behind.__cause__ = behind.__context__ = None
        behind = before
    return error
