"""A live job as the scheduler keeps it: the frozen job and what has become of it.

Ended jobs leave the state; the log and its readers keep them.
"""

from typing import Any

from gpuyard.core.shapes import Shape
from gpuyard.model import After, AttemptState, Earmark, Grant, Job, JobClass, JobState, StopCause, Verb
from gpuyard.model.units import NO_LIMIT_MS

_PENDING = JobState.PENDING
_NOWHERE = (0, 0, 0)


class JobRecord:
    """One live job."""

    __slots__ = (
        "attempt",
        "begin_ms",
        "cause",
        "checkpoint_ms",
        "doomed",
        "earmark",
        "end_ms",
        "entry",
        "estimate_ms",
        "failures",
        "for_job",
        "grants",
        "group",
        "held",
        "id",
        "job",
        "klass",
        "leaf",
        "limit_ms",
        "model",
        "pending",
        "phase",
        "preemptions",
        "rate",
        "saved_ms",
        "shape",
        "started_ms",
        "state",
        "stream",
        "suspended_ms",
        "wanted",
    )

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
        self.held = False
        self.attempt = 0
        """How many attempts there were, the current one included."""
        self.phase: AttemptState | None = None
        self.grants: tuple[Grant, ...] = ()
        # Number of the GPU model it runs on, charge per millisecond, start and promised end of the attempt.
        self.model = self.rate = self.started_ms = self.end_ms = 0
        self.checkpoint_ms = 0
        """When the current attempt last reported a checkpoint; 0: never."""
        self.suspended_ms = 0
        """Since when it is frozen."""
        self.saved_ms = 0
        """Work that need not be done again."""
        self.preemptions = 0
        self.cause: StopCause | None = None
        self.for_job = 0
        self.failures = 0
        """How often it failed by itself and was tried again."""
        self.pending: tuple[After, ...] = ()
        """Jobs it still waits for."""
        self.doomed = ""
        """Why it can never start: one of them ended otherwise than it was to."""
        self.wanted: Verb | None = None
        """What someone asked for about the current attempt and has not been done yet."""
        self.earmark: Earmark | None = None
        # Its place in the queue.
        self.group: tuple[int, ...] = ()
        self.stream: tuple[int, int, int] = _NOWHERE
        self.entry: tuple[Any, ...] = ()

    def clear(self) -> None:
        """A job without an attempt carries nothing of the last one."""
        self.grants = ()
        self.started_ms = self.end_ms = self.model = self.rate = 0

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
