"""Many submissions, one transaction: each gets its ids, its events and its reply, and a bad one spoils no other.

A write batch is filled item by item in memory while the counter row is locked, and written at the end. A bad item
shows before any part of it is in the batch. Large blobs are written before that row is locked, where the database can.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, insert, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from gpuyard.errors import YardError
from gpuyard.garbage import strip_traceback
from gpuyard.model import Event, JobSubmitted, TasksSubmitted
from gpuyard.model.serialise import Plain
from gpuyard.store.backend.base import Counters
from gpuyard.store.backend.inserts import insert_rows
from gpuyard.store.codec import Codec
from gpuyard.store.errors import Conflict, StoreBusy, StoreError
from gpuyard.store.schema import BLOBS, EVENTS, IDEMPOTENCY

_KEYS_PER_QUERY = 500
_KEY_LENGTH_MAX = 255
"""An index of PostgreSQL takes no more than 2,700 bytes in a row."""
_ODD = re.compile("[\0\ud800-\udfff]")
IDS_MAX = 1_000_000
"""Job ids in one submission at most."""
LARGE_BYTES = 65_536
"""Of a blob that is written before the log is locked."""

# Statements are built once, so that SQLAlchemy finds the compiled form in its cache.
_INSERT_EVENTS = insert(EVENTS)
_INSERT_KEYS = insert(IDEMPOTENCY)
_INSERT_BLOBS = {
    "sqlite": sqlite.insert(BLOBS).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(BLOBS).on_conflict_do_nothing(),
}
_INSERT_AHEAD = postgresql.insert(BLOBS).on_conflict_do_nothing().returning(BLOBS.c.hash)


@dataclass(frozen=True, slots=True)
class Idempotency:
    """The client's own name for a request, so that sending it twice does it once."""

    owner: str
    """The user the key belongs to: two people may choose the same key."""
    key: str
    request_hash: str
    """Of the whole request: the same key for another request is a mistake."""


class NamedBlobs(dict[str, bytes]):
    """Blobs under their names, which are made from them here: they need no check."""

    def __init__(self, *bodies: bytes) -> None:
        super().__init__({hashlib.sha256(body).hexdigest(): body for body in bodies})


@dataclass(frozen=True, slots=True)
class Submission:
    """One request to accept jobs."""

    make: Callable[[int], Sequence[Event]]
    """Given the first of `ids` consecutive job ids, the events to log. Called inside the transaction: be quick."""
    ids: int = 1
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    """By SHA-256 in hexadecimal; checked, unless they are `NamedBlobs`."""
    idempotency: Idempotency | None = None
    reply: Callable[[int], Plain] | None = None
    """Given the first id, a note in JSON's own types, kept with the key and given again to a repeated request."""
    ahead: bool = True
    """Whether large blobs may be written before the log is locked: not where it will probably be refused."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A submission that is in the log, on disk."""

    first_id: int
    ids: int
    seqs: tuple[int, ...]
    """Numbers of its events in the log."""
    reply: Plain = None
    replayed: bool = False
    """The key was known: this is what was answered the first time, and nothing was written."""


def find_wrong_name(item: Submission) -> str:
    """The first of its blobs that is not what its hash says; empty: there is none."""
    if isinstance(item.blobs, NamedBlobs):
        return ""
    return next((name for name, body in item.blobs.items() if hashlib.sha256(body).hexdigest() != name), "")


class BlobsAhead:
    """Large blobs that a transaction writes on PostgreSQL before it locks the log: to write one takes a while.

    Nobody else sees them before the transaction is committed. All transactions write them in the same order, and with
    the log locked none writes one, but for a submission that was to be refused and was not: so two that bring the same
    blob wait for each other, but never both.
    """

    def __init__(self, bodies: Mapping[str, bytes], now_ms: int) -> None:
        self.bodies = bodies
        self._now_ms = now_ms
        self._new: set[str] = set()

    def put(self, conn: Connection) -> None:
        """Write those that are not there."""
        self._new = set()
        for name in sorted(self.bodies):
            row = {"hash": name, "body": self.bodies[name], "created_ms": self._now_ms}
            if conn.scalar(_INSERT_AHEAD, row) is not None:
                self._new.add(name)

    def check(self, conn: Connection) -> None:
        """With the log locked: raise if one that was there has been removed since."""
        known = self.bodies.keys() - self._new
        if known and set(conn.scalars(select(BLOBS.c.hash).where(BLOBS.c.hash.in_(sorted(known))))) != known:
            raise StoreBusy("how a job is run was removed while a job like it came in", "Try again.")

    def keep(self, conn: Connection, wanted: Collection[str]) -> None:
        """Take back what no job needs: its submission was refused."""
        left = self._new.difference(wanted)
        if left:
            conn.execute(delete(BLOBS).where(BLOBS.c.hash.in_(sorted(left))))


def blobs_ahead(batch: Sequence[Submission], misnamed: Sequence[str], now_ms: int) -> BlobsAhead | None:
    """The large blobs of a batch, if there are any."""
    good = [item.blobs for item, name in zip(batch, misnamed, strict=True) if item.ahead and not name]
    large = {name: body for blobs in good for name, body in blobs.items() if len(body) >= LARGE_BYTES}
    return BlobsAhead(large, now_ms) if large else None


class WriteBatch:
    """What one transaction will write."""

    def __init__(
        self, counters: Counters, codec: Codec, now_ms: int, ahead: BlobsAhead | None = None
    ) -> None:
        self.counters = counters
        self.events: list[dict[str, Any]] = []
        """As rows."""
        self.told: list[Event] = []
        """The same events as values."""
        self._codec = codec
        self._now_ms = now_ms
        self._ahead = ahead
        """What is written already."""
        self._blobs: dict[str, bytes] = {}
        self._keys: list[dict[str, Any]] = []
        self._answers: dict[tuple[str, str], tuple[str, Accepted]] = {}

    def recall(self, conn: Connection, batch: Sequence[Submission]) -> None:
        """Look up the answers to keys that were used before."""
        keys = [
            (item.idempotency.owner, item.idempotency.key)
            for item in batch
            if item.idempotency and _usable(item.idempotency)
        ]
        if not keys:
            return
        table = IDEMPOTENCY.c
        query = select(table.owner, table.key, table.request_hash, table.reply)
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            chunk = keys[start : start + _KEYS_PER_QUERY]
            for owner, key, request_hash, reply in conn.execute(
                query.where(tuple_(table.owner, table.key).in_(chunk))
            ):
                note = json.loads(reply)
                first = Accepted(note["first_id"], note["ids"], tuple(note["seqs"]), note["reply"], True)
                self._answers[owner, key] = (request_hash, first)

    def take(self, item: Submission, misnamed: str) -> Accepted | Exception:
        """Put one submission into the batch, or say why not."""
        try:
            return self._replay(item.idempotency) or self._accept(item, misnamed)
        except YardError as error:
            # Without where it was raised: those calls have the script, and a list with this error in it.
            return strip_traceback(error)
        except Exception as error:  # Whatever it is, it belongs to this item and to no other.
            return error

    def _replay(self, idempotency: Idempotency | None) -> Accepted | None:
        if idempotency is None:
            return None
        if not _usable(idempotency):
            raise StoreError(
                "the idempotency key cannot be stored",
                f"Use at most {_KEY_LENGTH_MAX} characters, and none that is not printable.",
            )
        known = self._answers.get((idempotency.owner, idempotency.key))
        if known is None:
            return None
        if known[0] != idempotency.request_hash:
            raise Conflict(
                f"the idempotency key {idempotency.key!r} was used before for another request",
                "Use a new key for a new request, or send the first request again unchanged.",
            )
        return known[1]

    def _accept(self, item: Submission, misnamed: str) -> Accepted:
        first_id = self.counters.next_job_id
        if not 1 <= item.ids <= IDS_MAX:
            raise ValueError(f"a submission of {item.ids} ids")
        events = item.make(first_id)
        _check_ids(events, first_id, item.ids)
        rows = self.rows(events)
        if misnamed:
            raise ValueError(f"the blob {misnamed} is not what its hash says")
        reply = item.reply(first_id) if item.reply else None
        seqs = tuple([row["seq"] for row in rows])
        accepted = Accepted(first_id, item.ids, seqs, reply)
        key = self._key_row(item.idempotency, accepted) if item.idempotency else None
        # From here on nothing can fail, so all of it is in the batch or none.
        if key is not None and item.idempotency is not None:
            self._keys.append(key)
            again = Accepted(first_id, item.ids, seqs, reply, True)
            self._answers[item.idempotency.owner, item.idempotency.key] = (
                item.idempotency.request_hash,
                again,
            )
        self._blobs.update(item.blobs)
        self.put(rows, events)
        self.counters = self.counters._replace(next_job_id=first_id + item.ids)
        return accepted

    def _key_row(self, idempotency: Idempotency, accepted: Accepted) -> dict[str, Any]:
        note = {
            "first_id": accepted.first_id,
            "ids": accepted.ids,
            "seqs": accepted.seqs,
            "reply": accepted.reply,
        }
        return {
            "owner": idempotency.owner,
            "key": idempotency.key,
            "request_hash": idempotency.request_hash,
            "reply": json.dumps(note, separators=(",", ":")),
            "at_ms": self._now_ms,
        }

    def rows(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        """Events as rows with the next numbers, not yet in the batch."""
        encode, epoch = self._codec.encode, self.counters.epoch
        rows = []
        for seq, event in enumerate(events, start=self.counters.next_seq):
            at_ms, kind, version, body = encode(event)
            rows.append(
                {
                    "seq": seq,
                    "at_ms": at_ms,
                    "epoch": epoch,
                    "kind": kind,
                    "version": version,
                    "body": body,
                }
            )
        return rows

    def put(self, rows: list[dict[str, Any]], events: Sequence[Event]) -> None:
        """Put events, with what `rows` made of them, into the batch: their numbers are taken."""
        self.events += rows
        self.told += events
        self.counters = self.counters._replace(next_seq=self.counters.next_seq + len(rows))

    def write(self, conn: Connection) -> None:
        """Everything but the counter row."""
        there = self._ahead.bodies if self._ahead else {}
        rows = [
            {"hash": name, "body": body, "created_ms": self._now_ms}
            for name, body in self._blobs.items()
            if name not in there
        ]
        if self._ahead:
            self._ahead.keep(conn, self._blobs)
        if rows:
            insert_rows(conn, _INSERT_BLOBS[conn.dialect.name], rows)
        if self._keys:
            insert_rows(conn, _INSERT_KEYS, self._keys)
        if self.events:
            insert_rows(conn, _INSERT_EVENTS, self.events)


def _check_ids(events: Sequence[Event], first_id: int, ids: int) -> None:
    """Jobs have ids of this block and no two the same: an id is never handed out twice."""
    seen = [event.job.id for event in events if type(event) is JobSubmitted]
    for event in events:
        if type(event) is TasksSubmitted:
            seen += range(event.job.id, event.job.id + len(event.indices))
    if not events:
        raise ValueError("a submission without events")
    if len(set(seen)) != len(seen) or (seen and not first_id <= min(seen) <= max(seen) < first_id + ids):
        raise ValueError(
            f"jobs {seen[:5]}… in a submission that was allotted {first_id} to {first_id + ids - 1}"
        )


def _usable(idempotency: Idempotency) -> bool:
    """Whether both databases can keep it as it is: not too long, no zero characters, no halves of surrogate pairs."""
    texts = (idempotency.owner, idempotency.key, idempotency.request_hash)
    return not any([len(text) > _KEY_LENGTH_MAX or _ODD.search(text) for text in texts])
