"""`conservative`: every job that cannot start is promised a time, and no job may start that breaks any promise.

Promises are worked out again in each pass, in order, so the first job never loses. As long as jobs end when expected,
the others do not lose either: a place depends only on the jobs ahead (see `Profile`), and jobs that start past it stay
out of its way. An early end lets jobs move up, and a job that moved up may then be in the way of one behind it.

A job goes where it was promised to go. The policy's `placement` chooses only for the last job in the queue, as most
jobs that start past others are: there are no promises behind it.
"""

from gpuyard.core.fleet.placing import find_ways
from gpuyard.core.fleet.shapes import Way
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.schedule.profile import FleetProfile, Slot, lasts_ms
from gpuyard.model import Grant, ReasonCode, Reservation
from gpuyard.model.units import NO_LIMIT_MS

_RESERVATION = ReasonCode.RESERVATION
_WAITS_FOR_AN_END = frozenset(
    {
        ReasonCode.ROOM,
        ReasonCode.RESERVATION,
        ReasonCode.LIMIT,
        ReasonCode.BORROW,
        ReasonCode.RUNNING_JOBS,
        ReasonCode.PER_USER,
        ReasonCode.HELD_BACK,
    }
)
"""Refusals that end when running jobs end: their time can be predicted."""


class Conservative:
    """A promise for every job."""

    name = "conservative"
    promises_all = True

    def begin(self, current: Pass) -> "ConservativePass":
        """Begin a pass."""
        return ConservativePass(current)


class ConservativePass:
    """Books a slot for each job that cannot start."""

    window_ms = NO_LIMIT_MS
    """A refusal because of a promise says nothing about the next job, however long it runs."""
    settled = False
    """Every job counts."""

    def __init__(self, current: Pass) -> None:
        self._pass = current
        self._profile = FleetProfile(current.state, current.policy, current.now_ms)
        self._turns = 0
        """How many jobs were examined."""
        self._slot: Slot | None = None
        """The slot of the job that was just refused."""
        self._starting: tuple[JobRecord, int] | None = None
        """The job that just found room, and its GPU model."""

    def place(self, record: JobRecord) -> tuple[Grant, ...] | ReasonCode:
        """Room that breaks no promise."""
        current = self._pass
        self._turns += 1
        self._slot = None
        self._note_start()
        found = self._find(record)
        if type(found) is not tuple:
            return found
        now_ms, shape = current.now_ms, record.shape
        if self._turns == current.state.queue.count or shape.profile:
            # Slices are cut where geometry allows; the bookings for them are whole GPUs.
            last = self._last_in_line(record, found)
            return last or _RESERVATION
        ways = tuple([way for way in shape.in_order if not self._refused(record, way)])
        slot = self._profile.earliest(record, now_ms, None if len(ways) == len(shape.in_order) else ways)
        if slot is not None and slot.at_ms == now_ms:
            self._starting = (record, slot.way.model)
            return slot.grants
        if len(ways) == len(shape.in_order):
            self._slot = slot
        return _RESERVATION

    def _note_start(self) -> None:
        """Note the quota of the job that was placed last, if it was really drafted to start."""
        if self._starting is not None and self._starting[0].grants:
            self._profile.started(*self._starting)
        self._starting = None

    def _find(self, record: JobRecord) -> tuple[Grant, ...] | ReasonCode:
        # Quota reservations are for waiting jobs. Here quota is booked, exactly, like room.
        self._pass.kept_quota.clear()
        found = self._pass.find(record)
        self._pass.kept_quota.clear()
        return found

    def _refused(self, record: JobRecord, way: Way) -> bool:
        """Whether a quota forbids a start now on this GPU model."""
        state = self._pass.state
        if not self._pass.policy.spec.quotas:
            return False
        tenants, shape = state.tenants, record.shape
        milli, limit_ms = shape.gpu_milli, record.limit_ms
        micro = state.micro_by(shape, way, self._pass.now_ms)
        return tenants.refusal(
            record.party, way.model, milli, limit_ms, shape.measure, micro
        ) is not None or (tenants.held_back_refusal(record.party, way.model, milli, state.nodes.up_milli))

    def _last_in_line(self, record: JobRecord, found: tuple[Grant, ...]) -> tuple[Grant, ...] | None:
        """Room where the placement prefers it, out of the way of all promises."""
        current, profile, nodes, shape = self._pass, self._profile, self._pass.state.nodes, record.shape
        if not profile.booked_on(found) and profile.has_quota(record, nodes.kind_of[found[0].node].model):
            return found
        place = current.policy.place
        holds = profile.holds(lasts_ms(record))
        nodes.shift(holds, -1)
        try:
            for way in find_ways(nodes, shape, current.policy.rank):
                if self._refused(record, way) or not profile.has_quota(record, way.model):
                    continue
                beside = place(nodes, shape, way, way.pools)
                if beside is not None:
                    return beside
        finally:
            nodes.shift(holds, 1)
        return None

    def holds(self) -> tuple[Grant, ...]:
        """What is free now and booked at any time."""
        return self._profile.holds(NO_LIMIT_MS)

    def blocked(self, record: JobRecord, code: ReasonCode) -> bool:
        """Book a slot for the job, if it waits for something with an expected end."""
        if code in _WAITS_FOR_AN_END and not self._pass.refused_for_good(record):
            slot = self._slot or self._profile.earliest(record, self._pass.now_ms + 1)
            if slot is not None:
                self._profile.book(record, slot)
                self._pass.reservations.append(Reservation(record.id, slot.at_ms))
                self._pass.set_aside(record)
        return True
