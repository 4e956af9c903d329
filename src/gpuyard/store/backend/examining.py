"""A look through a file of SQLite for pages that are not what was written.

A disk, a copy made at the wrong moment or a program that wrote into the file damages pages, and SQLite notices only
when it comes to one: a yard would start, accept jobs and fail at some later write. So a server looks before it writes:
at the write-ahead log, of which SQLite silently drops all from the first damaged frame on, and then at every page.
"""

import ctypes
import logging
import os
import sqlite3
import struct
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from gpuyard.errors import error_text

_log = logging.getLogger(__name__)

# https://sqlite.org/fileformat2.html#walformat: a header, then frames, which have a header each and one page.
_HEADER, _FRAME = 32, 24
_INDEX, _INDEXED = 48, 3_007_000
"""Bytes of the head of the index of a log that are read, and the version of its form."""
_WORD = 0xFFFFFFFF
_BIG = b"\x83"
"""The last byte of the header's first word, where the words of the sums have their highest byte first."""
AT_ONCE_BYTES = 256 << 20
"""A store that is no larger is looked at as a whole: a quarter of a second of CPU time."""
_BY_TABLE = (3, 33, 0)
"""Since this release SQLite looks at the pages of one table and its indexes, if it is asked to."""
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Primary result codes of SQLite for a file that is not what was written."""


def is_damage(error: object) -> bool:
    """Whether an error of the driver says that the file is damaged."""
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED


def count_lost_commits(path: Path, page_bytes: int) -> int:
    """How many commits SQLite drops from the write-ahead log that were acknowledged.

    A commit is on disk before the next one is written. So a machine that failed leaves one at most that is not whole;
    with a second one behind it, something else has damaged the log. That one is marked: SQLite goes on in the same log,
    and its end would stand behind what another failure leaves. Nobody may write meanwhile. How much is whole stands in
    SQLite's index; a statement says so only as it moves that into the database file, for which a full disk has no room.
    """
    try:
        # No lock is on this file: to open and close it takes none away.
        fd = os.open(f"{path}-wal", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        head = os.pread(fd, _HEADER, 0)
        is_whole = _sum(head, head[:24], (0, 0)) == _told(head[24:32])
        step = _FRAME + page_bytes
        place = _HEADER
        if is_whole:
            frames = _indexed(path, head[16:24])
            place = _end_of_whole(fd, head, page_bytes) if frames is None else _HEADER + frames * step
        commits: dict[bytes, list[int]] = {}
        while len(frame := os.pread(fd, _FRAME, place)) == _FRAME:
            if any(frame[4:8]):
                commits.setdefault(frame[8:16], []).append(place)
            place += step
        # Frames of an earlier log, which was moved, may follow: they have other salts than the header.
        unseen = commits.get(head[16:24], []) if is_whole else max(commits.values(), key=len, default=[])
        if is_whole and len(unseen) == 1:
            _forget(fd, unseen[0])
    finally:
        os.close(fd)
    return max(0, len(unseen) - 1)


def _forget(fd: int, place: int) -> None:
    """Let a frame that SQLite does not see end no commit. Its blocks stay the log's: a full disk has no others."""
    try:
        os.pwrite(fd, bytes(_FRAME), place)
        os.fdatasync(fd)
    except OSError as error:
        _log.warning(
            "a commit that was being written when the machine failed stays in the log: %s", error_text(error)
        )


def _indexed(path: Path, salts: bytes) -> int | None:
    """How many frames are whole by SQLite's own index of this log, as this process has it mapped; None: it has not.

    SQLite has summed them up for it. There are locks on its file: to open and close that would take them away.
    """
    name = os.fsencode(f"{os.path.realpath(path)}-shm")
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    with maps.open("rb") as lines:
        for line in lines:
            span, _mode, offset, _device, _inode, *found = line.rstrip(b"\n").split(maxsplit=5)
            if found == [name] and not int(offset, 16):
                head = ctypes.string_at(int(span.partition(b"-")[0], 16), _INDEX)
                # https://sqlite.org/walformat.html#the_wal_index_header: in the order of bytes of this machine.
                version, is_made, frames = struct.unpack_from("=I8xB3xI", head)
                return frames if version == _INDEXED and is_made and head[32:40] == salts else None
    return None


def _end_of_whole(fd: int, head: bytes, page_bytes: int) -> int:
    """Where the first frame begins that is not whole, by its sums: a second of CPU time for 13 MiB."""
    place, sums = _HEADER, _told(head[24:32])
    while len(frame := os.pread(fd, _FRAME + page_bytes, place)) == _FRAME + page_bytes:
        sums = _sum(head, frame[:8] + frame[_FRAME:], sums)
        if frame[8:16] != head[16:24] or sums != _told(frame[16:24]):
            break
        place += len(frame)
    return place


def _told(content: bytes) -> tuple[int, int]:
    return int.from_bytes(content[:4], "big"), int.from_bytes(content[4:8], "big")


def _sum(head: bytes, content: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """The two sums of a log over some of its words, in the order of bytes that its header names."""
    first, second = sums
    size = len(content) // 8 * 2
    words = iter(struct.unpack(f"{'>' if head[3:4] == _BIG else '<'}{size}I", content[: size * 4]))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & _WORD
        second = (second + odd + first) & _WORD
    return first, second


class Examination:
    """A look at every page, in a thread with a connection of its own: of a large store it takes longer than a start."""

    def __init__(self, path: Path, found: Callable[[str], None], at_once_bytes: int = AT_ONCE_BYTES) -> None:
        """`found` is called, in that thread, with what is wrong. A store of more bytes is looked at table by table."""
        self._at_once_bytes = at_once_bytes
        self._path = path
        self._found = found
        self._thread = threading.Thread(target=self._run, name="yard-examines-store", daemon=True)

    def begin(self, wait_s: float) -> None:
        """Begin, and wait for its end for so long at most."""
        self._thread.start()
        self._thread.join(wait_s)
        if self._thread.is_alive():
            _log.info("%s is large: its pages are looked at while the yard runs", self._path)

    def _run(self) -> None:
        try:
            with closing(sqlite3.connect(self._path)) as connection:
                connection.execute("PRAGMA query_only=ON")
                for look in self._looks(connection):
                    self._look(connection, look)
        except sqlite3.Error as error:
            self._failed(error)

    def _look(self, connection: sqlite3.Connection, look: str) -> None:
        try:
            ((first, *_), *_more) = connection.execute(look).fetchall()
        except sqlite3.Error as error:
            # A new release may have removed a table meanwhile; the others are looked at.
            self._failed(error)
        else:
            if first != "ok":
                self._found(" ".join(first.split()))

    def _failed(self, error: sqlite3.Error) -> None:
        if is_damage(error):
            self._found(str(error))
        else:
            _log.warning("the pages of %s could not be looked at: %s", self._path, error)

    def _looks(self, connection: sqlite3.Connection) -> list[str]:
        """What SQLite is asked; as long as it looks, nothing of the log can be written over, and the log grows."""
        if self._path.stat().st_size <= self._at_once_bytes or sqlite3.sqlite_version_info < _BY_TABLE:
            return ["PRAGMA quick_check(1)"]
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        return [f'PRAGMA quick_check("{name}")' for (name,) in [("sqlite_master",), *tables]]
