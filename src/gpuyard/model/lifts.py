"""What would remove a blocker, as a value that can be applied.

A reason says in a sentence what blocks a job. Its lift says the same as a value that a program can try: with all lifts
of a job applied the job starts, and with any one of them left out it does not. A lift changes one thing: a setting, the
fleet, the running jobs, the waiting jobs, or the job itself.
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
    """The job no longer has a later begin time."""

    job_id: int


@dataclass(frozen=True, slots=True)
class WithoutAfter:
    """The job no longer waits for these jobs, because its dependencies on them are met."""

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
    """A tenant's limit for a GPU model, or under `total`, is `to_milli`."""

    tenant: str
    model: str
    to_milli: int


@dataclass(frozen=True, slots=True)
class RaisePerUser:
    """A tenant's `max_gpus_per_user` is `to_milli`."""

    tenant: str
    to_milli: int


@dataclass(frozen=True, slots=True)
class RaiseAttempts:
    """One user may have `to` attempts (`attempts_per_user`)."""

    to: int


@dataclass(frozen=True, slots=True)
class RaisePerJob:
    """A tenant's `max_gpus_per_job` is `to_milli`."""

    tenant: str
    to_milli: int


@dataclass(frozen=True, slots=True)
class RaiseRunningJobs:
    """A tenant's `max_running_jobs` is `to`."""

    tenant: str
    to: int


@dataclass(frozen=True, slots=True)
class RaiseClassLimit:
    """A tenant's limit for the jobs of a class is `to_milli`."""

    tenant: str
    klass: str
    to_milli: int


@dataclass(frozen=True, slots=True)
class RaiseClassJobs:
    """A tenant's `max_running_jobs` of a class is `to`."""

    tenant: str
    klass: str
    to: int


@dataclass(frozen=True, slots=True)
class RaiseCores:
    """A tenant's `max_cpus` is `to_milli`."""

    tenant: str
    to_milli: int


@dataclass(frozen=True, slots=True)
class RaiseMemory:
    """A tenant's `max_memory` is `to_mib`."""

    tenant: str
    to_mib: int


@dataclass(frozen=True, slots=True)
class RaiseBorrow:
    """A tenant may borrow `to_milli` of a GPU model, or under `total`."""

    tenant: str
    model: str
    to_milli: int


@dataclass(frozen=True, slots=True)
class RaiseBudget:
    """A tenant's budget is `to_gpu_ms` in each window."""

    tenant: str
    to_gpu_ms: int


@dataclass(frozen=True, slots=True)
class RaiseNamedBudget:
    """A named budget is `to` in each window: milliseconds of a GPU, or micro-dollars."""

    budget: str
    to: int


@dataclass(frozen=True, slots=True)
class OpenPools:
    """These pools, by `CLUSTER/POOL`, have no walls."""

    pools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LendMore:
    """These tenants lend their whole guarantee for a GPU model, or under `total`, while it is idle."""

    tenants: tuple[str, ...]
    model: str


@dataclass(frozen=True, slots=True)
class EndJobs:
    """These jobs, which hold GPUs, have ended."""

    job_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeaveLine:
    """These waiting jobs are gone from the queue."""

    job_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpenNode:
    """A node that is cordoned or down takes jobs again."""

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
    """`count` nodes like this one join the fleet, each with its own name."""

    like: Node
    count: int


JobLift = BeginNow | WithoutAfter | AskFor | LimitTime
"""Lifts that change the job itself: the changed job is submitted again in the same place."""

QuotaLift = (
    RaiseLimit
    | RaisePerUser
    | RaiseAttempts
    | RaisePerJob
    | RaiseRunningJobs
    | RaiseClassLimit
    | RaiseClassJobs
    | RaiseCores
    | RaiseMemory
    | RaiseBorrow
    | RaiseBudget
    | RaiseNamedBudget
    | OpenPools
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
