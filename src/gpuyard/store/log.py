"""The append-only log: how it is written, in what order, and how it is read.

Every writer locks the counter row before it touches the log. So numbers have no gaps, their order is the order of
commits, and a reader that has seen one event has seen all before it.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from gpuyard.model import Event, JobSubmitted, TasksSubmitted
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.store.backend.base import Backend, Counters
from gpuyard.store.codec import Codec, EncodedLine
from gpuyard.store.errors import Fenced, StoreBusy, StoreDamaged
from gpuyard.store.schema import EVENTS
from gpuyard.store.submissions import Accepted, Submission, WriteBatch, blobs_ahead, find_wrong_name
from gpuyard.store.tables.bound import Rows, put_rows
from gpuyard.store.tables.tokens import TokenRow, put_tokens

Numbered = tuple[int, Event]
"""An event with its number in the log."""

READ_MAX = 10_000
"""How many events one read gives by default."""

RECENT_MAX = 5_000
"""How many of the last events are remembered."""

_ALL = (1 << 62) - 1
_LINES = (
    select(EVENTS.c.seq, EVENTS.c.kind, EVENTS.c.version, EVENTS.c.body)
    .where(EVENTS.c.seq > bindparam("after_seq"), EVENTS.c.seq <= bindparam("until_seq"))
    .order_by(EVENTS.c.seq)
    .limit(bindparam("count"))
)
"""Built once, so that SQLAlchemy finds the compiled form in its cache."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What a leader wants written, all or nothing."""

    events: Sequence[Event] = ()
    rows: Rows = field(default_factory=dict)
    """What the events leave in tables that are bound to the log."""
    token_rows: Sequence[TokenRow] = ()
    """New tokens, and revoked ones: no event has their hashes, so they are in no table that is made from events."""


class Recent:
    """The last events that this process wrote, and those that it read in between: values that need no decoding.

    Another process may write too. Whatever is not known to follow on what is kept replaces all of it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._next = 1
        """The number after the last one."""
        self._events: deque[Event] = deque(maxlen=RECENT_MAX)

    def add(self, first_seq: int, events: Sequence[Event]) -> None:
        """Keep events with consecutive numbers."""
        if not events:
            return
        with self._lock:
            known = self._next - first_seq
            if known < 0:
                self._events.clear()
                known = 0
            self._events.extend(events[known:])
            self._next = max(self._next, first_seq + len(events))

    def cut(self, before_seq: int) -> None:
        """Forget the events before this one."""
        with self._lock:
            first = self._next - len(self._events)
            for _ in range(min(len(self._events), before_seq - first)):
                self._events.popleft()

    def after(self, seq: int, limit: int) -> list[Numbered]:
        """Events right after this one; none, if the next one is not kept."""
        with self._lock:
            begin = seq + 1 - (self._next - len(self._events))
            if not 0 <= begin < len(self._events):
                return []
            some = list(islice(self._events, begin, begin + limit))
        return list(enumerate(some, start=seq + 1))


class EventLog:
    """The log of one store."""

    def __init__(self, backend: Backend, codec: Codec) -> None:
        self._backend = backend
        self._codec = codec
        self._recent = Recent()

    def submit(self, batch: Sequence[Submission], now_ms: int) -> list[Accepted | Exception]:
        """Accept many submissions with one transaction; durable when this returns.

        The answer has one entry for each item: what was accepted, or the exception that concerns this item alone
        (`Conflict`, or whatever its `make` raised). If the transaction fails as a whole, that is raised, and nothing of
        the batch was written.
        """
        # What takes long with a large script comes before the log is locked.
        misnamed = [find_wrong_name(item) for item in batch]
        ahead = blobs_ahead(batch, misnamed, now_ms) if self._backend.idle_s else None
        until_s = time.monotonic() + self._backend.busy_s
        while True:
            writes = None
            try:
                with self._backend.writing(ahead.put if ahead else None) as conn:
                    counters = self._backend.lock_counters(conn)
                    if ahead:
                        ahead.check(conn)
                    writes = WriteBatch(counters, self._codec, now_ms, ahead)
                    writes.recall(conn, batch)
                    answers = [writes.take(item, name) for item, name in zip(batch, misnamed, strict=True)]
                    self._write(conn, writes)
            except StoreBusy:
                if ahead is None or writes is not None or time.monotonic() > until_s:
                    raise
            else:
                self._written(writes)
                return answers

    def append(self, events: Sequence[Event]) -> list[int]:
        """Log requests of people or reports of the world; any process may. Gives their numbers."""
        if not events:
            return []
        with self._backend.writing() as conn:
            writes = WriteBatch(self._backend.lock_counters(conn), self._codec, 0)
            writes.put(self._checked(writes, events), events)
            self._write(conn, writes)
        self._written(writes)
        return [row["seq"] for row in writes.events]

    def commit(
        self, epoch: int | None, after_seq: int, make: Callable[[list[Numbered]], Commit | None]
    ) -> list[int]:
        """The leader's way to write: read what is new, then decide what still holds, with no write in between.

        `make` gets every event after `after_seq` and is called once, with the log locked: what it returns is written
        with the next numbers, which this gives. If it returns nothing, nothing is written. Events that `make` was
        given are in the log for good, even if the commit fails. A leader of an older epoch is refused; without an
        epoch this is for what any process may write.
        """
        with self._backend.writing() as conn:
            counters = self._backend.lock_counters(conn)
            if epoch is not None and counters.epoch != epoch:
                raise Fenced(
                    f"epoch {epoch} is over, {counters.epoch} has begun: another process leads now",
                    "Stop acting; stand for election again.",
                )
            new = self._decoded(self._lines(conn, after_seq, None, None), after_seq, counters)
            wanted = make(new)
            if wanted is None or not (wanted.events or wanted.rows):
                return []
            writes = WriteBatch(counters, self._codec, 0)
            writes.put(self._checked(writes, wanted.events), wanted.events)
            self._write(conn, writes, wanted)
        self._recent.add(after_seq + 1, [event for _seq, event in new])
        self._written(writes)
        return [row["seq"] for row in writes.events]

    def _checked(self, writes: WriteBatch, events: Sequence[Event]) -> list[dict[str, Any]]:
        # Jobs that were seen in another system have ids of their own, far from those that `submit` gives.
        if any(
            [
                (type(event) is JobSubmitted or type(event) is TasksSubmitted)
                and event.job.id < FIRST_EXTERNAL_ID
                for event in events
            ]
        ):
            raise ValueError("a job gets its id in `submit`; it cannot be logged in another way")
        return writes.rows(events)

    def _write(self, conn: Connection, writes: WriteBatch, wanted: Commit | None = None) -> None:
        """The end of every transaction of the log."""
        with self._backend.closing(conn):
            if wanted is not None:
                put_rows(conn, wanted.rows)
                if wanted.token_rows:
                    put_tokens(conn, wanted.token_rows)
            writes.write(conn)
            if writes.events:
                self._backend.set_counters(conn, writes.counters)

    def _written(self, writes: WriteBatch) -> None:
        """What was written is on disk: wake what waits for it."""
        last = writes.counters.next_seq - 1
        self._recent.add(last + 1 - len(writes.told), writes.told)
        self._backend.notifier.notify(last)

    def recent(self, after_seq: int, limit: int) -> list[Numbered]:
        """At most `limit` events right after this one, if this process has just written them; else none."""
        return self._recent.after(after_seq, limit)

    def head(self) -> int:
        """The number of the last event; 0 before the first."""
        return self._backend.head()

    def counters(self) -> Counters:
        """The next number, the next job id and the current epoch."""
        return self._backend.counters()

    def read(self, after_seq: int, limit: int = READ_MAX, until_seq: int | None = None) -> list[Numbered]:
        """At most `limit` events after this one, in order, none after `until_seq`.

        Raises `StoreDamaged` if events are missing: a fold over the rest would be wrong.
        """
        lines = self.read_lines(after_seq, limit, until_seq)
        return self._numbered(lines)

    def read_lines(
        self, after_seq: int, limit: int = READ_MAX, until_seq: int | None = None
    ) -> list[EncodedLine]:
        """The same as the database has them."""
        if self._backend.is_head(after_seq):
            return []
        counters = None
        with self._backend.reading() as conn:
            lines = self._lines(conn, after_seq, limit, until_seq)
            if not lines and (until_seq is None or until_seq > after_seq):
                # Nothing is new, or all of it was pruned. If events have come since, they are read now.
                counters = self._backend.counters(conn)
                if counters.next_seq - 1 > after_seq:
                    lines = self._lines(conn, after_seq, limit, until_seq)
        return self._whole(lines, after_seq, counters)

    def first_seq(self) -> int:
        """The number of the first event that the log still has; if it has none, of the next one."""
        with self._backend.reading() as conn:
            first = conn.scalar(select(func.min(EVENTS.c.seq)))
        return int(first) if first is not None else self._backend.head() + 1

    def read_back(
        self, kinds: Sequence[str], before_seq: int | None, limit: int, after_seq: int = 0
    ) -> list[Numbered]:
        """Events of some kinds before the one and after the other, the newest first."""
        query = (
            select(EVENTS.c.seq, EVENTS.c.kind, EVENTS.c.version, EVENTS.c.body)
            .where(
                EVENTS.c.kind.in_(kinds),
                EVENTS.c.seq < (_ALL if before_seq is None else before_seq),
                EVENTS.c.seq > after_seq,
            )
            .order_by(EVENTS.c.seq.desc())
            .limit(limit)
        )
        with self._backend.reading() as conn:
            lines = conn.execute(query).all()
        return [(line[0], self._codec.decode(*line)) for line in lines]

    def seq_at(self, at_ms: int) -> int:
        """How far to fold the log to see the world as it was at that time; 0: not at all.

        Clocks of several processes are never quite alike, so times in the log may step back a little. What is
        asked for is a place in the log, not a choice of events: a fold may not leave out any in between.
        """
        query = (
            select(EVENTS.c.seq)
            .where(EVENTS.c.at_ms <= at_ms)
            .order_by(EVENTS.c.at_ms.desc(), EVENTS.c.seq.desc())
            .limit(1)
        )
        with self._backend.reading() as conn:
            return conn.scalar(query) or 0

    def wait(self, after_seq: int, timeout_s: float) -> bool:
        """Whether there is an event after this one: as soon as there is, at the latest after the timeout."""
        backend = self._backend
        backend.listen()
        return backend.notifier.wait(after_seq, timeout_s, backend.poll_s, backend.head)

    def recipes_after(self, conn: Connection, seq: int) -> set[str]:
        """The recipes of jobs that were submitted after an event, in a transaction that has locked the log."""
        found = set()
        # Not `_decoded`: a gap in the log matters only when it is folded.
        for number, kind, version, body in self._lines(conn, seq, None, None):
            if kind in (JobSubmitted.__name__, TasksSubmitted.__name__):
                event = self._codec.decode(number, kind, version, body)
                if isinstance(event, JobSubmitted | TasksSubmitted):
                    found.add(event.job.spec.recipe)
        return found

    def forget_recent(self, before_seq: int) -> None:
        """Forget the events before this one that this process remembers: they are about to be deleted."""
        self._recent.cut(before_seq)

    def _lines(self, conn: Connection, after_seq: int, limit: int | None, until_seq: int | None) -> list[Any]:
        parts = {"after_seq": after_seq, "until_seq": until_seq if until_seq is not None else _ALL}
        result = conn.execute(_LINES, {**parts, "count": limit if limit is not None else _ALL})
        # As the driver gives them: a value of SQLAlchemy's own for each would take as long as reading them.
        lines = list(result.cursor.fetchall())
        result.close()
        return lines

    def _decoded(self, lines: list[Any], after_seq: int, counters: Counters | None) -> list[Numbered]:
        """Lines as events, if they are all there."""
        return self._numbered(self._whole(lines, after_seq, counters))

    def _numbered(self, lines: list[EncodedLine]) -> list[Numbered]:
        return [(line[0], event) for line, event in zip(lines, self._codec.decode_all(lines), strict=True)]

    def _whole(
        self, lines: list[EncodedLine], after_seq: int, counters: Counters | None
    ) -> list[EncodedLine]:
        """These lines, if they are all there."""
        first, last = (lines[0][0], lines[-1][0]) if lines else (after_seq + 1, after_seq)
        missing = not lines and counters is not None and counters.next_seq - 1 > after_seq
        if missing or first != after_seq + 1 or last - first + 1 != len(lines):
            raise StoreDamaged(
                f"events after number {after_seq} are missing in {self._backend.place}",
                "If the log was pruned, start from a snapshot; otherwise restore a backup.",
            )
        return lines
