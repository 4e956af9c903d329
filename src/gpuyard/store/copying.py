"""A whole store copied into an empty one, of either database: a backup, a restore, the way from SQLite to PostgreSQL.

Both sides are one transaction each. The source is read as it is at one moment, so a server may go on writing to it; the
target has everything or nothing. The yard's own name and its counters come along: the copy is the same yard, its
running jobs are found again under their keys, and no id is given out twice. Only the epoch differs: it is later than
any that the source or an earlier copy can have reached, so engines refuse a server that still leads there and accept
the new leader.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, Table, delete, func, insert, select

from gpuyard.errors import BadInput
from gpuyard.store.backend.base import Backend
from gpuyard.store.backend.leader import LeaseHolder
from gpuyard.store.errors import StoreError, translate_errors
from gpuyard.store.migrate import read_yard_name
from gpuyard.store.schema import COUNTERS, META, METADATA
from gpuyard.store.store import BUSY_S, choose_backend

ROWS_AT_ONCE = 2_000
PATIENCE_S = 600.0
"""How long one side may be idle in its transaction while the other one works."""
_OWN = (COUNTERS, META)
"""Tables in which every store has rows from the beginning."""


class Copied(NamedTuple):
    """What a copy holds."""

    source: str
    target: str
    """Paths, or URLs without their passwords."""
    rows: dict[str, int]
    """By table."""
    next_job_id: int
    writer: LeaseHolder | None
    """The server that leads on the source, if one does: what it writes from now on is not in the copy."""


def copy_store(
    source: str | Path, target: str | Path, now_s: int, tell: Callable[[str, int], None] | None = None
) -> Copied:
    """Copy all of a store. Calls `tell` with the number of rows of each table. Raises if anything is missing."""
    if "://" not in str(source) and not Path(source).is_file():
        raise BadInput(f"there is no store at {source}", "Name the file, such as yard.db in the data folder.")
    there = choose_backend(source, BUSY_S, PATIENCE_S)
    try:
        with _snapshot(there) as reading:
            there.yard = read_yard_name(reading, there.place)
            here = choose_backend(target, BUSY_S, PATIENCE_S)
            try:
                if here.place == there.place:
                    raise BadInput("source and target are one store", "Name an empty place as the target.")
                here.prepare()
                with here.writing() as writing:
                    _check_empty(writing, here)
                    rows = _copy(reading, writing, tell)
                    counters = here.lock_counters(writing)
                    # There is at most one election in a second, so no epoch overtakes the clock.
                    later = counters._replace(epoch=max(counters.epoch + 1, now_s))
                    here.set_counters(writing, later)
                return Copied(there.place, here.place, rows, later.next_job_id, there.who_leads())
            finally:
                here.close()
    finally:
        there.close()


@contextmanager
def _snapshot(backend: Backend) -> Iterator[Connection]:
    """Reads that all see the same moment."""
    with translate_errors(backend.place), backend.reader.connect() as conn:
        if conn.dialect.name == "postgresql":
            # SQLite's transactions see one moment by themselves.
            conn.execution_options(isolation_level="REPEATABLE READ")
        with conn.begin():
            yield conn


def _check_empty(conn: Connection, backend: Backend) -> None:
    tables = [table for table in METADATA.sorted_tables if table not in _OWN]
    full = [table.name for table in tables if conn.scalar(select(1).select_from(table).limit(1))]
    counters = backend.lock_counters(conn)
    if full or counters.next_seq > 1 or counters.next_job_id > 1:
        raise BadInput(
            f"{backend.place} is not empty: it holds a yard, with {', '.join(full) or 'ids given out'}",
            "Nothing was changed. Name a new file, or an empty database or schema.",
        )


def _copy(
    reading: Connection, writing: Connection, tell: Callable[[str, int], None] | None
) -> dict[str, int]:
    rows: dict[str, int] = {}
    for table in METADATA.sorted_tables:
        if table in _OWN:
            writing.execute(delete(table))
        rows[table.name] = _copy_table(table, reading, writing)
        wanted = reading.scalar(select(func.count()).select_from(table))
        found = writing.scalar(select(func.count()).select_from(table))
        if not wanted == found == rows[table.name]:
            raise StoreError(
                f"table {table.name} has {wanted} rows and the copy has {found}",
                "Nothing was changed. Try again.",
            )
        if tell is not None:
            tell(table.name, rows[table.name])
    return rows


def _copy_table(table: Table, reading: Connection, writing: Connection) -> int:
    count = 0
    into = insert(table)
    order = list(table.primary_key.columns)
    found = reading.execution_options(yield_per=ROWS_AT_ONCE).execute(select(table).order_by(*order))
    for part in found.mappings().partitions():
        writing.execute(into, [dict(row) for row in part])
        count += len(part)
    return count
