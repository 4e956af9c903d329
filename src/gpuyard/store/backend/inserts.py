"""Rows into tables: through SQLAlchemy on PostgreSQL, and by the shortest way on SQLite.

There each statement waits for nothing but this processor. What SQLAlchemy does around a statement, and for every row of
it, takes several times as long as SQLite takes to write the rows, and a submission alone in its transaction pays for
all of it. Errors come out as SQLAlchemy's do.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, Insert
from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.exc import DBAPIError

_TOGETHER = (64, 16, 4, 1)
"""Rows in one statement: few sizes, so that the driver finds its prepared form again."""
_VALUES = re.compile(r"(?s)(INSERT [^?]* VALUES )(\([?, ]+\))([^?]*)")
"""An insert of which all values belong to its rows."""
_FORMS_MAX = 64


def insert_rows(conn: Connection, statement: Insert, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, which have the same names, by a statement that is built once; SQLAlchemy caches its form."""
    if conn.dialect.name == "sqlite":
        form = _form(statement, tuple(rows[0]))
        if form is not None:
            with explained_by_sqlalchemy():
                insert_together(driver_of(conn).cursor(), form.text, [form.pick(row) for row in rows])
            return
    conn.execute(statement, rows)


def driver_of(conn: Connection) -> sqlite3.Connection:
    """The driver's own connection below one of SQLAlchemy's, on SQLite."""
    own: Any = conn.connection.dbapi_connection
    connection: sqlite3.Connection = own
    return connection


@contextmanager
def explained_by_sqlalchemy() -> Iterator[None]:
    """Errors of the driver inside come out as SQLAlchemy has them."""
    try:
        yield
    except sqlite3.Error as error:
        raise DBAPIError(None, None, error) from error


class _Form(NamedTuple):
    """A statement as the driver takes it."""

    text: str
    pick: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    """The values of a row, in the statement's order."""


@lru_cache(maxsize=_FORMS_MAX)
def _form(statement: Insert, names: tuple[str, ...]) -> _Form | None:
    """None: the statement has values of its own, or rows of one value."""
    compiled: Any = statement.compile(dialect=dialect(), column_keys=list(names))
    text, order = str(compiled), compiled.positiontup
    if len(order) < 2 or set(order) != set(names) or _VALUES.fullmatch(text) is None:
        return None
    return _Form(text, itemgetter(*order))


def insert_together(cursor: sqlite3.Cursor, statement: str, rows: Sequence[Sequence[Any]]) -> bool:
    """Insert many rows with few statements; whether that was done.

    The driver lets other threads run at every row of `executemany`, and each time it may wait for its turn: a commit
    of a hundred rows took a hundred milliseconds while others computed.
    """
    found = _VALUES.fullmatch(statement)
    if found is None:
        return False
    into, one, rest = found.groups()
    done = 0
    for size in _TOGETHER:
        if len(rows) - done < size:
            continue
        many = f"{into}{', '.join([one] * size)}{rest}"
        while len(rows) - done >= size:
            cursor.execute(many, [*chain.from_iterable(rows[done : done + size])])
            done += size
    return True
