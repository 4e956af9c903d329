"""SQLite as it is asked by a store: who asks, and what it refuses, without a word of the store's own code changed."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event
from sqlalchemy.pool import Pool


@contextmanager
def at_each_connection(prepare: Callable[[sqlite3.Connection], None]) -> Iterator[None]:
    """Prepare every connection to a store whenever a thread takes it."""

    def taken(connection: sqlite3.Connection, *_: Any) -> None:
        prepare(connection)

    event.listen(Pool, "checkout", taken)
    try:
        yield
    finally:
        event.remove(Pool, "checkout", taken)


@contextmanager
def asked(hear: Callable[[str], None]) -> Iterator[None]:
    """Hear of every statement that a thread begins with, in that thread."""
    heard = True

    def told(statement: str) -> None:
        if heard:
            hear(statement)

    with at_each_connection(lambda connection: connection.set_trace_callback(told)):
        yield
    heard = False


@contextmanager
def refusing(action: int, name: str) -> Iterator[None]:
    """Refuse what SQLite calls an action, such as `sqlite3.SQLITE_INSERT`, on a table or a pragma."""
    refuses = True

    def judged(asked_for: int, about: str | None, *_: str | None) -> int:
        return sqlite3.SQLITE_DENY if refuses and (asked_for, about) == (action, name) else sqlite3.SQLITE_OK

    with at_each_connection(lambda connection: connection.set_authorizer(judged)):
        yield
    refuses = False
