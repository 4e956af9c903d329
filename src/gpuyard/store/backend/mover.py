"""Moves what SQLite's write-ahead log holds into the database file, beside the threads that write.

SQLite would do so inside whichever commit finds the log long: megabytes are copied and synchronised while every other
thread waits for its turn to write. A leader has a thread for it. What is written meanwhile is moved as well, the last
of it in a turn of its own that is as long as a small write: only when everything is moved does the next writer begin
the log anew.

SQLite up to 3.51.2 may lose what is written while a log is moved that was moved already (its "WAL-reset bug"). So
SQLite's own way is off, one thread of a process moves at a time, and it begins only after a look into the log has
shown that something is left to move: nobody can begin the log anew before that is done.
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from gpuyard.store.backend.examining import is_damage
from gpuyard.store.errors import StoreError

_log = logging.getLogger(__name__)

LONG = 1_000
"""Pages in a log that is moved: 4 MB, so that most of the blocks that are kept for a full disk stay free."""
TOO_LONG = 16_384
"""Pages in a log that threads wait for before they write more: 64 MiB."""
AGAIN = 100
"""Pages that come to a log before it is moved again, where it was moved and went on: somebody still read it."""
_BESIDE = 3
"""How often what was written meanwhile is moved beside other threads, before it is moved in a turn of its own."""

# https://sqlite.org/fileformat2.html#walformat: a header, then frames, which have a header each and one page.
_HEADER, _FRAME = 32, 24
_GOES_ON = bytes(4)
"""In a frame that is not the last of its transaction."""


class _Place(NamedTuple):
    """A place in the log."""

    salts: bytes
    """Which log: they change whenever it begins anew."""
    frames: int
    """How many are before it."""


_NOWHERE = _Place(b"", 0)


class LogMover:
    """One store's. Any thread may look."""

    def __init__(
        self,
        path: Path,
        reader: Engine,
        turn: Callable[[], AbstractContextManager[None]],
        damaged: Callable[[str], None],
    ) -> None:
        """`damaged` is told that the database file is not what was written."""
        self.long, self.too_long, self.again = LONG, TOO_LONG, AGAIN
        self._damaged = damaged
        self._path = f"{path}-wal"
        self._reader = reader
        self._turn = turn
        self.beside = False
        """Whether a thread moves the log: not in a command, which ends soon and moves everything when it closes."""
        self._running = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._next = _NOWHERE
        """Up to here nothing is left to move, or to try again."""
        self._complained = False

    def look(self) -> None:
        """Have a long log moved. For a thread that has written, and that lets others write now."""
        if self._closed:
            return
        if self._running.locked():
            if self._end_after(self.too_long):
                self._wait()
            return
        due = self._end_after(self.long, self._next) and self._running.acquire(blocking=False)
        if due and not (self.beside and self._begun()):
            self._run()

    def close(self) -> None:
        """Move no more; what is left in the log is moved by the last connection that is closed."""
        self._closed = True
        self._wait()

    def _wait(self) -> None:
        thread = self._thread
        if thread is not None:
            thread.join()

    def _begun(self) -> bool:
        thread = threading.Thread(target=self._run, name="yard-move-log", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._complain(error)
            return False
        self._thread = thread
        return True

    def _run(self) -> None:
        try:
            # Another thread may have moved it since the look.
            end = self._end_after(self.long, self._next)
            if end and not self._closed:
                self._next = _Place(end.salts, end.frames + self.long)
                self._move(end)
            self._complained = False
        except (SQLAlchemyError, sqlite3.Error, StoreError) as error:
            if is_damage(error.orig if isinstance(error, DBAPIError) else error):
                self._damaged(str(error))
            self._complain(error)
        finally:
            self._running.release()

    def _move(self, end: _Place) -> None:
        """Move what is in the log, at least up to here."""
        connection = self._reader.raw_connection()
        try:
            cursor = connection.cursor()
            moved = self._pass(cursor, end)
            for _ in range(_BESIDE):
                if moved is None or self._closed or not self._left(moved):
                    return
                moved = self._pass(cursor, moved)
            if moved is not None:
                with self._turn():
                    if self._left(moved):
                        self._pass(cursor, moved)
        finally:
            connection.close()

    def _left(self, moved: _Place) -> bool:
        """Whether something came after what was moved, and in the same log."""
        end = self._end_after(0, moved)
        return end is not None and end.salts == moved.salts

    def _pass(self, cursor: Any, end: _Place) -> _Place | None:
        """Move what is in the log now: up to where; None: a reader still needs some of it in the log."""
        busy, there, frames = cursor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if busy or frames < there:
            return None
        self._next = _Place(end.salts, frames + self.again)
        return _Place(end.salts, frames)

    def _end_after(self, frames: int, moved: _Place = _NOWHERE) -> _Place | None:
        """Where a transaction ends in the log: the first one after so many frames and after what was moved."""
        try:
            # No lock is on this file: to open and close it takes none away.
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain(error)
            return None
        try:
            head = os.pread(fd, _HEADER, 0)
            salts, step = head[16:24], _FRAME + int.from_bytes(head[8:12], "big")
            if salts == moved.salts:
                frames = max(frames, moved.frames)
            while True:
                frame = os.pread(fd, _FRAME, _HEADER + frames * step)
                frames += 1
                if len(frame) < _FRAME or frame[8:16] != salts:
                    return None
                if frame[4:8] != _GOES_ON:
                    return _Place(salts, frames)
        finally:
            os.close(fd)

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            _log.warning("%s is not moved into the database file and grows: %s", self._path, error)
        self._complained = True
