"""A process's own replica: the log folded into a state, and the one way to add to both.

Every process that answers questions keeps a replica; the leader decides on its own. Whatever is written is judged under
the log's lock, on a replica that has caught up with everything written before, so nothing is committed that no longer
holds. What the replica says and the log does not (a write that failed) is thrown away with it: it is read again.

A large write is folded piece by piece: in between, other threads get the lock. Nothing long is folded inside a
transaction, because every writer would wait for it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Condition, RLock, get_ident
from typing import Any, NamedTuple

from gpuyard.control.projections.bound import BY_KIND
from gpuyard.control.replica.forked_work import ForkedWork
from gpuyard.control.replica.tally import Tally
from gpuyard.core import InvalidEvent, Policy, State, apply
from gpuyard.core.state.dump import dump, load
from gpuyard.garbage import give_back_free, pause_collection
from gpuyard.model import Event, PolicySpec, TasksSubmitted
from gpuyard.policies.registry import build
from gpuyard.store import HISTORY_ROWS, BoundTable, Commit, Store, TokenRow, pack_state


class Judged(NamedTuple):
    """What one pass of the leader said of the jobs that it looked at: readers take these codes and never decide again.

    The leader's process has them in its replica; the others get them through the store, a second or two later.
    """

    seq: int = 0
    """The last event that the pass knew of."""
    last_job_id: int = 0
    """Jobs with higher ids have come since: no pass has looked at them yet."""
    examined: tuple[int, ...] = ()
    codes: bytes = b""
    """A `ReasonCode` for each of them."""

    def by_id(self) -> Mapping[int, int]:
        """The code of each job."""
        return dict(zip(self.examined, self.codes, strict=True))

    def same(self, other: "Judged") -> bool:
        """Whether both say the same of every job."""
        return (
            self.codes == other.codes
            and self.examined == other.examined
            and self.last_job_id == other.last_job_id
        )

    def text(self) -> str:
        """As it stands in the store."""
        return json.dumps(
            [self.seq, self.last_job_id, self.examined, self.codes.hex()], separators=(",", ":")
        )


def read_judged(text: str) -> Judged:
    """What stands in the store; nothing where nobody has led yet."""
    if not text:
        return Judged()
    seq, last_job_id, examined, codes = json.loads(text)
    return Judged(seq, last_job_id, tuple(examined), bytes.fromhex(codes))


class ReplicaLimits(NamedTuple):
    """How much is done at one go, and from where on something is done beside the process."""

    snapshot_every: int = 20_000
    """Events after which the leader saves the state, so that a start reads no more than these."""
    beside_from: int = 2_000
    """From this many jobs on, a copy of the process saves the state: the replica would be locked for too long."""
    piece: int = 1_000
    """Jobs that are folded in one hold of the lock, about: then others have their turn."""
    pause_s: float = 0.0005
    """How long others have the lock then."""


LIMITS = ReplicaLimits()
UNCOLLECTED_FROM = 100
"""Jobs of one event from which on the garbage collector rests while it is folded."""
READ_ROWS = 100
"""Events that are read at one go, with the lock held."""
WAIT_S = 0.01
"""How soon a thread that waits for another to fold asks whether it has waited enough."""
FRESH_MAX = 20_000
"""Events that are remembered until the replica is published."""
TRIED_MAX = 5
"""How often a write stands back for what has to be folded first; then it is folded as a part of the write."""


@contextmanager
def _reading_much() -> Iterator[None]:
    """What is read makes hundreds of thousands of objects; what it was read from is as large again."""
    try:
        with pause_collection():
            yield
    finally:
        give_back_free()


class Draft:
    """Events that are about to be written: each is folded as it is added, so that the next one sees it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.events: list[Event] = []
        self.rows: dict[BoundTable[Any], list[Any]] = {}
        """What the events leave in tables that are bound to the log."""
        self.tokens: list[TokenRow] = []

    def add(self, event: Event) -> None:
        """Fold an event; raises, and adds nothing, where it may not follow what is there."""
        bound = BY_KIND.get(type(event))
        if bound is None:
            apply(self.state, event)
            self.events.append(event)
            return
        state = self.state
        seen = [each.before(state, event) for each in bound]
        apply(state, event)
        self.events.append(event)
        for each, found in zip(bound, seen, strict=True):
            row = None if found is None else each.after(state, event, found)
            if row is not None:
                self.keep(each.table, row)

    def keep(self, table: BoundTable[Any], row: Any) -> None:
        """A row that goes with the event that was added just now."""
        self.rows.setdefault(table, []).append(row)

    def offer(self, event: Event) -> bool:
        """Add an event if it still holds: what was decided a moment ago may have been overtaken."""
        try:
            self.add(event)
        except InvalidEvent:
            return False
        return True


class Replica:
    """The state, how far it has read the log, and the lock that every reader of it takes."""

    def __init__(self, store: Store, limits: ReplicaLimits = LIMITS) -> None:
        self.store = store
        self.limits = limits
        self.lock = RLock()
        self.state = State()
        self.seq = 0
        """The last event that is folded in."""
        self.judged = Judged()
        """What the last pass said of those that wait: of this process while it leads, else of the leader's."""
        self.tally = Tally()
        """What this process has written, counted."""
        self.fresh: list[Event] | None = None
        """Events that were folded since the replica was last published; None: it never was, or it was too much."""
        self._saved_seq = 0
        self._policy: tuple[PolicySpec, Policy] | None = None
        self._saving: tuple[int, ForkedWork] | None = None
        """The copy that is being saved, and up to which event."""
        self._turn = Condition(self.lock)
        """Never notified: to wait for it is to let others have the lock."""
        self._folded = Condition(self.lock)
        self._folder = 0
        """The thread that folds what others have written, if one does."""
        self._wrong = False
        """Whether they hold what a failed write left: then they are read again before they are used."""
        self.reload()

    @property
    def policy(self) -> Policy:
        """The policy that the settings name."""
        spec = self.state.settings.policy
        if self._policy is None or self._policy[0] is not spec:
            self._policy = (spec, build(spec))
        return self._policy[1]

    def reload(self) -> None:
        """Read everything again, from the last snapshot on."""
        with self.lock, _reading_much():
            self._wrong, self.fresh = True, None
            found = self.store.snapshots.latest()
            self.state, self.seq = (load(found.plain), found.seq) if found is not None else (State(), 0)
            del found
            self._saved_seq = self.seq
            while new := self.store.read(self.seq):
                self._fold(new)
            self._wrong = False

    def settle(self) -> None:
        """Throw away what a failed write left, so that what is there now is what the log says. Called with the lock."""
        if self._wrong:
            self.reload()

    def catch_up(self, enough: Callable[[], bool] | None = None) -> int:
        """Fold what others have written; how many events that was; -1: the caller has had enough, and there is more.

        Where that is much, other threads get the lock in between, even if the caller had it before.
        """
        with self.lock:
            while self._folder not in (0, get_ident()):
                # Two threads that fold the same by turns take longer than one.
                if enough is not None and enough():
                    return -1
                self._folded.wait(WAIT_S)
            outer, self._folder = self._folder, get_ident()
            try:
                return self._read_on(enough)
            finally:
                self._folder = outer
                self._folded.notify_all()

    def _read_on(self, enough: Callable[[], bool] | None) -> int:
        if self._wrong:
            self.reload()
        count = 0
        while True:
            new = self.store.read(self.seq, READ_ROWS)
            if not self._fold_by_turns(new, enough):
                return -1
            count += len(new)
            if len(new) < READ_ROWS or (count and enough is not None and enough()):
                return count

    def catch_up_to(self, seq: int) -> None:
        """Fold what others have written up to there, and nothing after it."""
        with self.lock:
            while self.seq < seq:
                self._fold(self.store.read(self.seq, until_seq=seq))

    def _fold_by_turns(self, new: Iterable[tuple[int, Event]], enough: Callable[[], bool] | None) -> bool:
        folded, piece = 0, self.limits.piece
        for seq, event in new:
            if folded >= piece:
                if enough is not None and enough():
                    return False
                self.pause()
                folded = 0
            if seq > self.seq:
                # Not folded by another thread in a pause.
                jobs = _jobs(event)
                if jobs < UNCOLLECTED_FROM:
                    apply(self.state, event)
                else:
                    with pause_collection():
                        apply(self.state, event)
                self.seq = seq
                folded += jobs
                self._remember((event,))
        return True

    def _fold(self, new: Iterable[tuple[int, Event]]) -> None:
        for seq, event in new:
            apply(self.state, event)
            self.seq = seq
            self._remember((event,))

    def _remember(self, events: Sequence[Event]) -> None:
        fresh = self.fresh
        if fresh is not None:
            fresh += events
            if len(fresh) > FRESH_MAX:
                self.fresh = self.state.touched = None

    def pause(self) -> None:
        """Let others have the lock for a moment. Called with it; what was looked at before may have changed."""
        self._turn.wait(self.limits.pause_s)
        if self._wrong:
            self.reload()

    def commit(self, epoch: int | None, make: Callable[[Draft], None]) -> list[Event]:
        """Write what `make` adds to the draft, durably, with the rows that its events make.

        With an epoch only the leader of that epoch may; None is for what any process may write.
        """
        draft: Draft | None = None
        stands_back = 0

        def judged(new: list[tuple[int, Event]]) -> Commit | None:
            nonlocal draft, stands_back
            if stands_back < TRIED_MAX and sum([_jobs(event) for _seq, event in new]) > self.limits.piece:
                stands_back += 1
                return None
            self._fold(new)
            draft = Draft(self.state)
            make(draft)
            return Commit(draft.events, draft.rows, draft.tokens)

        with self.lock:
            if self._wrong:
                self.reload()
            try:
                seqs = self.store.commit(epoch, self.seq, judged)
                while stands_back and draft is None:
                    self.catch_up()
                    seqs = self.store.commit(epoch, self.seq, judged)
            except BaseException:
                if draft is not None and draft.events:
                    # Read again when next needed: the store that failed may not be able to answer now.
                    self._wrong = True
                raise
            if seqs:
                self.seq = seqs[-1]
            if draft is None:
                return []
            self._remember(draft.events)
            self.tally.note(self.state, draft.events, draft.rows.get(HISTORY_ROWS, ()))
            return draft.events

    def save(self, now_ms: int, every: int = 0) -> bool:
        """Save the state if enough events have come since the last time, and wait for it. `every`: how many; 0: as
        many as the limits say.
        """
        with self.lock:
            if self._wrong:
                self.reload()
            if self.seq - self._saved_seq < (every or self.limits.snapshot_every):
                return False
            seq, plain = self.seq, dump(self.state)
        self.store.snapshots.save(seq, plain, now_ms)
        self._saved_seq = seq
        return True

    def save_beside(self, now_ms: int) -> bool:
        """The same as a part of every step; with many jobs in a copy of the process, to be put down in a later step.

        Where there are more jobs than events since the last time, it can wait: writing all of them would cost more than
        reading those events again at a start.
        """
        if self._saving is not None:
            return self._put_down(now_ms)
        jobs = len(self.state.jobs)
        if self.seq - self._saved_seq < max(self.limits.snapshot_every, jobs):
            return False
        if jobs < self.limits.beside_from:
            return self.save(now_ms)
        with self.lock:
            if not self._wrong:
                self._saving = (self.seq, ForkedWork(self._packed))
        return False

    def _packed(self) -> bytes:
        """The state as it is saved; in a copy of the process."""
        return pack_state(dump(self.state))

    def _put_down(self, now_ms: int) -> bool:
        assert self._saving is not None
        seq, aside = self._saving
        if not aside.done():
            return False
        self._saving, body = None, aside.result()
        # One that came to nothing is tried again when as many events have come once more.
        self._saved_seq = seq
        if body is not None:
            self.store.snapshots.put(seq, body, now_ms)
        return body is not None

    def stop_saving(self) -> None:
        """Give up the save that is under way."""
        if self._saving is not None:
            self._saving[1].end()
            self._saving = None


def _jobs(event: Event) -> int:
    """How many jobs an event is about, where that makes it long."""
    return len(event.indices) if type(event) is TasksSubmitted else 1
