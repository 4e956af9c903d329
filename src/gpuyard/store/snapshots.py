"""States at places in the log, so that a start folds the last few events and not all of them.

A snapshot is a convenience and is trusted only if its checksum matches: a damaged one is skipped for an older one, or
for the whole log. It is needed only once the log before it has been pruned, so pruning checks it first.

Besides the newest few, the first of every week stays as an anchor: a log that is cut there can still be folded from
there, so that questions about the past have answers back to the cut.
"""

import hashlib
import json
import logging
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import delete, func, insert, select

from gpuyard import __version__
from gpuyard.model.serialise import Plain
from gpuyard.model.units import DAY_MS
from gpuyard.store.backend.access import Locks
from gpuyard.store.errors import StoreDamaged, StoreError
from gpuyard.store.schema import CHECKPOINTS, EVENTS, SNAPSHOTS

_log = logging.getLogger(__name__)

_PRUNE_STEP = 20_000
"""Events deleted in one transaction: submissions wait meanwhile."""
ANCHOR_MS = 7 * DAY_MS
"""The first snapshot of each such span, aligned to the epoch, stays until the log is cut after it."""


class Snapshot(NamedTuple):
    """What the log amounts to, up to and including event `seq`."""

    seq: int
    plain: Plain


def pack_state(plain: Plain) -> bytes:
    """A state as it is kept."""
    # Level 1 makes a tenth of the size in a tenth of the time that the best level needs.
    return zlib.compress(json.dumps(plain, separators=(",", ":")).encode(), 1)


class Snapshots:
    """The snapshots of one store."""

    def __init__(self, backend: Locks) -> None:
        self._backend = backend

    def save(self, seq: int, plain: Plain, now_ms: int, keep: int = 3) -> None:
        """Keep a state; only the newest `keep` and the anchors stay."""
        self.put(seq, pack_state(plain), now_ms, keep)

    def put(self, seq: int, body: bytes, now_ms: int, keep: int = 3) -> None:
        """The same with a state that is packed already."""
        if keep < 1:
            raise ValueError("at least one snapshot is kept")
        row = {
            "seq": seq,
            "made_ms": now_ms,
            "code_version": __version__,
            "checksum": _checksum(seq, body),
            "body": body,
        }
        with self._backend.writing() as conn:
            head = self._backend.lock_counters(conn).next_seq - 1
            if not 0 <= seq <= head:
                raise ValueError(f"a snapshot at event {seq} of a log that ends at {head}")
            conn.execute(delete(SNAPSHOTS).where(SNAPSHOTS.c.seq == seq))
            conn.execute(insert(SNAPSHOTS), row)
            made = conn.execute(select(SNAPSHOTS.c.seq, SNAPSHOTS.c.made_ms).order_by(SNAPSHOTS.c.seq)).all()
            anchors: dict[int, int] = {}
            for each, made_ms in made:
                anchors.setdefault(made_ms // ANCHOR_MS, each)
            kept = {*anchors.values(), *[each for each, _ in made[-keep:]]}
            conn.execute(delete(SNAPSHOTS).where(SNAPSHOTS.c.seq.in_([s for s, _ in made if s not in kept])))

    def newest_first(self, until_seq: int | None = None) -> Iterator[Snapshot]:
        """Snapshots that are whole, newest first, none after `until_seq`."""
        query = select(SNAPSHOTS.c.seq).order_by(SNAPSHOTS.c.seq.desc())
        if until_seq is not None:
            query = query.where(SNAPSHOTS.c.seq <= until_seq)
        with self._backend.reading() as conn:
            seqs = list(conn.scalars(query))
        for seq in seqs:
            snapshot = self._load(seq)
            if snapshot is not None:
                yield snapshot

    def latest(self, until_seq: int | None = None) -> Snapshot | None:
        """The newest snapshot to start from; none: start from the first event.

        Raises `StoreDamaged` if the log does not reach back to where the fold would start.
        """
        found = next(self.newest_first(until_seq), None)
        seq = found.seq if found else 0
        with self._backend.reading() as conn:
            first = conn.scalar(select(func.min(EVENTS.c.seq)))
        if first is None:
            first = self._backend.head() + 1
        if first > seq + 1:
            raise StoreDamaged(
                f"{self._backend.place} has no whole snapshot between events {first - 1} and the end asked for, "
                f"and its log begins at {first}",
                "Restore a backup of the store.",
            )
        return found

    def _load(self, seq: int) -> Snapshot | None:
        with self._backend.reading() as conn:
            row = conn.execute(
                select(SNAPSHOTS.c.checksum, SNAPSHOTS.c.body).where(SNAPSHOTS.c.seq == seq)
            ).first()
        if row is None:
            return None
        checksum, body = row
        try:
            if checksum != _checksum(seq, body):
                raise ValueError("the checksum differs")
            return Snapshot(seq, json.loads(zlib.decompress(body)))
        except (ValueError, zlib.error) as error:
            _log.warning(
                "the snapshot at event %d of %s is damaged (%s): taking an older one, or the whole log",
                seq,
                self._backend.place,
                error,
            )
            return None

    def place_to_cut(self, before_ms: int, until_seq: int | None = None) -> int | None:
        """The newest whole snapshot that was made by then, none after `until_seq`: the log may be cut there."""
        query = (
            select(SNAPSHOTS.c.seq).where(SNAPSHOTS.c.made_ms <= before_ms).order_by(SNAPSHOTS.c.seq.desc())
        )
        if until_seq is not None:
            query = query.where(SNAPSHOTS.c.seq <= until_seq)
        with self._backend.reading() as conn:
            seqs = list(conn.scalars(query))
        return next((seq for seq in seqs if self._load(seq) is not None), None)

    def cut_log(self, at_seq: int) -> int:
        """Cut the log at a snapshot; gives how many events were deleted.

        Older snapshots go with it, and checkpoints that the log no longer continues.
        """
        with self._backend.writing() as conn:
            conn.execute(delete(SNAPSHOTS).where(SNAPSHOTS.c.seq < at_seq))
            conn.execute(delete(CHECKPOINTS).where(CHECKPOINTS.c.seq < at_seq))
        return self.prune(at_seq + 1)

    def prune(self, before_seq: int) -> int:
        """Delete events before this one, which the oldest snapshot must cover. Gives how many were deleted."""
        with self._backend.reading() as conn:
            oldest = conn.scalar(select(func.min(SNAPSHOTS.c.seq)))
        if oldest is None or before_seq > oldest + 1:
            raise StoreError(
                f"events before {before_seq} are needed: the oldest snapshot is "
                + ("missing" if oldest is None else f"at event {oldest}"),
                "Save a snapshot first, or prune less.",
            )
        if self._load(oldest) is None:
            raise StoreDamaged(
                f"the snapshot at event {oldest} is damaged; nothing was pruned", "Save a new one."
            )
        deleted = 0
        while True:
            with self._backend.writing() as conn:
                first = conn.scalar(select(func.min(EVENTS.c.seq)))
                if first is None or first >= before_seq:
                    return deleted
                until = min(first + _PRUNE_STEP, before_seq)
                deleted += conn.execute(delete(EVENTS).where(EVENTS.c.seq < until)).rowcount


def _checksum(seq: int, body: bytes) -> str:
    return hashlib.sha256(b"%d:" % seq + body).hexdigest()
