"""What would remove a blocker, as a value that can be applied.

A reason says in a sentence what stands in a job's way. Its lift says the same so that a program can try it: with all
lifts of a job applied the job starts, and with any one of them left out it does not. A lift changes one thing: a
setting, the fleet, what runs, who waits, or the job itself.
"""

from dataclasses import dataclass

from gpuyard.model.fleet import Node
from gpuyard.model.jobs import Ask


@dataclass(frozen=True, slots=True)
class ReleaseHold:
    """The job is released."""

    job_id: int


@dataclass(frozen=True, slots=True)
class BeginNow:
    """The job no longer asks to start later."""

    job_id: int


@dataclass(frozen=True, slots=True)
class WithoutAfter:
    """The job no longer waits for these, because it has become of them what was waited for."""

    job_id: int
    others: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AskFor:
    """The job asks for something that can be served."""

    job_id: int
    ask: Ask


@dataclass(frozen=True, slots=True)
class LimitTime:
    """The job has a time limit."""

    job_id: int
    limit_ms: int


@dataclass(frozen=True, slots=True)
class RaiseLimit:
    """The limit of a tenant on a GPU model, or under `total`, is so much."""

    tenant: str
    model: str
    to_milli: int


@dataclass(frozen=True, slots=True)
class RaisePerUser:
    """`max_gpus_per_user` of a tenant is so much."""

    tenant: str
    to_milli: int


@dataclass(frozen=True, slots=True)
class RaiseAttempts:
    """One user may have so many attempts (`attempts_per_user`)."""

    to: int


@dataclass(frozen=True, slots=True)
class RaisePerJob:
    """`max_gpus_per_job` of a tenant is so much."""

    tenant: str
    to_milli: int


@dataclass(frozen=True, slots=True)
class RaiseRunningJobs:
    """`max_running_jobs` of a tenant is so many."""

    tenant: str
    to: int


@dataclass(frozen=True, slots=True)
class RaiseBorrow:
    """A tenant may borrow so much of a GPU model, or under `total`."""

    tenant: str
    model: str
    to_milli: int


@dataclass(frozen=True, slots=True)
class RaiseBudget:
    """A tenant's budget is so many milliseconds of a GPU in each window."""

    tenant: str
    to_gpu_ms: int


@dataclass(frozen=True, slots=True)
class LendMore:
    """These tenants lend all of what they are guaranteed of a GPU model, or under `total`, while it is idle."""

    tenants: tuple[str, ...]
    model: str


@dataclass(frozen=True, slots=True)
class EndJobs:
    """These jobs, which hold GPUs, have ended."""

    job_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeaveLine:
    """These jobs, which wait, no longer do."""

    job_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpenNode:
    """A node that is drained or down takes work again."""

    node: int
    name: str


@dataclass(frozen=True, slots=True)
class ForeignGone:
    """Processes from outside the yard have left the GPUs of a node."""

    node: int
    name: str


@dataclass(frozen=True, slots=True)
class ReleaseLayout:
    """GPUs of a node that are pinned to MIG slices are released."""

    node: int
    name: str


@dataclass(frozen=True, slots=True)
class AddNodes:
    """So many nodes like this one join the fleet; each gets a name of its own."""

    like: Node
    count: int


JobLift = BeginNow | WithoutAfter | AskFor | LimitTime
"""Lifts that change the job itself: it is submitted once more, changed, in the same place."""

QuotaLift = (
    RaiseLimit
    | RaisePerUser
    | RaiseAttempts
    | RaisePerJob
    | RaiseRunningJobs
    | RaiseBorrow
    | RaiseBudget
    | LendMore
)
"""Lifts that change a setting."""

Lift = (
    JobLift
    | QuotaLift
    | ReleaseHold
    | EndJobs
    | LeaveLine
    | OpenNode
    | ForeignGone
    | ReleaseLayout
    | AddNodes
)
