"""What the parts of a store may do with its database: most of them read, some write, few lock the log."""

from contextlib import AbstractContextManager
from typing import Protocol

from sqlalchemy import Connection

from gpuyard.store.backend.base import Counters


class Reads(Protocol):
    """A database that is read."""

    def reading(self) -> AbstractContextManager[Connection]:
        """A connection for reading only."""
        ...

    def snapshot(self) -> AbstractContextManager[Connection]:
        """The same, and every statement reads the same moment."""
        ...


class Writes(Reads, Protocol):
    """A database that is written as well."""

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction that may write; committed and durable on leaving, undone by any exception."""
        ...


class Locks(Writes, Protocol):
    """A database whose log may be locked, so that nothing comes in between."""

    place: str

    def lock_counters(self, conn: Connection) -> Counters:
        """The counter row, locked until this transaction ends."""
        ...

    def head(self) -> int:
        """The number of the last event."""
        ...
