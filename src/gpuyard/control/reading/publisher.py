"""Publishing: a read model of the replica as soon as somebody reads, and the next one for what has been touched since.

While nobody reads, nothing is made and next to nothing remembered: the replica keeps the last few thousand events for
the next reader, and drops them when they are too many; then the next reader has a model made anew,
piece by piece, and others have the replica in between.

For a list a reader works only for a moment on what others have touched, such as a large array: then it has what was
published last, as long as that is not older than a second, nor than what the reader's user has written. If it is older
than that, and the list is of one user, it has that user's jobs as they are now amid those of the others as they were
published last. The next reader goes on with the work.

Nodes are published apart: only those that have changed since the last reader are made anew.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock, RLock
from typing import Generic, NamedTuple, TypeVar, cast

from gpuyard.control.reading.changes import ChangeWindow
from gpuyard.control.reading.model import LiveRow, Model, Order, Rows, Said, make_row, no_reason
from gpuyard.control.reading.overview import Fleet, make_fleet
from gpuyard.control.reading.plain_views import closed_text, node_view
from gpuyard.control.replica.replica import Judged, Replica
from gpuyard.core import State
from gpuyard.core.fleet.nodes import DirtyNodes
from gpuyard.core.jobs.queue import list_ids_in_order, list_ids_in_turn
from gpuyard.model import AttemptState, ConfigSet, Event, JobSubmitted, ReasonCode, Settings, TasksSubmitted
from gpuyard.wire.replies.fleet import NodeReply

PIECE = 2500
"""Rows that are made in one hold of the replica's lock."""
REST_S = 0.001
"""Between two moments of work that nobody waits for."""
PATIENCE_S = 0.03
"""The same for a list, if what was published last holds all that the reader's user has written."""
STALE_S = 1.0
"""How old it may be then."""
own_write_s: ContextVar[float] = ContextVar("own_write_s", default=float("inf"))
"""When the user for whom something is read was last told of a write, by the clock of the publisher."""
SHARE = 20
"""The order, and the fleet, are made no sooner again than after so many times as long as it took."""
FEW_IDS = 50_000
"""Jobs whose reasons may change at once, and be told one by one."""

_EDGES = frozenset({AttemptState.STARTING, AttemptState.STOPPING, AttemptState.UNKNOWN})
"""In these states an attempt may be late, in the words of its engine."""
_ROOM = int(ReasonCode.ROOM)

T = TypeVar("T")


class PublishingLimits(NamedTuple):
    """How long readers wait and are waited for."""

    nodes_at_once: int = 500
    """Nodes that are made in one hold of the replica's lock."""
    few: int = 250
    """Rows that are made in one hold of it where a list waits for what was touched, and others for the list."""
    hold_s: float = 0.01
    """After so long others have the replica then."""
    wait_s: float = 1.0
    """How long a reader waits for the newest; then it has what was published last."""
    unread_s: float = 600.0
    """After so long without a reader the model is dropped: nobody keeps a second copy of all jobs for nobody."""


LIMITS = PublishingLimits()


def touched(event: Event) -> Iterable[int] | None:
    """The jobs that an event is about; None: all of them. What else it changes, the fold tells (`State.touched`)."""
    if isinstance(event, JobSubmitted):
        return (event.job.id,)
    if isinstance(event, TasksSubmitted):
        return range(event.job.id, event.job.id + len(event.indices))
    if isinstance(event, ConfigSet):
        return None
    job_id = getattr(event, "job_id", 0)
    return (job_id,) if job_id else ()


class _Seldom(Generic[T]):
    """Something that takes long to make, made anew only where it has not just been made."""

    def __init__(self, first: T, now_s: Callable[[], float]) -> None:
        self.value = first
        self._now_s = now_s
        self._next_s = float("-inf")

    def due(self) -> bool:
        """Whether it may be made anew."""
        return self._now_s() >= self._next_s

    def renew(self, make: Callable[[], T], must: bool = False) -> bool:
        """Whether it was made anew."""
        began_s = self._now_s()
        if began_s < self._next_s and not must:
            return False
        self.value = make()
        ended_s = self._now_s()
        self._next_s = ended_s + SHARE * (ended_s - began_s)
        return True


class _Index:
    """The jobs of a model by what is asked of them."""

    def __init__(self) -> None:
        self.owned: dict[str, dict[int, None]] = {}
        """The live jobs of each user."""
        self.edge: dict[int, str] = {}
        """Jobs that may be late, and what was said of them."""
        self.early: dict[int, str] = {}
        """The user of each job that a list has shown and no model yet."""

    def update(self, changed: Mapping[int, LiveRow | None], before: Rows) -> None:
        owned, edge = self.owned, self.edge
        for job_id, row in changed.items():
            old = before.get(job_id)
            if row is not None:
                if old is None:
                    own = owned.get(row.job.spec.user)
                    if own is None:
                        own = owned[row.job.spec.user] = {}
                    own[job_id] = None
                if row.phase in _EDGES:
                    edge.setdefault(job_id, "")
                elif edge:
                    edge.pop(job_id, None)
                continue
            edge.pop(job_id, None)
            user = self.early.get(job_id) if old is None else old.job.spec.user
            if user is not None:
                own = owned.get(user, {})
                own.pop(job_id, None)
                if not own:
                    owned.pop(user, None)


class Publisher:
    """The models of one process. Any thread may ask, as long as it does not hold the replica's lock."""

    def __init__(
        self,
        replica: Replica,
        late: Said = no_reason,
        said: Said = no_reason,
        now_s: Callable[[], float] = time.monotonic,
        limits: PublishingLimits = LIMITS,
    ) -> None:
        self._replica = replica
        self._late, self._said = late, said
        self.limits = limits
        self._lock = RLock()
        """Taken before the replica's lock, by the reader that makes the next model."""
        self._model: Model | None = None
        self._version = 0
        """Of the model that was dropped last: versions only ever grow."""
        self._now_s = now_s
        self._read_s = now_s()
        self._state: State | None = None
        self._judged = Judged()
        self._as_of_s = float("-inf")
        """Nothing that was written before this is missing in the last model."""
        self._due: set[int] = set()
        self._made: dict[int, LiveRow | None] = {}
        """Of the next model: the jobs whose rows are not made yet, and the rows that are."""
        self._moved: set[int] = set()
        self._order = _Seldom(Order(), now_s)
        self._fleet = _Seldom(Fleet(), now_s)
        self._index = _Index()
        self.window = ChangeWindow()
        """What has changed of late, for followers."""

    # -- reading -------------------------------------------------------------------------------------------------

    def latest(self, *, spoken: bool = False, listing: bool = False, user: str = "") -> Model:
        """The yard as it is now; where the replica is busy for long, as it was published last.

        `spoken`: followers are told as well what engines say by now. `listing`: for a list, which may lack what other
        users have done within the last second; with `user` it has jobs of that user alone.
        """
        self._read_s = asked_s = self._now_s()
        replica, model = self._replica, self._model
        if not spoken and model is not None and self._stands(model) and replica.store.head() == model.seq:
            self._as_of_s = asked_s
            return model
        behind = self._as_of_s < own_write_s.get() or self._as_of_s < asked_s - STALE_S
        patient = not listing or (behind and not user)
        wait_s = -1 if model is None else self.limits.wait_s if patient or behind else PATIENCE_S
        if not self._lock.acquire(timeout=wait_s):
            return self._model or self.latest()
        try:
            if not replica.lock.acquire(timeout=wait_s):
                assert model is not None
                return self._model or model

            def enough() -> bool:
                return not patient and self._now_s() - asked_s > PATIENCE_S

            try:
                # Whatever is written after this moment is not waited for.
                found = self._publish_to(replica.store.head(), enough, must=behind)
                if found is None and behind:
                    return self._amid(user)
            finally:
                replica.lock.release()
            if found is not None:
                self._as_of_s = asked_s
                return found
            assert self._model is not None
            return self._model
        finally:
            self._lock.release()

    def keep_up(self) -> None:
        """Publish what is written by now, if anybody reads at all: a moment at a time, so that others read in between.

        Readers that come have little left to do then, however much was written before.
        """
        replica, began_s = self._replica, self._now_s()
        head = replica.store.head()
        while (model := self._model) is not None and model.seq < head:
            since_s = self._now_s()
            with self._lock, replica.lock:
                found = self._publish_to(head, partial(self._held_long, since_s))
            if found is not None:
                self._as_of_s = max(self._as_of_s, began_s)
            # As long again for readers: a lock that is taken again at once is seldom had by another that waits for it.
            time.sleep(max(REST_S, min(self.limits.hold_s, self._now_s() - since_s)))

    def _held_long(self, since_s: float) -> bool:
        return self._now_s() - since_s > self.limits.hold_s

    def _publish_to(self, head: int, enough: Callable[[], bool], must: bool = False) -> Model | None:
        """Fold up to there, with `must` in any case, and publish; None: the caller has had enough. With both locks."""
        replica = self._replica
        try:
            replica.catch_up(lambda: replica.seq >= head or (enough() and not must))
            return self._publish(enough) if replica.seq >= head else None
        except BaseException:
            # What was touched may be half published: the next model is made anew.
            self._state = None
            raise

    def _stands(self, model: Model) -> bool:
        replica = self._replica
        return (
            replica.seq == model.seq
            and replica.state is self._state
            and replica.judged is self._judged
            and model.order.seq == model.seq
        )

    def fleet(self) -> Fleet:
        """Nodes, what is on them, and tenants."""
        self._read_s = self._now_s()
        replica, made = self._replica, self._fleet
        if not made.due():
            return made.value
        with self._lock:
            known = self._fleet.value.seq
            if known != replica.store.head() and replica.lock.acquire(
                timeout=-1 if known < 0 else self.limits.wait_s
            ):
                try:
                    replica.catch_up()
                    self._fleet.renew(lambda: make_fleet(replica.state, replica.seq))
                finally:
                    replica.lock.release()
            return self._fleet.value

    def own(self, user: str, most: int) -> list[int] | None:
        """The live jobs of a user, as of the last model; None: more than so many."""
        # Without a lock: a thread that publishes may hold it for long, and a list of a dict is made at one go.
        found = list(self._index.owned.get(user, ()))
        return found if len(found) <= most else None

    def drop_unread(self) -> None:
        """Forget what was published if nobody has read it for long: it is made anew for the next reader.

        Called by the replica's own thread, without their lock, again and again.
        """
        if self._now_s() - self._read_s < self.limits.unread_s or not self._lock.acquire(blocking=False):
            return
        try:
            model = self._model
            if model is not None:
                with self._replica.lock:
                    self._replica.fresh = self._replica.state.touched = None
                self._version, self._model, self._state = model.version, None, None
                self._judged, self._moved, self._index = Judged(), set(), _Index()
                self._due, self._made, self._as_of_s = set(), {}, float("-inf")
                self._order = _Seldom(Order(), self._now_s)
                self.window.drop()
            if self._fleet.value.seq >= 0:
                self._fleet = _Seldom(Fleet(), self._now_s)
        finally:
            self._lock.release()

    # -- publishing ----------------------------------------------------------------------------------------------

    def _publish(self, enough: Callable[[], bool]) -> Model | None:
        """Called with both locks. None: the caller has had enough, and the next one goes on."""
        if self._take_in() is None:
            return self._put(self._anew(), None)
        made = self._made
        rest = sorted(self._due)
        since_s, few = self._now_s(), self.limits.few
        while rest:
            made |= self._rows(rest[:few])
            self._due.difference_update(rest[:few])
            del rest[:few]
            if rest and enough():
                return None
            if rest and self._now_s() - since_s > self.limits.hold_s:
                # Amid a very large array others have the replica; what they touch is made once more.
                self._replica.pause()
                since_s = self._now_s()
                more = self._take_in()
                if more is None:
                    return self._put(self._anew(), None)
                if more:
                    rest = sorted(self._due)
        assert self._model is not None
        self._made = {}
        self._index.update(made, self._model.jobs)
        self._index.early.clear()
        return self._put(self._model.jobs.with_changes(made.items()) if made else self._model.jobs, set(made))

    def _amid(self, user: str) -> Model:
        """For one reader that has had enough: the jobs of a user as they are now, and all others as published last."""
        model, jobs, made, index = self._model, self._replica.state.jobs, self._made, self._index
        assert model is not None

        def mine(job_id: int) -> bool:
            known = jobs.get(job_id) or model.jobs.get(job_id)
            return user == (index.early.get(job_id) if known is None else known.job.spec.user)

        now = {job_id: made[job_id] for job_id in filter(mine, made)} | self._rows(filter(mine, self._due))
        index.early |= dict.fromkeys(now, user)
        index.update(now, model.jobs)
        return replace(model, jobs=model.jobs.with_changes(now.items()), moved=model.moved.union(now))

    def _take_in(self) -> set[int] | None:
        """Note what was touched of late, and return it; None: nobody knows."""
        found = self._touched()
        if found is not None:
            self._due |= found
        return found

    def _rows(self, ids: Iterable[int]) -> dict[int, LiveRow | None]:
        state = self._replica.state
        return {i: make_row(state, state.jobs[i]) if i in state.jobs else None for i in ids}

    def _touched(self) -> set[int] | None:
        """What was touched since the last model; None: nobody knows."""
        replica, state = self._replica, self._replica.state
        events = replica.fresh
        if self._model is None or state is not self._state or events is None or state.touched is None:
            return None
        ids, state.touched, replica.fresh = state.touched, set(), []
        for event in events:
            found = touched(event)
            if found is None:
                return None
            ids.update(found)
        return ids

    def _anew(self) -> Rows:
        """All rows. The replica is free between two pieces; what is touched meanwhile is made once more."""
        replica = self._replica
        while True:
            state = replica.state
            state.touched, replica.fresh = set(), []
            index, rows = _Index(), Rows()
            self._due, self._made = set(), {}
            ids = list(state.jobs)
            for first in range(0, len(ids), PIECE):
                if first:
                    replica.pause()
                if replica.state is not state or replica.fresh is None:
                    break
                jobs = state.jobs
                some = {i: make_row(state, jobs[i]) for i in ids[first : first + PIECE] if i in jobs}
                index.update(some, rows)
                rows = rows.with_changes(some.items())
            else:
                self._state, self._model = state, self._model or _nothing(replica, self._version)
                more = self._touched()
                if more is None:
                    continue
                now = self._rows(more)
                index.update(now, rows)
                self._index = index
                return rows.with_changes(now.items())

    def _put(self, rows: Rows, changed: set[int] | None) -> Model:
        replica, before = self._replica, self._model
        state, judged = replica.state, replica.judged
        assert before is not None
        room = closed_text(state)
        codes = before.codes if judged is self._judged else judged.by_id()
        told = None if changed is None else self._spoken(changed, before, rows, judged, codes, room)
        ordered = before.order
        if ordered.seq != replica.seq or changed is None:
            if self._order.renew(lambda: _order(state, replica), changed is None):
                self._moved = set()
                ordered.forget_places()
            elif changed:
                self._moved |= changed
        self._judged = judged
        same = told is not None and not told and before.seq == replica.seq and self._order.value is ordered
        if same and before.codes is codes:
            return before
        model = self._model = Model(
            seq=replica.seq,
            version=before.version + 1,
            now_ms=state.now_ms,
            jobs=rows,
            last_job_id=state.last_job_id,
            last_external_id=state.last_external_id,
            running=len(state.running),
            waiting=state.queue.count,
            set_aside=len(state.deferred),
            nodes=state.nodes.node,
            codes=codes,
            judged_id=judged.last_job_id,
            room=room,
            order=self._order.value,
            moved=frozenset(self._moved),
            late=self._late,
            said=self._said,
            alike=before.alike,
        )
        self.window.put(model, told)
        return model

    def _spoken(
        self,
        changed: set[int],
        before: Model,
        rows: Rows,
        judged: Judged,
        codes: Mapping[int, int],
        room: str,
    ) -> set[int]:
        """The jobs that have changed, and those of which other words are said though nothing has happened to them."""
        found: set[int] = set()
        old = before.codes
        if codes is not old:
            found.update([i for i, code in codes.items() if old.get(i) != code])
            found.update([i for i in old if i not in codes])
            since = range(before.judged_id + 1, judged.last_job_id + 1)
            found.update(since if len(since) <= FEW_IDS else [row.id for row in rows.values()])
        if room != before.room:
            found.update([i for i, code in codes.items() if code == _ROOM])
        for job_id, words in self._index.edge.items():
            row = rows.get(job_id)
            if row is not None and (now := self._late(row.record)) != words:
                self._index.edge[job_id] = now
                found.add(job_id)
        found -= changed
        return changed.union([job_id for job_id in found if rows.get(job_id) is not None])


def _nothing(replica: Replica, version: int) -> Model:
    """Before the first model, and after one that was dropped."""
    return Model(
        replica.seq,
        version,
        0,
        Rows(),
        0,
        0,
        0,
        0,
        0,
        replica.state.nodes.node,
        {},
        0,
        "",
        Order(-1),
        frozenset(),
    )


def _order(state: State, replica: Replica) -> Order:
    if state.queue.order is not replica.policy.order:
        # This process has decided nothing yet: the replica is sorted as the leader sorts its own.
        state.reindex(replica.policy.order)
    running = sorted(state.running.values(), key=lambda record: (record.started_ms, record.id))
    waiting = (list_ids_in_turn if replica.policy.spec.quotas else list_ids_in_order)(state.queue)
    return Order(
        replica.seq,
        tuple([record.id for record in running]),
        tuple(waiting),
        tuple(sorted(state.deferred)),
    )


# -- nodes -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Nodes:
    """All nodes, and the settings that name them, at one event."""

    seq: int
    views: tuple[NodeReply, ...]
    settings: Settings


class NodesReading:
    """The published nodes of one process. Any thread may ask, as long as it does not hold the replica's lock."""

    def __init__(
        self,
        replica: Replica,
        now_s: Callable[[], float] = time.monotonic,
        limits: PublishingLimits = LIMITS,
    ) -> None:
        self._replica = replica
        self._limits = limits
        self._now_s = now_s
        self._read_s = now_s()
        self._lock = Lock()
        """Taken before the replica's lock, by the reader that makes what is new."""
        self._state: State | None = None
        self._dirty = DirtyNodes()
        self._views: list[NodeReply] = []
        self._nodes: Nodes | None = None

    def latest(self) -> Nodes:
        """The nodes as they are now; where the replica is busy for long, as they were published last."""
        self._read_s = self._now_s()
        replica, known = self._replica, self._nodes
        if known is not None and known.seq == replica.store.head() and replica.state is self._state:
            return known
        wait_s = -1 if known is None else self._limits.wait_s
        if not self._lock.acquire(timeout=wait_s):
            return self._nodes or self.latest()
        try:
            if not replica.lock.acquire(timeout=wait_s):
                assert known is not None
                return self._nodes or known
            try:
                replica.catch_up()
                return self._publish()
            except BaseException:
                # What has changed may be half made: all of it is made anew.
                self._state = None
                raise
            finally:
                replica.lock.release()
        finally:
            self._lock.release()

    def drop_unread(self) -> None:
        """Forget what was published if nobody has read it for long: it is made anew for the next reader."""
        if self._now_s() - self._read_s >= self._limits.unread_s and self._lock.acquire(blocking=False):
            self._state, self._nodes, self._views = None, None, []
            self._lock.release()

    def _publish(self) -> Nodes:
        """Called with both locks. Others have the replica between pieces; what changes meanwhile is made once more."""
        replica = self._replica
        while True:
            state = replica.state
            if state is not self._state:
                self._state, self._dirty, self._views = state, DirtyNodes(), []
            changed, at_once = self._changed(), self._limits.nodes_at_once
            for first in range(at_once, len(changed), at_once):
                self._make(changed[first - at_once : first])
                replica.pause()
                if replica.state is not state:
                    break
            else:
                self._make(changed[-(len(changed) % at_once or at_once) :])
                self._make(self._changed())
                self._nodes = Nodes(replica.seq, tuple(self._views), state.settings)
                return self._nodes

    def _changed(self) -> list[int]:
        assert self._state is not None
        return sorted(self._dirty.changed(self._state.nodes))

    def _make(self, numbers: list[int]) -> None:
        state, views = self._state, self._views
        assert state is not None
        # A node that has come is among the numbers, of this piece or of a later one.
        views += [cast("NodeReply", {})] * (len(state.nodes.node) - len(views))
        for number in numbers:
            views[number] = node_view(state, number)
