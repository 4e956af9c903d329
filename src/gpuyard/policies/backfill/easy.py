"""`easy`: the first job that finds no room gets a promise, and others may start only if they do not break it.

A job that ends by the promised time may use anything that is free; a job that runs longer, or has no time limit, may
use only what the promise leaves over, of the nodes and of its tenants' quota. A promise that itself waits for jobs
without a limit is years away, and holds all the same. Only a job within its guarantee is not bound by a promise to one
that borrows (`entitled`): where nothing else is left, it takes promised room, and the promise is put off.
"""

from gpuyard.core.fleet.placing import find_ways
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.entitled import unbound
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.schedule.quota_promise import QuotaPromise
from gpuyard.core.schedule.reserve import Promise, is_end_unknown, promise
from gpuyard.model import Grant, ReasonCode, Reservation
from gpuyard.model.units import ENDLESS_MS

_RESERVATION = ReasonCode.RESERVATION
_WAITS_FOR_QUOTA = frozenset(
    {ReasonCode.LIMIT, ReasonCode.BORROW, ReasonCode.RUNNING_JOBS, ReasonCode.PER_USER}
)
_WAITS_FOR_ROOM = frozenset({ReasonCode.ROOM, ReasonCode.RESERVATION, ReasonCode.HELD_BACK})
"""Free room that other tenants hold back counts as no room."""


class Easy:
    """One promise, for the first job."""

    name = "easy"
    promises_all = False

    def begin(self, current: Pass) -> "EasyPass":
        """Begin a pass."""
        return EasyPass(current)


class EasyPass:
    """Keeps the promised room from all jobs that would not give it back in time."""

    __slots__ = ("_beyond", "_first", "_head", "_pass", "_promise", "_quota", "settled", "window_ms")

    def __init__(self, current: Pass) -> None:
        self._pass = current
        self._head: JobRecord | None = None
        """The first job that waits for room."""
        self._promise: Promise | None = None
        """Its promise, worked out when a job could break it."""
        self._first: JobRecord | None = None
        """The first job that lacks quota, as long as it may turn out to wait even longer for room."""
        self.window_ms = 0
        self.settled = False
        self._beyond: set[int] = set()
        """Ways without room beside the promise."""
        self._quota: QuotaPromise | None = None
        """The quota that goes with the promise, where quotas apply."""

    def place(self, record: JobRecord) -> tuple[Grant, ...] | ReasonCode:
        """Room that breaks no promise."""
        found = self._pass.find(record)
        if type(found) is not tuple or (self._head is None and not self._first_waits_for_room()):
            return found
        promised = self._promise or self._promised()
        if promised is None or record.estimate_ms <= self.window_ms:
            return found
        # The job would outlast the promise: it may only use what the promise leaves.
        where, home, quota = promised.where, self._pass.state.nodes.kind_of, self._quota
        if not where.keys().isdisjoint([grant[0] for grant in found]) or (
            quota is not None and not quota.leaves(record, home[found[0].node].model)
        ):
            beside = self._beside(promised, record)
            if beside is _RESERVATION and self._unbound(promised, record, home[found[0].node].model):
                self._put_off(record, found)
                return found
            return beside
        return found

    def _unbound(self, promised: Promise, record: JobRecord, model: int) -> bool:
        """Whether the promised job borrows against the guarantee that this one stays within."""
        head, home = self._head, self._pass.state.nodes.kind_of
        assert head is not None
        return unbound(
            self._pass, record, model, head, home[next(iter(promised.where))].model, promised.at_ms
        )

    def _put_off(self, record: JobRecord, found: tuple[Grant, ...]) -> None:
        """A job takes promised room by its guarantee: promise the first job its time after that."""
        current, head = self._pass, self._head
        assert head is not None
        with current.as_if_started(record, found):
            later = promise(current, head)
        self._beyond.clear()
        if later is not None:
            at = [reservation.job_id for reservation in current.reservations].index(head.id)
            current.reservations[at] = Reservation(head.id, later.at_ms)
            self._keep(head, later)

    def _beside(self, promised: Promise, record: JobRecord) -> tuple[Grant, ...] | ReasonCode:
        """Room that is not promised: first on other nodes, then what is left over on the nodes of the promise."""
        current, nodes, shape = self._pass, self._pass.state.nodes, record.shape
        place = current.policy.place
        for way in find_ways(nodes, shape, current.policy.rank):
            if way.index in self._beyond or current.refused(record, way):
                continue
            if self._quota is not None and not self._quota.leaves(record, way.model):
                continue
            elsewhere = place(nodes, shape, way, way.pools & ~promised.nodes)
            if elsewhere is not None:
                return elsewhere
            if not shape.gpus or not promised.takes_all(nodes):
                holds = promised.holds(nodes)
                nodes.shift(holds, -1)
                left_over = place(nodes, shape, way, way.pools)
                nodes.shift(holds, 1)
                if left_over is not None:
                    return left_over
            self._beyond.add(way.index)
        return _RESERVATION

    def _first_waits_for_room(self) -> bool:
        """Whether the first job that lacks quota will have it before it has room: then that job gets the promise.

        The quota may be in use only for the moment, by a job that was let past because it ends in time.
        """
        first, self._first = self._first, None
        if first is None or self._pass.refused_for_good(first):
            return False
        quota_ms = self._pass.quota_ms(first)
        found = promise(self._pass, first) if quota_ms is not None else None
        if found is None or quota_ms is None:
            return False
        if found.at_ms < quota_ms:
            # An attempt that outlasts its time is always expected to end next: in the end the room comes later.
            self._pass.retry_ms = min(self._pass.retry_ms, quota_ms - 1)
            return False
        # An overdue attempt is also expected to end right away, and yet the job waits for room.
        if self._pass.any_room(first.shape):
            return False
        self._head = first
        self.settled = self._promised() is not None
        return self.settled

    def holds(self) -> tuple[Grant, ...]:
        """What is free now and belongs to the promise."""
        if self._head is None:
            return ()
        promised = self._promise or self._promised()
        return () if promised is None else promised.holds(self._pass.state.nodes)

    def _promised(self) -> Promise | None:
        assert self._head is not None
        self._promise = found = promise(self._pass, self._head)
        if found is None:
            self._head = None
        else:
            self._pass.reservations.append(Reservation(self._head.id, found.at_ms))
            self._keep(self._head, found)
            self._pass.set_aside(self._head)
        return found

    def _keep(self, head: JobRecord, promised: Promise) -> None:
        """Note the room, and the quota that the promised job will use from then on."""
        state = self._pass.state
        self._promise = promised
        self.window_ms = min(promised.at_ms - self._pass.now_ms, ENDLESS_MS - 1)
        if self._pass.ruled(head):
            model = state.nodes.kind_of[next(iter(promised.where))].model
            self._quota = QuotaPromise(self._pass, head, model, promised.at_ms)

    def blocked(self, record: JobRecord, code: ReasonCode) -> bool:
        """The first job that waits for room will be promised a time."""
        if self._head is None and self._promise is None:
            if code in _WAITS_FOR_QUOTA and self._first is None:
                self._first = record
            elif code in _WAITS_FOR_ROOM and not self._first_waits_for_room():
                self._head = record
        if self._head is record:
            # Only in these cases can a promise fail. Then it is not this job that the others must wait for.
            state, nodes = self._pass.state, self._pass.state.nodes
            unsure = (
                is_end_unknown(nodes, record.shape)
                or nodes.closed_count
                or nodes.pins
                or nodes.slices_used
                or nodes.reserved_grants
                or state.earmarks
                or (self._pass.policy.spec.quotas and (state.tenants.holding or state.tenants.budgeted))
            )
            self.settled = not unsure or self._promised() is not None
        return True
