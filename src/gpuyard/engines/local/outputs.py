"""What attempts wrote, while they run and after they were forgotten; and logs that grew too long.

A job writes straight into its file, so nothing between it and the disk can hold its output back. Instead a hole is
punched into the file while it grows: the beginning and the end stay, the middle is given back to the disk. Bytes keep
their offsets, so a reader that follows the log goes on where it was. The hole is noted before it is punched, so that it
is never read as output. Once the end of an attempt is in the log, its output and a trace of it stay.
"""

import ctypes
import errno
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from gpuyard.engines.contract import LogPiece
from gpuyard.engines.local.attempt import room
from gpuyard.engines.local.client import Data
from gpuyard.engines.machine import files
from gpuyard.engines.machine.files import read_own
from gpuyard.engines.machine.launches import find_key_flaw
from gpuyard.engines.machine.readers import Readers
from gpuyard.engines.node import files as node_files
from gpuyard.engines.node.visits import frames
from gpuyard.errors import error_text

NOTE = "cut.json"
_HEAD_PART, _TAIL_PART = 8, 2
"""An eighth of the limit is for the beginning, a half for the end; the rest is room to grow."""
_LINE_BYTES_MAX = 64 * 1024
"""How far to look for a line break, to cut between lines."""
_KEEP_SIZE, _PUNCH_HOLE = 1, 2

_USELESS = frozenset(
    {
        files.WORK,
        files.SCRIPT,
        files.RUNNING,
        files.HALT,
        files.HALT_SPARE,
        files.FREEZE,
        room.ROOM,
        room.NAMES,
        frames.SOCKET,
        node_files.WISH,
    }
)
"""Files that are not needed once an attempt has ended."""

_log = logging.getLogger(__name__)
LIBC = ctypes.CDLL(None, use_errno=True)


class LogGap(NamedTuple):
    """The hole: from the end of the beginning to the start of the end."""

    head: int
    tail: int


def cut_of(folder: str) -> LogGap | None:
    """The hole in an attempt's own log; None: there is none."""
    note = files.read(os.path.join(folder, NOTE))
    return LogGap(note["head"], note["tail"]) if note else None


class Trimmer:
    """Keeps logs within a limit, as far as the file system can."""

    def __init__(self, limit_bytes: int, libc: Any = LIBC) -> None:
        self._libc = libc
        self._limit = limit_bytes
        """0: none."""
        self._able = True

    def trim(self, folder: str) -> None:
        """Look at one attempt's own log, and cut it if it takes too much room."""
        path = os.path.join(folder, files.STDOUT)
        if not self._limit or not self._able:
            return
        with suppress(FileNotFoundError):
            found = os.stat(path)
            if found.st_blocks * 512 > self._limit:
                self._cut(folder, path, found.st_size, found.st_blksize)

    def _cut(self, folder: str, path: str, size: int, block: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        before = cut_of(folder)
        try:
            head = before.head if before else _line_before(fd, self._limit // _HEAD_PART)
            tail = _line_after(fd, size - self._limit // _TAIL_PART)
            first, last = -(-head // block) * block, tail // block * block
            if last <= first:
                return
            noted = self._note(folder, LogGap(head, tail))
            self._punch(fd, first, last - first)
            if not noted:
                self._note(folder, LogGap(head, tail))
            if before is None:
                _log.warning("the log in %s is over its limit: its middle is left out", folder)
        except OSError as error:
            if not self._able and before is None:
                # Nothing is gone, so nothing is left out.
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, NOTE))
            _log.warning("the log in %s is over its limit and cannot be cut: %s", folder, error_text(error))
        finally:
            os.close(fd)

    @staticmethod
    def _note(folder: str, cut: LogGap) -> bool:
        """Note the hole; False: the disk is full, and punching the hole will free space."""
        try:
            files.replace(os.path.join(folder, NOTE), cut._asdict())
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return False
        return True

    def _punch(self, fd: int, offset: int, length: int) -> None:
        where, how_many = ctypes.c_int64(offset), ctypes.c_int64(length)
        if self._libc.fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, where, how_many):
            number = ctypes.get_errno()
            self._able = False
            raise OSError(number, f"its file system cannot give back parts of a file ({os.strerror(number)})")


def _line_before(fd: int, offset: int) -> int:
    """The beginning of a line, shortly before an offset; the offset itself in a log without lines."""
    start = max(0, offset - _LINE_BYTES_MAX)
    return start + found + 1 if (found := os.pread(fd, offset - start, start).rfind(b"\n")) >= 0 else offset


def _line_after(fd: int, offset: int) -> int:
    """The same, shortly after it."""
    return offset + found + 1 if (found := os.pread(fd, _LINE_BYTES_MAX, offset).find(b"\n")) >= 0 else offset


def read(data: Data, readers: Readers, key: str, stream: str, offset: int, limit: int) -> LogPiece:
    """Part of a stream; empty at the end, and for an attempt that is not known. Its cursors are offsets."""
    if find_key_flaw(key) or stream not in files.STREAMS or limit <= 0:
        return LogPiece(b"", str(offset))
    for folder, plan in _places(data, key):
        if named := plan[stream]:
            path = os.path.join(plan["cwd"], named)
            content = readers.read(plan["uid"], plan["gid"], path, offset, limit)
            return LogPiece(content, str(offset + len(content)))
        cut = cut_of(folder)
        if cut is not None and cut.head <= offset < cut.tail:
            return LogPiece(b"", str(cut.tail), cut.tail - offset)
        most = limit if cut is None or offset >= cut.tail else min(limit, cut.head - offset)
        if (content := read_own(os.path.join(folder, stream), offset, most)) or os.path.isdir(folder):
            return LogPiece(content, str(offset + len(content)))
    return LogPiece(b"", str(offset))


def _places(data: Data, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where an attempt's files may be, with its plan: in its folder, and then where that is kept.

    The folder may be moved between two looks. It moves once, so a file that is missing in the first is in the second.
    """
    for folder in (data.attempt(key), data.kept(key)):
        if (plan := files.read(os.path.join(folder, files.LAUNCH))) is not None:
            yield folder, plan


def seal(folder: str) -> None:
    """Take the log of an ended attempt away from its user, who may have a link to it: it stays as it is."""
    path = os.path.join(folder, files.STDOUT)
    with suppress(FileNotFoundError):
        if os.lstat(path).st_uid == os.geteuid():
            return
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_uid != os.geteuid():
                os.fchown(fd, os.geteuid(), os.getegid())
        finally:
            os.close(fd)


def strip(folder: str) -> None:
    """Remove the environment, which may hold secrets, from an earlier release's launch; keep the output paths."""
    plan = files.read(os.path.join(folder, files.LAUNCH)) or {}
    kept: dict[str, object] = {
        name: plan[name] for name in ("stdout", "stderr", "cwd", "uid", "gid") if name in plan
    }
    files.replace(os.path.join(folder, files.LAUNCH), kept)


def keep_output(folder: str, aside: str) -> None:
    """Remove all else of an ended attempt, and take its log from its user; what may be a lot is put aside."""
    names = os.listdir(folder)
    if files.WORK not in names:
        strip(folder)
    for name in names:
        if name in _USELESS:
            os.unlink(os.path.join(folder, name))
    if any([name in room.FOLDERS for name in names]):
        room.clear(folder, aside)
    seal(folder)
