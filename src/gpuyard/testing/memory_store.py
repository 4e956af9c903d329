"""The store's promises kept in memory: for simulations and dry runs, where nothing has to outlive the process.

Events pass through the codec both ways, so that what is simulated is what a log can hold.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, cast

from gpuyard.model import Event
from gpuyard.model.serialise import Plain
from gpuyard.store import (
    CODEC,
    HISTORY_ROWS,
    TRY_ROWS,
    Accepted,
    Commit,
    Fenced,
    HistoryRow,
    Numbered,
    Snapshot,
    Submission,
    TryRow,
)
from gpuyard.store.codec import Encoded


class MemoryLease:
    """The right to decide, until another server is elected."""

    def __init__(self, store: "MemoryStore", holder: str) -> None:
        self.epoch = store.epoch
        self.holder = holder
        self._store = store

    def still_held(self) -> bool:
        """Whether no other server was elected since."""
        return self._store.epoch == self.epoch

    def release(self) -> None:
        """Does nothing: nothing is held."""


Tables = dict[str, dict[Hashable, Any]]
"""Rows of the tables that are bound to the log, by the name of the table and their keys."""


class MemorySnapshots:
    """The states that were kept."""

    def __init__(self) -> None:
        self._kept: list[Snapshot] = []

    def save(self, seq: int, plain: Plain, now_ms: int, keep: int = 3) -> None:
        """Keep a state."""
        self._kept = [*self._kept, Snapshot(seq, plain)][-keep:]

    def latest(self, until_seq: int | None = None) -> Snapshot | None:
        """The last kept state."""
        found = [s for s in self._kept if until_seq is None or s.seq <= until_seq]
        return found[-1] if found else None


class MemoryHistory:
    """The jobs that ended."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def find(self, job_id: int) -> HistoryRow | None:
        """A job that ended."""
        rows = cast(dict[int, HistoryRow], self._tables.get(HISTORY_ROWS.name, {}))
        return rows.get(job_id)


class MemoryTries:
    """The tries that ended and did not end their job."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def of_job(self, job_id: int, last: int) -> list[TryRow]:
        """The tries of a job up to this number, oldest first."""
        rows = cast(dict[tuple[int, int], TryRow], self._tables.get(TRY_ROWS.name, {}))
        return [row for key, row in sorted(rows.items()) if key[0] == job_id and key[1] <= last]


class MemoryStore:
    """Log, snapshots, history and blobs as lists and dicts."""

    def __init__(self, yard: str = "memory00") -> None:
        self.yard = yard
        self.place = "memory"
        self.epoch = 0
        self.tables: Tables = {}
        self.snapshots = MemorySnapshots()
        self.history = MemoryHistory(self.tables)
        self.tries = MemoryTries(self.tables)
        self._log: list[Encoded] = []
        self._next_id = 1
        self._blobs: dict[str, bytes] = {}

    def elect(self, holder: str) -> MemoryLease:
        """The server that asks last leads."""
        self.epoch += 1
        return MemoryLease(self, holder)

    def submit(self, batch: Sequence[Submission], now_ms: int) -> list[Accepted | Exception]:
        """Accept submissions. Idempotency keys are not kept."""
        answers: list[Accepted | Exception] = []
        for item in batch:
            first_id, seq = self._next_id, len(self._log)
            events = item.make(first_id)
            self._next_id += item.ids
            self._blobs.update(item.blobs)
            self._write(events)
            answers.append(Accepted(first_id, item.ids, tuple(range(seq + 1, seq + 1 + len(events)))))
        return answers

    def commit(
        self, epoch: int | None, after_seq: int, make: Callable[[list[Numbered]], Commit | None]
    ) -> list[int]:
        """Check what is new and write what still holds."""
        if epoch is not None and epoch != self.epoch:
            raise Fenced(f"epoch {epoch} is over, {self.epoch} has begun")
        wanted = make(self.read(after_seq))
        if wanted is None or not wanted.events:
            return []
        for table, rows in wanted.rows.items():
            self.tables.setdefault(table.name, {}).update({table.key(row): row for row in rows})
        first = len(self._log) + 1
        self._write(wanted.events)
        return list(range(first, len(self._log) + 1))

    def _write(self, events: Sequence[Event]) -> None:
        self._log += [CODEC.encode(event) for event in events]

    def head(self) -> int:
        """The number of the last event."""
        return len(self._log)

    def read(self, after_seq: int, limit: int | None = None, until_seq: int | None = None) -> list[Numbered]:
        """Events after this one."""
        last = len(self._log) if until_seq is None else until_seq
        rows = self._log[after_seq:last][:limit]
        return [
            (seq, CODEC.decode(seq, row.kind, row.version, row.body))
            for seq, row in enumerate(rows, start=after_seq + 1)
        ]

    def read_back(
        self, kinds: Sequence[str], before_seq: int | None, limit: int, after_seq: int = 0
    ) -> list[Numbered]:
        """Events of some kinds before the one and after the other, the newest first."""
        found = [
            (seq, CODEC.decode(seq, row.kind, row.version, row.body))
            for seq, row in enumerate(self._log, start=1)
            if row.kind in kinds and after_seq < seq and (before_seq is None or seq < before_seq)
        ]
        return found[::-1][:limit]

    def blobs(self, names: Collection[str]) -> dict[str, bytes]:
        """Blobs by their hashes."""
        return {name: self._blobs[name] for name in names if name in self._blobs}

    @property
    def rows(self) -> dict[int, HistoryRow]:
        """All jobs that ended, by id."""
        return cast(dict[int, HistoryRow], self.tables.setdefault(HISTORY_ROWS.name, {}))
