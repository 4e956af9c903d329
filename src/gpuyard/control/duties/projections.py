"""The duty `projections`: fills the projections that follow the log, batch by batch, by the leader, beside its loop.

What a batch changes is worked out without any lock and written at the end, together with the cursor, in one short
transaction. A projection that fails at an event stands still there and says so, and the others go on.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from gpuyard.control.duties.duty import BackOff, Duty, Turn
from gpuyard.control.projections.following import Projection, Rows, expand_event
from gpuyard.control.refusals import NotFound
from gpuyard.control.upkeep.reading_ahead import ReadingAhead
from gpuyard.errors import YardError, error_text
from gpuyard.garbage import pause_collection
from gpuyard.model import TasksSubmitted
from gpuyard.model.units import DAY_MS
from gpuyard.store import Cursor, Fenced, Numbered, Store, StoreDamaged
from gpuyard.wire.replies.people import ProjectionReply

_log = logging.getLogger(__name__)

BATCH_EVENTS = 25_000
"""Events in one batch: others wait for as long as its rows are written."""
PIECE_EVENTS = 1_000
"""Events of a batch that are read from the log at once: they are gone again before the next ones are made."""
AHEAD_EVENTS = 100_000
"""So many events behind, and a process of its own reads them ahead: it takes a second to start."""
BATCH_FACTS = 25_000
"""How many events, tasks of arrays counted each, end a batch too."""
LIVE_FACTS = 4_000
"""The same where a projection is not far behind: submissions of people wait for as long as a batch is written."""
REMOVED_ROWS = 2_000
"""Rows that are removed, or brought back from a checkpoint, in one transaction."""
KNOWN_ROWS = 50_000
"""Rows of one projection that are remembered from batch to batch."""
CHECKPOINT_MS = 7 * DAY_MS
"""How old the last checkpoint of a projection gets before there is a new one."""
PAUSE_S = 0.005
"""Between two batches while there is more: other writers have to get their turn."""
GATHER_S = 3.0
"""After news, so that many events make one write: a batch has costs of its own, and no reader is in a hurry."""
IDLE_S = 1.0


class Filler:
    """Fills projections. `step` is one batch of each; the leader's rounds are made of such steps."""

    def __init__(
        self,
        store: Store,
        projections: Sequence[Projection],
        now_ms: Callable[[], int],
        *,
        batch: int = BATCH_EVENTS,
        piece: int = PIECE_EVENTS,
        ahead: str = "",
        ahead_from: int = AHEAD_EVENTS,
        far_from: int = BATCH_EVENTS,
    ) -> None:
        """`ahead`: where the store is, for a process that reads a long log ahead; left out: there is none.

        In events: `batch` is the most in one step, `piece` the most that are read at one go, `ahead_from` the fewest
        for which a process reads ahead, `far_from` those behind which a projection is far behind.
        """
        self.projections = {each.name: each for each in projections}
        self.errors: dict[str, str] = {}
        """What went wrong with a projection last and has not gone right since."""
        self._store = store
        self._now_ms = now_ms
        self._batch, self._piece_events = batch, piece
        self._ahead_from, self._far_from = ahead_from, far_from
        self._ahead_of = ahead
        self._ahead: ReadingAhead | None = None
        self._ahead_for = ""
        """The projection that its events are for; others take them too where they stand at the same event."""
        self._no_ahead_seq = 0
        """Up to this event the log is read without such a process: one has failed."""
        self._read: dict[int, list[Numbered]] = {}
        """Pieces of the log by the event after which they come, as far as others in this step want them too."""
        self._far = False
        """Whether a projection was far behind in the last step."""
        self._known: dict[str, tuple[tuple[Any, ...], Rows]] = {}
        """Rows of each as they are in the store, as far as they were looked at, and where its cursor stands."""
        self._seqs: dict[str, int] = {}
        """How far each had come after the last step."""
        self._saved: dict[str, int] = {}
        """When the last checkpoint was made, as far as it was looked up."""

    # -- one batch -----------------------------------------------------------------------------------------------

    def step(self, epoch: int) -> bool:
        """One batch of each projection; whether there is more to do. Raises `Fenced` if this process leads no more."""
        cursors, more = self._store.projections.cursors(), False
        self._seqs = {name: cursor.seq for name, cursor in cursors.items() if name in self.projections}
        self._read, self._far = {}, False
        for name, projection in self.projections.items():
            try:
                more |= self._fill(projection, cursors.get(name), epoch)
                self.errors.pop(name, None)
            except Fenced:
                raise
            except Exception as error:
                self._failed(name, error)
        return more

    def _failed(self, name: str, error: Exception) -> None:
        text = f"{error}" or repr(error)
        if self.errors.get(name) != text:
            _log.error("projection %s was not filled: %s", name, text, exc_info=error)
        self.errors[name] = text
        if self._ahead_for == name:
            # It will ask for the same events again and again.
            self._do_without_ahead()

    def _fill(self, projection: Projection, cursor: Cursor | None, epoch: int) -> bool:
        store, name = self._store, projection.name
        if cursor is None or cursor.version != projection.version:
            store.projections.fill_anew(name, projection.version, self._now_ms())
            return True
        if not cursor.ready:
            return self._begin(projection, cursor, epoch)
        shared = sum([each == cursor.seq for each in self._seqs.values()]) > 1
        try:
            piece = self._piece(name, cursor.seq, self._batch, shared)
        except StoreDamaged:
            if store.first_seq() <= cursor.seq + 1:
                raise
            _log.warning("projection %s lacks events after %d: it is filled again", name, cursor.seq)
            store.projections.fill_anew(name, projection.version, self._now_ms())
            return True
        if not piece:
            self._checkpoint(cursor)
            return False
        at, rows = self._known.pop(name, (None, Rows()))
        if at != cursor[:4] or len(rows.known) >= KNOWN_ROWS:
            rows = Rows(
                lambda key: store.projections.at(name, [key]).get(key),
                look_up_many=lambda keys: store.projections.at(name, keys),
            )
        far = len(piece) == self._piece_events and store.head() - cursor.seq > self._far_from
        self._far |= far
        with pause_collection():
            most = BATCH_FACTS if far else LIVE_FACTS
            seq, closes, more = self._folded(projection, rows, piece, shared, most)
            # What is gone by then the collector need not look at.
            del piece
            projection.flush(rows)
            moved = cursor._replace(seq=seq, moved_ms=self._now_ms())
            written = store.projections.put(epoch, cursor, moved, rows.changed)
        if not written:
            return True
        self._seqs[name] = seq
        rows.changed.clear()
        self._known[name] = (moved[:4], rows)
        if closes and store.projections.save_checkpoint(moved, self._now_ms()):
            self._saved[f"{name} {moved.version}"] = self._now_ms()
        if more:
            return True
        # In a busy yard there are new events by now, and always will be: they wait for their turn.
        self._checkpoint(moved)
        return False

    def _folded(
        self, projection: Projection, rows: Rows, piece: list[Numbered], shared: bool, most: int
    ) -> tuple[int, bool, bool]:
        """Fold a batch of `most` facts or a few more, from its first piece on.

        Its last event, whether that closes it, and whether there may be more.
        """
        fold, special = projection.folding(rows), {TasksSubmitted, projection.closed_by}
        left, folded = self._batch, 0
        while True:
            seq, fact = piece[0]
            try:
                for seq, fact in piece:
                    if type(fact) not in special:
                        fold(fact, seq)
                        continue
                    for task in expand_event(fact):
                        fold(task, seq)
                        folded += 1
                    closes = type(fact) is projection.closed_by
                    if closes or folded >= most:
                        return seq, closes, True
            except Exception as error:
                raise YardError(f"event {seq}, {type(fact).__name__}: {error}") from error
            full = len(piece) == min(left, self._piece_events)
            left -= len(piece)
            folded += len(piece)
            if not left or not full or folded >= most:
                return seq, False, full
            piece = self._piece(projection.name, seq, left, shared)
            if not piece:
                return seq, False, False

    def _piece(self, name: str, seq: int, limit: int, shared: bool) -> list[Numbered]:
        """The next events of the log, at most so many; `shared`: another projection wants the same."""
        limit = min(limit, self._piece_events)
        piece = (
            self._read.get(seq)
            or self._store.recent(seq, limit)
            or self._read_ahead(name, seq, limit)
            or self._store.read(seq, limit)
        )
        if shared:
            self._read[seq] = piece
        return piece

    def _read_ahead(self, name: str, seq: int, limit: int) -> list[Numbered]:
        """What a process has read ahead for this projection; none: the log is to be read here."""
        if not self._ahead_of or seq < self._no_ahead_seq or self._ahead_for not in ("", name):
            return []
        try:
            piece = self._ahead.after(seq, limit) if self._ahead is not None else []
            if not piece:
                self._end_ahead()
                head = self._store.head()
                if head - seq >= self._ahead_from:
                    self._ahead = ReadingAhead(self._ahead_of, seq, head, self._piece_events)
                    self._ahead_for = name
                    piece = self._ahead.after(seq, limit)
        except (YardError, OSError) as error:
            _log.warning("%s: the server itself reads it, from event %d on", error_text(error), seq + 1)
            self._do_without_ahead()
            return []
        return piece

    def _do_without_ahead(self) -> None:
        self._end_ahead()
        self._no_ahead_seq = self._store.head()

    def _end_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
        self._ahead, self._ahead_for = None, ""

    def _begin(self, projection: Projection, cursor: Cursor, epoch: int) -> bool:
        """Remove what is there; then start from the first event, or where the log was cut from a checkpoint."""
        store = self._store
        if store.projections.empty(epoch, cursor, REMOVED_ROWS):
            return True
        start, rows = self._start(projection, cursor)
        items = list(rows.items())
        while len(items) > REMOVED_ROWS:
            # Should this end here, all of it is removed again.
            if not store.projections.put(epoch, cursor, cursor, dict(items[:REMOVED_ROWS])):
                return True
            del items[:REMOVED_ROWS]
        store.projections.put(epoch, cursor, start, dict(items))
        _log.info("projection %s is filled from event %d on", projection.name, start.seq + 1)
        return True

    def _start(self, projection: Projection, cursor: Cursor) -> tuple[Cursor, dict[str, str]]:
        store, name, version = self._store, projection.name, projection.version
        first = store.first_seq()
        begun = Cursor(name, version, 0, 0, self._now_ms())
        if first <= 1:
            return begun, {}
        # The oldest snapshot that the log continues from: so most of the table is made again.
        for at in [at for at in store.projections.checkpoints(name) if at.seq >= first - 1]:
            found = store.projections.checkpoint(at)
            if found is None:
                continue
            rows = found.rows if at.version == version else projection.upgrade(at.version, found.rows)
            if rows is not None:
                return begun._replace(began_seq=at.began_seq, seq=at.seq), dict(rows)
        _log.warning("projection %s tells nothing of before event %d: the log was cut there", name, first)
        return begun._replace(began_seq=first - 1, seq=first - 1), {}

    def _checkpoint(self, cursor: Cursor) -> None:
        """Keep what a projection is now, if that was last done long ago: the log will be cut there some day."""
        store, name, now_ms = self._store, cursor.name, self._now_ms()
        key = f"{name} {cursor.version}"
        if key not in self._saved:
            own = [at for at in store.projections.checkpoints(name) if at.version == cursor.version]
            self._saved[key] = own[-1].moved_ms if own else now_ms - CHECKPOINT_MS
        if now_ms - self._saved[key] >= CHECKPOINT_MS and store.projections.save_checkpoint(cursor, now_ms):
            self._saved[key] = now_ms

    # -- asked from outside --------------------------------------------------------------------------------------

    def status(self) -> list[ProjectionReply]:
        """How every projection stands, by name."""
        cursors, head = self._store.projections.cursors(), self._store.head()
        return [
            {
                "name": name,
                "version": projection.version,
                "began_seq": cursor.began_seq if cursor else 0,
                "seq": max(0, cursor.seq) if cursor else 0,
                "head": head,
                "filled": bool(cursor and cursor.version == projection.version and cursor.seq >= head),
                "error": self.errors.get(name, ""),
            }
            for name, projection in sorted(self.projections.items())
            for cursor in [cursors.get(name)]
        ]

    def rebuild(self, name: str) -> None:
        """Have the leader fill a projection again."""
        projection = self.projections.get(name)
        if projection is None:
            known = ", ".join(sorted(self.projections))
            raise NotFound(
                f"there is no projection {name}",
                f"There is: {known}." if known else "This yard has none that follows the log.",
            )
        self._store.projections.fill_anew(name, projection.version, self._now_ms())

    # -- rounds --------------------------------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """What keeps projections from going on; empty: nothing."""
        return "; ".join([f"{name}: {error}" for name, error in sorted(self.errors.items())])

    def close(self) -> None:
        """End the process that reads ahead."""
        self._end_ahead()

    def round(self, epoch: int) -> float:
        """One batch of each, or a wait for news; the pause until the next round."""
        began_s = time.thread_time()
        if self.step(epoch):
            # Near the head as long as it worked: threads that people wait for want the processor too.
            pause_s = PAUSE_S if self._far else max(PAUSE_S, time.thread_time() - began_s)
        else:
            behind = self._store.wait(min(self._seqs.values(), default=0), IDLE_S)
            pause_s = GATHER_S if behind else 0
        return max(pause_s, IDLE_S) if self.errors else pause_s


def duties(filler: Filler) -> Sequence[Duty]:
    """Of the leader, where there is anything to fill. One projection that stands still keeps no other back."""
    if not filler.projections:
        return ()

    def fill(turn: Turn) -> float:
        return filler.round(turn.epoch)

    duty = Duty(
        "projections",
        fill,
        every_s=IDLE_S,
        first_s=PAUSE_S,
        leader=True,
        follower_s=IDLE_S,
        undone="projections were not filled",
        retry=BackOff(10.0),
        trouble=lambda: filler.trouble,
        close=filler.close,
    )
    return (duty,)
