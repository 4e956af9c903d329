"""A refusal as a value: what refuses the job, why, and what would change that."""

from dataclasses import dataclass
from enum import Enum, IntEnum

from gpuyard.model.lifts import Lift
from gpuyard.model.remedies import Remedy


class ReasonCode(IntEnum):
    """Why a job does not start. Small integers, because a pass writes one for each job it examines."""

    STARTED = 0
    """It starts in this plan."""
    ROOM = 1
    """No node, or not enough nodes together, have the GPUs, cores and memory free."""
    RESERVATION = 2
    """It would fit, but would delay a job that is ahead of it."""
    LIMIT = 3
    """A tenant on its path has reached its limit."""
    BORROW = 4
    """A tenant on its path may not borrow more."""
    HELD_BACK = 5
    """The free GPUs are guaranteed to other tenants, which do not lend them."""
    RUNNING_JOBS = 6
    """A tenant on its path runs as many jobs as it may."""
    BUDGET = 7
    """It would overspend a GPU-hour budget."""
    QUOTA_AHEAD = 8
    """An earlier job of the same tenant waits for quota, and this one would delay it."""
    EARMARK = 9
    """GPUs are being freed for it."""
    HEAD_BLOCKED = 10
    """A job ahead of it waits, and the policy lets no job overtake."""
    HELD = 11
    """A user put it on hold."""
    BEGIN = 12
    """It asked not to start before a time."""
    NOT_EXAMINED = 13
    """The pass did not get this far."""
    NEVER_FITS = 14
    """No node of the fleet could hold it even if empty."""
    UNSUPPORTED = 15
    """It asks for a kind of GPU sharing that cannot be served yet."""
    JOB_TOO_LARGE = 16
    """It asks for more GPUs than a job of its tenant may have."""
    NO_TIME_LIMIT = 17
    """Its tenant has a budget, and without a time limit the job cannot be counted against it."""
    DEPENDENCY = 18
    """It waits for another job."""
    AHEAD = 19
    """Jobs ahead of it take what there is, or would."""
    PER_USER = 20
    """Its user has as much as one user may: GPUs of a tenant on its path, or attempts."""
    WALL = 21
    """Every pool that could hold it takes no job like it: by its wall."""


class WaitCause(Enum):
    """What a job waited for, as reports on past waiting add it up."""

    ROOM = "room"
    """Too few GPUs were free."""
    FRAGMENTATION = "fragmentation"
    """Enough GPUs were free, but not together, or without the cores and memory beside them."""
    TAIL = "tail"
    """All its nodes but the last one were free."""
    ORDER = "order"
    """Jobs ahead of it had to start first."""
    QUOTA = "quota"
    """A limit, the wall of a pool, or a guarantee of others; in logs of earlier releases a budget too."""
    BUDGET = "budget"
    """A budget had too little left for it, or could not count it."""
    OVER_ASKING = "over-asking"
    """It asked for more than there is; or running jobs held GPUs that they did not use."""
    CRASHES = "crashes"
    """Its attempt had failed; or attempts that failed had used the GPUs for nothing."""
    HOLD = "hold"
    """A user put it on hold."""
    DEPENDENCY = "dependency"
    """Another job had to go first."""
    BEGIN = "begin"
    """It asked not to start before a time."""
    UNKNOWN = "unknown"
    """No leader looked, or another scheduler did not say."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One blocker, with numbers."""

    code: ReasonCode
    by: str
    """What refuses: a part of the scheduler, or a tenant's path."""
    text: str
    """A sentence with numbers."""
    preemption_may_help: bool
    lifted_by: tuple[Remedy, ...]
    """What would change it: at least one thing, and any of several."""
    lift: Lift | None = None
    """The change as a value that can be applied; None if it is not worked out."""
