"""A live job as the scheduler keeps it: the frozen job and what has become of it.

Ended jobs leave the state; the log and its readers keep them.
"""

from typing import Any, Generic, TypeVar

from gpuyard.core.bills import Bill
from gpuyard.core.shapes import Shape
from gpuyard.model import After, AttemptState, Earmark, Grant, Job, JobClass, JobState, StopCause, Verb
from gpuyard.model.units import NO_LIMIT_MS

_PENDING = JobState.PENDING
_NO_BILL = Bill(0, 0, 0, 0)
_NOWHERE = (0, 0, 0)

T = TypeVar("T")


class _Rare(Generic[T]):
    """A field that few jobs ever need: kept apart, so that the others do not carry it."""

    __slots__ = ("_default", "_name")

    def __init__(self, default: T) -> None:
        self._default = default
        self._name = ""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, record: "JobRecord", _owner: type | None = None) -> T:
        rare = record.rare
        return self._default if rare is None else rare.get(self._name, self._default)

    def __set__(self, record: "JobRecord", value: T) -> None:
        if record.rare is not None:
            record.rare[self._name] = value
        elif value != self._default:
            record.rare = {self._name: value}


class JobRecord:
    """One live job."""

    __slots__ = (
        "attempt",
        "begin_ms",
        "bill",
        "checkpoint_ms",
        "earmark",
        "end_ms",
        "entry",
        "estimate_ms",
        "grants",
        "group",
        "id",
        "job",
        "klass",
        "leaf",
        "limit_ms",
        "phase",
        "preemptions",
        "rare",
        "shape",
        "started_ms",
        "state",
        "stream",
    )

    held = _Rare(False)
    suspended_ms = _Rare(0)
    """Since when it is frozen."""
    saved_ms = _Rare(0)
    """Work that need not be done again."""
    cause: _Rare[StopCause | None] = _Rare(None)
    for_job = _Rare(0)
    failures = _Rare(0)
    """How often it failed by itself and was tried again."""
    pending: _Rare[tuple[After, ...]] = _Rare(())
    """Jobs it still waits for."""
    doomed = _Rare("")
    """Why it can never start: one of them ended otherwise than it was to."""
    wanted: _Rare[Verb | None] = _Rare(None)
    """What someone asked for about the current attempt and has not been done yet."""

    def __init__(self, job: Job, shape: Shape, klass: JobClass, leaf: int) -> None:
        self.job = job
        self.id = job[0]
        self.shape = shape
        self.klass = klass
        self.leaf = leaf
        """The tenant's number."""
        limit_ms = job[3]
        most_ms = klass.limit_ms
        self.limit_ms = self.estimate_ms = limit_ms if 0 < limit_ms < most_ms else most_ms
        self.begin_ms = job[5]
        """Not to start before."""
        self.state = _PENDING
        # How many attempts there were, the current one included; its start and promised end; when it last reported
        # a checkpoint (0: never); how often the job was preempted.
        self.attempt = self.started_ms = self.end_ms = self.checkpoint_ms = self.preemptions = 0
        self.phase: AttemptState | None = None
        self.bill = _NO_BILL
        """What the current attempt is charged for."""
        self.earmark: Earmark | None = None
        self.rare: dict[str, Any] | None = None
        self.grants: tuple[Grant, ...] = ()
        # Its place in the queue.
        self.group: tuple[int, ...] = ()
        self.entry: tuple[Any, ...] = ()
        self.stream: tuple[int, int, int] = _NOWHERE

    @property
    def model(self) -> int:
        """Number of the GPU model it runs on."""
        return self.bill.model

    @property
    def rate(self) -> int:
        """Charge per millisecond of the current attempt."""
        return self.bill.rate

    def clear(self) -> None:
        """A job without an attempt carries nothing of the last one."""
        self.grants = ()
        self.started_ms = self.end_ms = 0
        self.bill = _NO_BILL

    def keep(self, saved_ms: int) -> None:
        """So much work need not be done again: the next attempt takes so much less, and its restart."""
        self.saved_ms = saved_ms
        self.estimate_ms = self.limit_ms
        if saved_ms and self.limit_ms < NO_LIMIT_MS:
            self.estimate_ms = max(1, self.limit_ms - saved_ms) + self.job.spec.restart_cost_ms

    def last_saved_ms(self, now_ms: int) -> int:
        """When the running attempt last saved its work: as reported, else by its interval, else its start."""
        if self.checkpoint_ms:
            return self.checkpoint_ms
        interval = self.job.spec.checkpoint_ms
        if not interval:
            return self.started_ms
        worked = now_ms - self.started_ms - (self.job.spec.restart_cost_ms if self.attempt > 1 else 0)
        return now_ms - worked % interval if worked > 0 else self.started_ms

    def destroyed_gpu_ms(self, now_ms: int) -> int:
        """What stopping it now would destroy: milli-GPU x ms since its last checkpoint, and its restart."""
        spec = self.job.spec
        saved_at_ms = self.started_ms
        if self.checkpoint_ms or spec.checkpoint_ms:
            saved_at_ms = self.last_saved_ms(now_ms)
        return (now_ms - saved_at_ms + spec.restart_cost_ms) * (self.shape.gpu_milli or 1)
