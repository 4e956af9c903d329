"""A file system that does not answer, as a network mount does whose server is gone: FUSE, by hand."""

import ctypes
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_INIT = 26
_MNT_FORCE, _MNT_DETACH = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def hung_mount(folder: Path, *, taken: bool) -> Iterator[None]:
    """Everything below `folder` blocks whoever touches it, until this is left.

    A request that was `taken` can no longer be taken back: who waits for it cannot even be killed.
    """
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("only root can mount a file system that hangs, where the kernel has FUSE")
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40777,user_id=0,group_id=0,allow_other".encode()
    if _libc.mount(b"hung", str(folder).encode(), b"fuse.hung", 0, options) != 0:
        os.close(fd)
        pytest.skip(f"no FUSE here: {os.strerror(ctypes.get_errno())}")
    try:
        _greet(fd)
        if taken:
            threading.Thread(target=_swallow, args=(fd,), daemon=True).start()
        yield
    finally:
        # The connection is cut: whoever waits gets an error.
        _libc.umount2(str(folder).encode(), _MNT_FORCE)
        _libc.umount2(str(folder).encode(), _MNT_DETACH)
        os.close(fd)


def _greet(fd: int) -> None:
    request = os.read(fd, 1 << 17)
    _length, opcode, unique = struct.unpack_from("=IIQ", request)
    assert _INIT == opcode
    # Version 7.31, read ahead 64 KiB, nothing special, 16 requests at a time, writes of 64 KiB.
    answer = struct.pack("=IIIIHHI", 7, 31, 1 << 16, 0, 16, 12, 1 << 16).ljust(64, b"\0")
    os.write(fd, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)


def _swallow(fd: int) -> None:
    try:
        while os.read(fd, 1 << 17):
            pass
    except OSError:
        return
