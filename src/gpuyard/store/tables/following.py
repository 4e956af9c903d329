"""Projections that follow the log: rows by key, how far each has come (its cursor), and its checkpoints.

The rows of a batch and the cursor that goes with them are written in one transaction, so a process that dies between
two batches repeats nothing and skips nothing. Only the leader writes rows; any process may ask for a projection to be
filled again, and a batch that was worked out before that is thrown away.

A checkpoint is all rows of a projection at one event. The log may be cut before it: the projection is then filled
again from there.
"""

import hashlib
import json
import logging
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, bindparam, delete, insert, select, update

from gpuyard.store.backend.access import Locks
from gpuyard.store.errors import Fenced
from gpuyard.store.schema import CHECKPOINTS, PROJECTED, PROJECTIONS

_log = logging.getLogger(__name__)

EMPTYING = -1
"""Where the cursor stands while rows of an earlier filling are removed."""
PAGE_MAX = 1_000
"""Rows on one page at most."""
_KEYS_PER_QUERY = 500
_LAST = "\U0010ffff"


class Cursor(NamedTuple):
    """How far a projection has come."""

    name: str
    version: int
    began_seq: int
    """Its rows cover the events after this one; 0: all."""
    seq: int
    """The last event that is in its rows."""
    moved_ms: int = 0
    """When the last batch was written."""

    @property
    def ready(self) -> bool:
        """Whether it has begun, or is still being emptied."""
        return self.seq != EMPTYING


class Checkpoint(NamedTuple):
    """All rows of a projection at one event."""

    cursor: Cursor
    rows: dict[str, str]


_OR_REPLACE = "ON CONFLICT (projection, key) DO UPDATE SET value = excluded.value"
_PUT = {
    "sqlite": f"INSERT INTO projected (projection, key, value) VALUES (?, ?, ?) {_OR_REPLACE}",
    "postgresql": f"INSERT INTO projected (projection, key, value) VALUES (%s, %s, %s) {_OR_REPLACE}",
}
"""In the database's own words: for thousands of rows, SQLAlchemy would take longer than the database."""
# Built once, so that SQLAlchemy finds the compiled form in its cache.
_DROP = delete(PROJECTED).where(
    PROJECTED.c.projection == bindparam("of"), PROJECTED.c.key == bindparam("gone")
)
_CURSORS = select(
    PROJECTIONS.c.name,
    PROJECTIONS.c.version,
    PROJECTIONS.c.began_seq,
    PROJECTIONS.c.seq,
    PROJECTIONS.c.moved_ms,
).order_by(PROJECTIONS.c.name)
_CURSOR = _CURSORS.where(PROJECTIONS.c.name == bindparam("of"))
_MOVE = (
    update(PROJECTIONS)
    .where(PROJECTIONS.c.name == bindparam("of"))
    .values({name: bindparam(name) for name in ("version", "began_seq", "seq", "moved_ms")})
)


class FollowingRows:
    """Rows and cursors of projections, as they are read."""

    def __init__(self, reading: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._reading = reading

    def cursors(self) -> dict[str, Cursor]:
        """How far each projection that was ever filled here has come, by name."""
        with self._reading() as conn:
            return {row[0]: Cursor(*row) for row in conn.execute(_CURSORS)}

    def rows(
        self, name: str, prefix: str = "", after: str = "", limit: int = PAGE_MAX
    ) -> list[tuple[str, str]]:
        """A page of the rows of a projection with keys that begin with `prefix`, by key, as key and JSON."""
        table = PROJECTED.c
        query = (
            select(table.key, table.value)
            .where(table.projection == name, table.key > after)
            .where(table.key >= prefix, table.key < prefix + _LAST)
            .order_by(table.key)
            .limit(max(1, min(limit, PAGE_MAX)))
        )
        with self._reading() as conn:
            return [(row[0], row[1]) for row in conn.execute(query)]

    def between(self, name: str, low: str, high: str) -> list[tuple[str, str]]:
        """All rows of a projection with keys from `low` to before `high`, by key."""
        table = PROJECTED.c
        query = select(table.key, table.value).where(
            table.projection == name, table.key >= low, table.key < high
        )
        with self._reading() as conn:
            return [(row[0], row[1]) for row in conn.execute(query.order_by(table.key)).all()]

    def at(self, name: str, keys: Sequence[str]) -> dict[str, str]:
        """The rows of a projection under these keys, as far as there are any."""
        table, found = PROJECTED.c, {}
        query = select(table.key, table.value).where(table.projection == name)
        with self._reading() as conn:
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                some = conn.execute(query.where(table.key.in_(keys[start : start + _KEYS_PER_QUERY])))
                found.update({row[0]: row[1] for row in some})
        return found


class Following(FollowingRows):
    """The projections of one store that follow its log."""

    def __init__(self, backend: Locks) -> None:
        super().__init__(backend.reading)
        self._backend = backend

    @contextmanager
    def snapshot(self) -> Iterator[FollowingRows]:
        """All of them at one moment, however they move on meanwhile."""
        with self._backend.snapshot() as conn:
            yield FollowingRows(lambda: nullcontext(conn))

    # -- writing -------------------------------------------------------------------------------------------------

    def fill_anew(self, name: str, version: int, now_ms: int) -> None:
        """Have a projection emptied and filled from the log by the leader. Any process may ask for it."""
        with self._backend.writing() as conn:
            # With this lock no other process makes the same row, or writes a batch in between.
            self._backend.lock_counters(conn)
            conn.execute(delete(PROJECTIONS).where(PROJECTIONS.c.name == name))
            conn.execute(insert(PROJECTIONS), Cursor(name, version, 0, EMPTYING, now_ms)._asdict())

    def empty(self, epoch: int, cursor: Cursor, limit: int) -> bool:
        """Remove some rows of a projection that is being emptied; whether it may have more."""
        table = PROJECTED.c
        some = select(table.key).where(table.projection == cursor.name).limit(limit).scalar_subquery()
        with self._backend.writing() as conn:
            if not self._stands(conn, epoch, cursor):
                return True
            gone = conn.execute(delete(PROJECTED).where(table.projection == cursor.name, table.key.in_(some)))
            return gone.rowcount >= limit

    def put(self, epoch: int, cursor: Cursor, moved: Cursor, rows: Mapping[str, str | None]) -> bool:
        """Write a batch and the cursor that goes with it; None as a value removes a row.

        False, and nothing is written, if the projection has moved since the batch was begun.
        """
        name = cursor.name
        new = [(name, key, value) for key, value in rows.items() if value is not None]
        gone = [{"of": name, "gone": key} for key, value in rows.items() if value is None]
        with self._backend.writing() as conn:
            if new:
                conn.exec_driver_sql(_PUT[conn.dialect.name], new)
            if gone:
                conn.execute(_DROP, gone)
            # Last: every writer of the log waits for the lock that this takes.
            if not self._stands(conn, epoch, cursor):
                conn.rollback()
                return False
            conn.execute(_MOVE, {"of": name, **moved._asdict()})
        return True

    def _stands(self, conn: Connection, epoch: int, cursor: Cursor) -> bool:
        """Whether this leader may write, and the projection has not moved."""
        found = self._backend.lock_counters(conn).epoch
        if found != epoch:
            raise Fenced(f"epoch {epoch} is over, {found} has begun: another process leads now")
        row = conn.execute(_CURSOR, {"of": cursor.name}).first()
        return row is not None and Cursor(*row)[:4] == cursor[:4]

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def save_checkpoint(self, cursor: Cursor, now_ms: int) -> bool:
        """Keep all rows of a projection as they are; False, and nothing is kept, if it has moved on meanwhile."""
        # Page by page: a projection may have millions of rows, and they are never in memory all at once. If any of them
        # changes meanwhile, the cursor moves.
        pack, packed, comma, after = zlib.compressobj(1), [], "{", ""
        while page := self.rows(cursor.name, after=after):
            # Without its braces: the pages are one object.
            packed.append(
                pack.compress(f"{comma}{json.dumps(dict(page), separators=(',', ':'))[1:-1]}".encode())
            )
            comma, after = ",", page[-1][0]
        packed.append(pack.compress(b"}" if comma == "," else b"{}"))
        body = b"".join([*packed, pack.flush()])
        with self._backend.writing() as conn:
            found = conn.execute(_CURSOR, {"of": cursor.name}).first()
            if found is None or Cursor(*found)[:4] != cursor[:4]:
                return False
            conn.execute(delete(CHECKPOINTS).where(*_at(cursor)))
            conn.execute(
                insert(CHECKPOINTS),
                {
                    "projection": cursor.name,
                    "seq": cursor.seq,
                    "version": cursor.version,
                    "began_seq": cursor.began_seq,
                    "made_ms": now_ms,
                    "checksum": _checksum(cursor, body),
                    "body": body,
                },
            )
        return True

    def checkpoints(self, name: str) -> list[Cursor]:
        """Where a projection has checkpoints, the oldest first; `moved_ms` is when they were made."""
        table = CHECKPOINTS.c
        query = (
            select(table.projection, table.version, table.began_seq, table.seq, table.made_ms)
            .where(table.projection == name)
            .order_by(table.seq, table.version)
        )
        with self._backend.reading() as conn:
            return [Cursor(*row) for row in conn.execute(query)]

    def checkpoint(self, at: Cursor) -> Checkpoint | None:
        """The rows of a checkpoint; None: it is not there, or damaged."""
        query = select(CHECKPOINTS.c.checksum, CHECKPOINTS.c.body).where(*_at(at))
        with self._backend.reading() as conn:
            row = conn.execute(query).first()
        if row is None:
            return None
        if row[0] != _checksum(at, row[1]):
            _log.warning("the checkpoint of %s at event %d is damaged: taking another one", at.name, at.seq)
            return None
        return Checkpoint(at, json.loads(zlib.decompress(row[1])))

    def covered_seq(self, following: Collection[str], before_ms: int) -> tuple[int | None, str]:
        """Up to which event the log may be cut, and the projection that needs what comes after; None: anywhere.

        A projection that is named needs what its checkpoints do not cover; so does any other that has moved since
        `before_ms`.
        """
        cursors = self.cursors()
        held = {*following, *[name for name, cursor in cursors.items() if cursor.moved_ms > before_ms]}
        least: tuple[int | None, str] = (None, "")
        for name in sorted(held):
            version = cursors[name].version if name in cursors else None
            whole = (
                at.seq
                for at in reversed(self.checkpoints(name))
                if at.version == version and self.checkpoint(at) is not None
            )
            seq = next(whole, 0)
            if least[0] is None or seq < least[0]:
                least = (seq, name)
        return least


def _at(cursor: Cursor) -> tuple[ColumnElement[bool], ...]:
    table = CHECKPOINTS.c
    return table.projection == cursor.name, table.seq == cursor.seq, table.version == cursor.version


def _checksum(at: Cursor, body: bytes) -> str:
    told: Iterable[object] = (at.name, at.version, at.began_seq, at.seq)
    return hashlib.sha256(json.dumps([*told]).encode() + body).hexdigest()
