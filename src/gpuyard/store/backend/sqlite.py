"""The store in one file: the default, for one machine and one server process.

What is acknowledged is on the disk: the write-ahead log is synchronised at every commit (`synchronous=FULL`).
Every write begins with `BEGIN IMMEDIATE`, so it waits for its turn at the start and never fails half-way for a lock.
What the log holds is moved into the database file beside the writers (`LogMover`).
"""

import ctypes
import errno
import fcntl
import logging
import os
import sqlite3
import struct
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, update
from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from gpuyard.errors import count_text
from gpuyard.store.backend.base import COUNTER_ROW, Backend, Counters
from gpuyard.store.backend.examining import Examination, count_lost_commits
from gpuyard.store.backend.inserts import driver_of, explained_by_sqlalchemy, insert_together
from gpuyard.store.backend.leader import FileLease, Lease, LeaseHolder, find_holder
from gpuyard.store.backend.mover import LogMover
from gpuyard.store.errors import StoreDamaged, StoreError, StoreFull, StoreReadOnly, damaged_error
from gpuyard.store.schema import COUNTERS

_COUNTER_ROW = str(COUNTER_ROW.compile(dialect=dialect(), compile_kwargs={"literal_binds": True}))
_SET_COUNTERS = "UPDATE counters SET next_seq = ?, next_job_id = ?, epoch = ? WHERE id = 1"
_log = logging.getLogger(__name__)
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


_SMALL_BYTES = 64 << 20
"""On a file system of less nothing is kept."""


def measure_part(path: str, part: int, most_bytes: int) -> int:
    """A part of the file system that a path is on, and no more than that; 0: it is too small to keep anything."""
    found = os.statvfs(path)
    total = found.f_frsize * found.f_blocks
    return min(most_bytes, total // part) if total >= _SMALL_BYTES else 0


_READERS_MAX = 16
_LOG_BYTES = 16_000_000
"""Of the write-ahead log: as much as the first part of its index covers, so that nothing else has to grow."""
_LOG_PART = 16
"""Of a small file system, no more than this part."""
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510
"""The bytes that a reader of the database file locks: https://sqlite.org/fileformat2.html, "lock-byte page"."""
_AGAIN_S = 0.01
"""Pause between two tries of a call that SQLite itself does not retry."""


class SqliteBackend(Backend):
    """One connection that writes, a few that read."""

    poll_s = 0.2

    def __init__(self, path: Path, busy_s: float, durable: bool) -> None:
        self.path = path
        _make_file(path)
        synchronous = f"synchronous={'FULL' if durable else 'OFF'}"
        alone = ("wal_autocheckpoint=0", "cache_size=-32768", synchronous)
        writer = _engine(path, busy_s, 1, "IMMEDIATE", alone)
        reader = _engine(path, busy_s, _READERS_MAX, "DEFERRED", ("query_only=ON", synchronous))
        super().__init__(str(path), writer, reader, busy_s)
        self._mover = LogMover(path, reader, lambda: self.turn(busy_s), self._found)

    def examine(self, wait_s: float) -> None:
        """The write-ahead log, then every page."""
        with self.explained():
            try:
                with closing(self.writer.raw_connection()) as connection:
                    cursor = connection.cursor()
                    (page_bytes,) = cursor.execute("PRAGMA page_size").fetchone()
                    # Another process that has the store open writes nothing meanwhile.
                    cursor.execute("BEGIN IMMEDIATE")
                    try:
                        lost = count_lost_commits(self.path, page_bytes)
                    finally:
                        cursor.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise DBAPIError(None, None, error) from error
        if lost:
            self._found(
                f"its log {self.path}-wal is damaged, and {count_text(lost, 'commit')} after that are lost"
            )
        else:
            Examination(self.path, self._found).begin(wait_s)
        self.check()

    def _found(self, what: str) -> None:
        self.spoil(damaged_error(self.place, what))

    def spoil(self, damage: StoreDamaged) -> None:
        """Write nothing more, and leave the files as they are: somebody may want to look at them."""
        if self.damage is None:
            self.damage = damage
            _log.error("%s: nothing more is written. %s", damage.message, damage.hint)
            self.leave_log()

    def written(self) -> None:
        """Look whether the write-ahead log is long."""
        self._mover.look()

    def keep_room(self) -> None:
        """Blocks for the write-ahead log. No lock is on that file: to open and close it takes none away."""
        path = f"{self.path}-wal"
        # It is not there before the first write, and some file systems take no blocks ahead.
        with suppress(OSError):
            wanted = measure_part(path, _LOG_PART, _LOG_BYTES)
            # To take what is there already would make the disk write something, again and again.
            if os.stat(path).st_blocks * 512 < wanted:
                allocate(path, wanted, keep_size=True)

    def counters(self, conn: Connection | None = None) -> Counters:
        """The counter row. Lists and the loop ask for it all the time: one statement, a tenth of a transaction."""
        if conn is not None:
            return super().counters(conn)
        with self.explained():
            try:
                # A new connection may be the first that meets damage.
                found = self.reader.raw_connection()
                try:
                    return Counters(*found.cursor().execute(_COUNTER_ROW).fetchone())
                except sqlite3.Error as error:
                    found.invalidate(error)
                    raise
                finally:
                    found.close()
            except sqlite3.Error as error:
                raise DBAPIError(None, None, error) from error

    def lock_counters(self, conn: Connection) -> Counters:
        """The counter row: the transaction has locked everything already."""
        with explained_by_sqlalchemy():
            return Counters(*driver_of(conn).execute(_COUNTER_ROW).fetchone())

    def set_counters(self, conn: Connection, counters: Counters) -> None:
        """Write the counter row; other processes poll it."""
        with explained_by_sqlalchemy():
            driver_of(conn).execute(_SET_COUNTERS, counters).close()

    def leave_log(self) -> None:
        """The last connection that is closed removes the log with its blocks, unless another process reads then.

        This looks like one: a lock of an open file is held against the locks of its own process. It ends with the
        process, for to close the file would take away all locks that the process has on it.
        """
        wanted = struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, _SHARED_FIRST, _SHARED_SIZE, 0)
        with suppress(OSError):
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wanted)

    def is_head(self, seq: int) -> bool:
        """By the counter row."""
        return self.head() == seq

    def announce(self, conn: Connection, head: int) -> None:
        """Nothing to do: SQLite has no notifications, other processes poll."""

    def listen(self) -> None:
        """There is nothing to listen to."""

    @property
    def _lease_path(self) -> Path:
        return self.path.with_name(self.path.name + ".leader")

    def elect(self, holder: str) -> Lease | None:
        """The lock on the file beside the database, then the next epoch."""
        try:
            lease = FileLease.take(self._lease_path, holder)
        except OSError as error:
            raise _refused(self._lease_path, error) from error
        if lease is None:
            return None
        try:
            with self.writing() as conn:
                epoch = self.lock_counters(conn).epoch + 1
                conn.execute(update(COUNTERS).values(epoch=epoch))
        except BaseException:
            lease.release()
            raise
        lease.epoch = epoch
        self._mover.beside = True
        return lease

    def who_leads(self) -> LeaseHolder | None:
        """From the note in the locked file."""
        return find_holder(self._lease_path)

    def close(self) -> None:
        """End the mover first: it uses a connection."""
        self._mover.close()
        super().close()


def _engine(path: Path, busy_s: float, size: int, begin: str, pragmas: tuple[str, ...]) -> Engine:
    """Connections with these settings; `begin` is the statement that begins a transaction."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=QueuePool,
        pool_size=min(size, 4),
        max_overflow=size - min(size, 4),
        pool_timeout=busy_s,
        # What people sent is in no message about a statement that failed.
        hide_parameters=True,
        # The library's own idea of when a transaction begins is switched off: `on_begin` begins it.
        connect_args={"timeout": busy_s, "check_same_thread": False, "isolation_level": None},
    )

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        switch_to_wal(connection, busy_s)
        for pragma in ("journal_size_limit=67108864", *pragmas):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def on_begin(conn: Connection) -> None:
        with explained_by_sqlalchemy():
            driver_of(conn).execute(f"BEGIN {begin}").close()

    event.listen(engine, "do_executemany", _insert_together)
    return engine


def _insert_together(
    cursor: sqlite3.Cursor, statement: str, rows: Sequence[Sequence[Any]], _context: Any
) -> bool:
    """Whether SQLAlchemy need not do it."""
    return insert_together(cursor, statement, rows)


def switch_to_wal(connection: sqlite3.Connection, busy_s: float) -> None:
    """Retry: the busy timeout does not cover this switch, so only one of several processes would get through."""
    until_s = time.monotonic() + busy_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until_s:
                raise
            time.sleep(_AGAIN_S)
        else:
            return


def _make_file(path: Path) -> None:
    """A new file with a durable name that only its owner can read: it will hold scripts and environments."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        if not path.is_file():
            raise StoreError(f"{path} is not a file", "Name the file that holds the store.") from None
        if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
            raise _refused(path, PermissionError(errno.EROFS, "it may not be written")) from None
        return
    except OSError as error:
        raise _refused(path, error) from error
    os.close(fd)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _refused(path: Path, error: OSError) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(
            f"cannot make {path}: {error.strerror}", "Free some space and remove some files there."
        )
    kind = StoreReadOnly if isinstance(error, PermissionError) or error.errno == errno.EROFS else StoreError
    return kind(
        f"cannot open {path}: {error.strerror}",
        "Check that its folder exists and that this user may read and write it.",
    )
