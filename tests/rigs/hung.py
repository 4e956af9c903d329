"""File systems of FUSE, by hand: one that does not answer, as where a server is gone, and one that answers one user."""

import ctypes
import errno
import os
import select
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_LOOKUP, _FORGET, _GETATTR, _INIT = 1, 2, 3, 26
_MNT_FORCE, _MNT_DETACH = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def hung_mount(folder: Path, *, taken: bool) -> Iterator[Callable[[], bool]]:
    """Everything below `folder` blocks whoever touches it, until this is left.

    A request that was `taken` can no longer be taken back: who waits for it cannot even be killed.
    What it gives says whether somebody waits; of `taken` requests, whether somebody waits for a file below `folder`.
    """
    with _mounted(folder, "user_id=0,group_id=0,allow_other") as fd:
        if taken:
            taken_ones: list[int] = []
            threading.Thread(target=_swallow, args=(fd, taken_ones), daemon=True).start()
            yield lambda: _LOOKUP in taken_ones
        else:
            yield lambda: bool(select.select([fd], [], [], 0)[0])


@contextmanager
def own_mount(folder: Path, uid: int) -> Iterator[None]:
    """An empty folder of one user, as `sshfs` makes it: nobody else may even look at it, root neither."""
    with _mounted(folder, f"user_id={uid},group_id={uid}") as fd:
        threading.Thread(target=_answer, args=(fd, uid), daemon=True).start()
        yield


@contextmanager
def _mounted(folder: Path, options: str) -> Iterator[int]:
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("only root can mount a file system by hand, where the kernel has FUSE")
    fd = os.open("/dev/fuse", os.O_RDWR)
    words = f"fd={fd},rootmode=40777,{options}".encode()
    if _libc.mount(b"rig", str(folder).encode(), b"fuse.rig", 0, words) != 0:
        os.close(fd)
        pytest.skip(f"no FUSE here: {os.strerror(ctypes.get_errno())}")
    try:
        _greet(fd)
        yield fd
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


def _swallow(fd: int, kinds: list[int]) -> None:
    try:
        while request := os.read(fd, 1 << 17):
            kinds.append(struct.unpack_from("=II", request)[1])
    except OSError:
        return


def _answer(fd: int, uid: int) -> None:
    """What the folder is, and of everything else that there is no such call."""
    times, sizes = (0,) * 3, (1, 0, 0)
    folder = struct.pack("=QII6Q10I", 60, 0, 0, *sizes, *times, *times, 0o40700, 2, uid, uid, 0, 4096, 0)
    try:
        while request := os.read(fd, 1 << 17):
            _length, opcode, unique = struct.unpack_from("=IIQ", request)
            body = folder if opcode == _GETATTR else b""
            if opcode != _FORGET:
                os.write(fd, struct.pack("=IiQ", 16 + len(body), 0 if body else -errno.ENOSYS, unique) + body)
    except OSError:
        return
