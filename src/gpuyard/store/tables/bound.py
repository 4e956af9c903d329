"""Tables that are bound to the log: their rows are written in the transaction of the event that makes them.

So there is never one without the other, and nothing has to catch up. A bound table is declared once, beside what its
rows look like; the log writes whatever rows a commit brings, by table.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

from gpuyard.store.backend.access import Writes
from gpuyard.store.backend.inserts import insert_rows
from gpuyard.store.schema import BLOBS

R = TypeVar("R")

_INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_INSERT_BLOBS = {name: make(BLOBS).on_conflict_do_nothing() for name, make in _INSERT.items()}


class BoundTable(Generic[R]):
    """One such table, and how its rows are written."""

    def __init__(
        self,
        table: Table,
        values: Callable[[R], dict[str, Any]],
        *,
        key: Callable[[R], Hashable],
        replaces: bool = True,
        blob: Callable[[R], dict[str, Any]] | None = None,
    ) -> None:
        self.name = table.name
        self.key = key
        """Equal for two rows that stand for the same thing."""
        self._values = values
        self._blob = blob
        """The text that goes with a row, as a row of the blobs."""
        # Built once, so that SQLAlchemy finds the compiled form in its cache.
        self._into = {name: _into(make(table), table, replaces) for name, make in _INSERT.items()}

    def put(self, conn: Connection, rows: Sequence[R]) -> None:
        """Write rows inside a transaction; one that is there is replaced, or refused by the database."""
        if not rows:
            return
        if self._blob is not None:
            insert_rows(conn, _INSERT_BLOBS[conn.dialect.name], [self._blob(row) for row in rows])
        insert_rows(conn, self._into[conn.dialect.name], [self._values(row) for row in rows])


Rows = Mapping[BoundTable[Any], Sequence[Any]]
"""What a commit brings, by table."""


def put_rows(conn: Connection, rows: Rows) -> None:
    """Write the rows of a commit."""
    for table, new in rows.items():
        table.put(conn, new)


class BoundTables:
    """The bound tables of one store."""

    def __init__(self, backend: Writes) -> None:
        self._backend = backend

    def put(self, rows: Rows) -> None:
        """Write rows that were made again from the log."""
        with self._backend.writing() as conn:
            put_rows(conn, rows)


def _into(statement: Any, table: Table, replaces: bool) -> Any:
    if not replaces:
        return statement
    key = [column.name for column in table.primary_key.columns]
    new = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in key}
    return statement.on_conflict_do_update(index_elements=key, set_=new)


_INTEGER_MAX = (1 << 63) - 1


def kept_text(text: str) -> str:
    """A text as it is kept for listings; the log has the original. No character in it may stop a job from ending."""
    if len(text) <= 600 and text.isascii() and "\0" not in text:
        return text
    # An index takes no more than 2,700 bytes in a row.
    return text[:600].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def fit_number(value: int) -> int:
    """A number as it fits in a column."""
    if -_INTEGER_MAX <= value <= _INTEGER_MAX:
        return value
    return _INTEGER_MAX if value > 0 else -_INTEGER_MAX
