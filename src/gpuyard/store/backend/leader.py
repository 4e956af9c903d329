"""Leader election. At most one process holds the lease, and each lease has an epoch that was never used before.

The lease is what makes one process try; the epoch is what makes it safe. A leader that was paused and wakes up after
another took over still believes in its lease, and its commits are refused by the epoch.
"""

import fcntl
import json
import logging
import os
import threading
import time
import weakref
from pathlib import Path
from typing import NamedTuple, Protocol

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import SQLAlchemyError

from gpuyard.errors import error_text

_log = logging.getLogger(__name__)


class LeaseHolder(NamedTuple):
    """The process that leads now, as far as is known."""

    pid: int
    """Of the process on this machine (SQLite), or of its session on the server (PostgreSQL)."""
    name: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})" if self.name else f"process {self.pid}"


class Lease(Protocol):
    """The right to decide, until released or lost."""

    @property
    def epoch(self) -> int:
        """Goes with every commit and every act."""

    @property
    def holder(self) -> str:
        """The name that was given at the election."""

    def still_held(self) -> bool:
        """Whether it is still ours. Never true again once false."""

    def release(self) -> None:
        """Give it back. Doing it twice changes nothing."""


class FileLease:
    """A lock on a file beside the database. The kernel lets go of it when the process dies."""

    def __init__(self, path: Path, fd: int, holder: str) -> None:
        self._path = path
        self._fd = fd
        self.holder = holder
        self.epoch = 0
        _open_leases.add(self)

    @classmethod
    def take(cls, path: Path, holder: str) -> "FileLease | None":
        """The lease, or nothing if another process (or another store of this one) has it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            won = _locked(fd)
        except OSError:
            os.close(fd)
            raise
        if not won:
            os.close(fd)
            return None
        lease = cls(path, fd, holder)
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps({"pid": os.getpid(), "name": holder}).encode(), 0)
        except OSError as error:
            # The lock is what counts; the note in the file only helps people, and a full disk may not take it.
            _log.warning("could not note the holder in %s: %s", path, error_text(error))
        return lease

    def still_held(self) -> bool:
        """A lock on an open file is not lost, except by closing it, or by replacing the file."""
        if self._fd < 0:
            return False
        try:
            there = os.stat(self._path)
        except OSError:
            return False
        ours = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def release(self) -> None:
        """The file stays: removing it would let two processes lock two files of one name."""
        if self._fd >= 0:
            # Unlock explicitly, do not rely on close: a child that is being forked right now may share the file.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            self.forget()

    def forget(self) -> None:
        """Close the file; the lock stays with any process that shares it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _locked(fd: int) -> bool:
    """Lock the file if it is free. The retries outlast `find_holder`, which locks it for a moment to look."""
    for pause_s in (0.01, 0.02, 0.0):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(pause_s)
    return False


_open_leases: "weakref.WeakSet[FileLease]" = weakref.WeakSet()


def _let_go_in_child() -> None:
    # A forked child shares the open file and with it the lock: it would keep a dead leader's lease alive.
    for lease in list(_open_leases):
        lease.forget()


os.register_at_fork(after_in_child=_let_go_in_child)


def find_holder(path: Path) -> LeaseHolder | None:
    """The process that has the file locked; None if it is free."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            note = json.loads(os.pread(fd, 4096, 0))
            return LeaseHolder(int(note["pid"]), str(note["name"]))
        except (ValueError, KeyError, TypeError):
            return LeaseHolder(0, "it left no note of itself")
    finally:
        os.close(fd)
    return None


class SessionLease:
    """An advisory lock of a PostgreSQL session that the server ends when it hears nothing for `lease_s`.

    A thread speaks to the server often enough. If the process dies, is stopped, or cannot be reached, the server
    hears nothing, ends the session and frees the lock: no clocks of two machines are compared.
    """

    def __init__(self, conn: Connection, epoch: int, holder: str, lease_s: float) -> None:
        self.epoch = epoch
        self.holder = holder
        self._conn = conn
        self._beat_s = lease_s / 4
        self._lost = False
        self._turn = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="yard-lease", daemon=True)
        self._thread.start()

    def still_held(self) -> bool:
        """Asks the server: a session that answers still has its lock."""
        with self._turn:
            if self._lost:
                return False
            try:
                self._conn.execute(select(1))
            except SQLAlchemyError as error:
                self._lost = True
                _log.warning("the lease of epoch %d is lost: %s", self.epoch, error)
                self._close()
                return False
            return True

    def _beat(self) -> None:
        while not self._done.wait(self._beat_s):
            if not self.still_held():
                return

    def release(self) -> None:
        """Ends the session, and the lock with it."""
        self._done.set()
        with self._turn:
            if not self._lost:
                self._lost = True
                self._unlock()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)

    def _unlock(self) -> None:
        # Unlock explicitly: the server notices a closed connection only a moment later.
        try:
            self._conn.execute(select(func.pg_advisory_unlock_all()))
        except SQLAlchemyError as error:
            _log.debug("unlocking the lease: %s", error)
        self._close()

    def _close(self) -> None:
        try:
            self._conn.close()
        except SQLAlchemyError as error:
            _log.debug("closing the lease's session: %s", error)
