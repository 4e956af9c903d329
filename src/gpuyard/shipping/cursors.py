"""How far each log was sent to one receiver, on disk: a small SQLite file for each receiver.

A place is written after the receiver has taken what lies before it. A server that is killed in between sends a batch
twice; none is left out.
"""

import json
import logging
import os
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field

_log = logging.getLogger(__name__)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS place (only INTEGER PRIMARY KEY CHECK (only = 1), yard TEXT NOT NULL, seq INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS streams (
    key TEXT NOT NULL, stream TEXT NOT NULL, job_id INTEGER NOT NULL, attempt INTEGER NOT NULL,
    offset INTEGER NOT NULL, part INTEGER NOT NULL, head BLOB NOT NULL, ended_ms INTEGER NOT NULL,
    labels TEXT NOT NULL, cursor TEXT NOT NULL DEFAULT '', PRIMARY KEY (key, stream)
) WITHOUT ROWID;
"""


@dataclass(slots=True)
class Stream:
    """A log that is not sent to its end."""

    key: str
    stream: str
    job_id: int
    attempt: int
    labels: dict[str, str]
    offset: int = 0
    """Everything before this place was taken, in bytes: lines are named by it."""
    cursor: str = ""
    """The same place in the words of the engine."""
    part: int = 0
    """How many parts of the line at this place were taken."""
    head: bytes = b""
    """How the log begins: a log that begins otherwise is another one."""
    ended_ms: int = 0
    """When the attempt ended; 0: it runs."""
    next_s: float = field(default=0.0, compare=False)
    """When to look at it again."""
    pause_s: float = field(default=0.0, compare=False)
    checked_s: float = field(default=0.0, compare=False)


class Cursors:
    """The file of one receiver."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            _log.warning(
                "%s is damaged and set aside; running jobs are sent from their beginning: %s", path, error
            )
            os.replace(path, f"{path}.damaged")
            for ending in ("-wal", "-shm"):
                if os.path.exists(path + ending):
                    os.unlink(path + ending)
            self._open()

    def _open(self) -> None:
        self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            os.chmod(self._path, 0o600)
            self._db.execute("PRAGMA journal_mode=WAL")
            # What a crash of the machine takes back is sent again.
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
            if "cursor" not in [row[1] for row in self._db.execute("PRAGMA table_info(streams)")]:
                # A file of a release that knew nothing but offsets.
                self._db.execute("ALTER TABLE streams ADD COLUMN cursor TEXT NOT NULL DEFAULT ''")
        except BaseException:
            self._db.close()
            raise

    def load(self, yard: str) -> tuple[int, list[Stream]] | None:
        """How far the log of events was followed, and the streams; None: nothing was sent of this yard yet."""
        row = self._db.execute("SELECT seq FROM place WHERE yard = ?", (yard,)).fetchone()
        if row is None:
            return None
        rows = self._db.execute(
            "SELECT key, stream, job_id, attempt, labels, offset, cursor, part, head, ended_ms FROM streams "
            "ORDER BY job_id, attempt, stream"
        )
        # A number of bytes is a cursor too: it is all that an earlier release wrote down.
        return row[0], [
            Stream(
                key=key,
                stream=stream,
                job_id=job_id,
                attempt=attempt,
                labels=json.loads(labels),
                offset=offset,
                cursor=cursor or str(offset or ""),
                part=part,
                head=head,
                ended_ms=ended_ms,
            )
            for key, stream, job_id, attempt, labels, offset, cursor, part, head, ended_ms in rows
        ]

    def save(self, yard: str, seq: int, changed: Iterable[Stream], gone: Iterable[Stream]) -> None:
        """Write what has changed, in one transaction."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("INSERT OR REPLACE INTO place VALUES (1, ?, ?)", (yard, seq))
            self._db.executemany(
                "INSERT OR REPLACE INTO streams "
                "(key, stream, job_id, attempt, labels, offset, cursor, part, head, ended_ms) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (each.key, each.stream, each.job_id, each.attempt, json.dumps(each.labels), each.offset,
                     each.cursor, each.part, each.head, each.ended_ms)
                    for each in changed
                ],
            )  # fmt: skip
            self._db.executemany(
                "DELETE FROM streams WHERE key = ? AND stream = ?", [(each.key, each.stream) for each in gone]
            )

    def clear(self) -> None:
        """Forget everything: it belongs to another yard, or to events that are gone."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("DELETE FROM streams")
            self._db.execute("DELETE FROM place")

    def close(self) -> None:
        """Let go."""
        self._db.close()
