"""What can go wrong with a store, in words that say what to do.

The libraries below speak in codes (SQLite's result codes, PostgreSQL's SQLSTATE). They are read in this one place,
so that the code above need not know which database is in use.

    StoreError
      Fenced            a newer leader was elected; this one must stop acting
      Conflict          an idempotency key was used again for another request
      StoreFull         no space left; reads go on, writes work again once there is space
      StoreReadOnly     writes are not allowed; reads go on
      StoreBusy         another thread or process holds the store for too long; try again
      StoreUnreachable  the server is not there, or went away; whether the last write happened is not known
      StoreDamaged      what was read is not what was written
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gpuyard.errors import YardError


class StoreError(YardError):
    """The store could not do what it was asked."""


class Fenced(StoreError):
    """A newer leader was elected; nothing of this commit was written."""


class Conflict(StoreError):
    """The idempotency key was used before, for another request."""


class StoreFull(StoreError):
    """There is no space left. Nothing was written; reads go on."""


class StoreReadOnly(StoreError):
    """The store may not be written. Nothing was written; reads go on."""


class StoreBusy(StoreError):
    """Another thread or process held the store for too long. Nothing was written."""


class StoreUnreachable(StoreError):
    """The server is not there. A write under way may or may not have happened."""


class StoreDamaged(StoreError):
    """What the store holds cannot be what was written."""

    exit_code = 5


_FULL_HINT = "Free some space; nothing needs to be restarted."
_READ_ONLY_HINT = "Make it writable again; nothing needs to be restarted."
_BUSY_HINT = "Try again; if it persists, look for another process that holds the store open."
_DAMAGED_HINT = (
    "Nothing is written to it. Stop the yard if it runs, keep a copy of the store as it is, and restore a backup: "
    "docs/how-to/backup.md. Jobs that run go on meanwhile."
)
_UNREACHABLE_HINT = (
    "Check that the server runs and accepts connections; a yard that runs tries again by itself."
)

_Kind = tuple[type[StoreError], str, str]

_FULL: _Kind = (StoreFull, "no space left for", _FULL_HINT)
_NO_FILES: _Kind = (
    StoreFull,
    "no file can be made, for the file system has no inode left, beside",
    "Remove some files there; nothing needs to be restarted.",
)
_READ_ONLY: _Kind = (StoreReadOnly, "no permission to write", _READ_ONLY_HINT)
_BUSY: _Kind = (StoreBusy, "another process holds", _BUSY_HINT)
_UNREACHABLE: _Kind = (StoreUnreachable, "cannot reach", _UNREACHABLE_HINT)
_DAMAGED: _Kind = (StoreDamaged, "something is wrong with the contents of", _DAMAGED_HINT)
_NO_ACCESS: _Kind = (
    StoreUnreachable,
    "the server refuses",
    "Check user, password and database name in the URL.",
)
_OTHER: _Kind = (StoreError, "an operation failed on", "This is not expected; the message names the cause.")

_SQLITE: dict[int, _Kind] = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CANTOPEN: (
        StoreError,
        "cannot open",
        "Check that its folder exists and that this user may read and write it.",
    ),
    sqlite3.SQLITE_IOERR: (StoreError, "the disk failed under", "Look at the system's log for disk errors."),
}
"""By primary result code, which is the low byte of the code that is reported."""

_POSTGRESQL: dict[str, _Kind] = {
    "53100": _FULL,
    "25006": _READ_ONLY,
    "42501": _READ_ONLY,
    "55P03": _BUSY,
    "57014": _BUSY,
    "40001": _BUSY,
    "40P01": _BUSY,
    "53300": _BUSY,
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
    "42P01": _DAMAGED,
    "25P03": _UNREACHABLE,
    "28": _NO_ACCESS,
    "3D": _NO_ACCESS,
    "08": _UNREACHABLE,
    "57P": _UNREACHABLE,
}
"""By SQLSTATE, or by how it begins."""


def explain(error: SQLAlchemyError, place: str) -> StoreError:
    """The error of a library as one of ours. `place` is the path or the URL without its password."""
    kind, what, hint = _looked_at(_kind_of(error), place)
    cause = str(error.orig) if isinstance(error, DBAPIError) and error.orig is not None else str(error)
    return kind(f"{what} {place}: {' '.join(cause.split()) or type(error).__name__}", hint)


def damaged_error(place: str, what: str) -> StoreDamaged:
    """A store of which something is known to be wrong."""
    _kind, begins, hint = _DAMAGED
    return StoreDamaged(f"{begins} {place}: {what}", hint)


def _kind_of(error: SQLAlchemyError) -> _Kind:
    if isinstance(error, PoolTimeout):
        return _BUSY
    cause: Any = error.orig if isinstance(error, DBAPIError) else None
    if isinstance(cause, sqlite3.Error):
        return _SQLITE.get(getattr(cause, "sqlite_errorcode", 0) & 0xFF, _OTHER)
    state: str | None = getattr(cause, "sqlstate", None)
    if state:
        found = [_POSTGRESQL[key] for key in (state, state[:3], state[:2]) if key in _POSTGRESQL]
        return found[0] if found else _OTHER
    # A connection that could not be made, or broke, has no SQLSTATE: no server was there to give one.
    if isinstance(error, DBAPIError) and type(cause).__name__ in {"OperationalError", "ConnectionTimeout"}:
        return _UNREACHABLE
    return _OTHER


def _looked_at(kind: _Kind, place: str) -> _Kind:
    """SQLite does not always say why a file could not be opened or written; the file system does."""
    if kind not in (_SQLITE[sqlite3.SQLITE_CANTOPEN], _SQLITE[sqlite3.SQLITE_IOERR]):
        return kind
    try:
        found = os.statvfs(place)
        if found.f_bavail == 0:
            return _FULL
        if found.f_files and not found.f_ffree:
            return _NO_FILES
    except OSError:
        return kind
    return kind if os.access(place, os.W_OK) else _READ_ONLY


@contextmanager
def translate_errors(place: str) -> Iterator[None]:
    """Errors of the database inside come out as ours; errors of the caller's own code as they are."""
    try:
        yield
    except SQLAlchemyError as error:
        raise explain(error, place) from error
