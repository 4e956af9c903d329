"""What the scheduler decided from one state: values only, nothing is carried out yet."""

from dataclasses import dataclass
from typing import NamedTuple

from gpuyard.model.jobs import StopCause
from gpuyard.model.mig import Slice


class Grant(NamedTuple):
    """What an attempt holds on one node. A tuple, because a simulation makes millions of them."""

    node: int
    """The node's number in the fleet: assigned when it joined, never reused."""
    gpus: int
    """The GPUs as a bit mask."""
    milli: int
    """How much of each GPU: 1000 for whole GPUs."""
    cpu_milli: int
    memory_mib: int
    tasks: int
    """How many of the job's tasks run here."""
    slices: tuple[Slice, ...] = ()
    """The MIG slices, if the GPUs are cut; the same number on each."""
    user: str = ""
    """The user of these shares, if no other user's may be put beside them."""

    @property
    def gpu_milli(self) -> int:
        """Milli-GPU held on this node."""
        return self.gpus.bit_count() * self.milli


class Start(NamedTuple):
    """Start this attempt of the job on these grants."""

    job_id: int
    attempt: int
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop this attempt to make room for `for_job`, which is earmarked in the same plan; 0: for a taint of its node."""

    job_id: int
    attempt: int
    cause: StopCause
    for_job: int


@dataclass(frozen=True, slots=True)
class Earmark:
    """GPUs kept for a job until the attempts on them have gone."""

    job_id: int
    grants: tuple[Grant, ...]
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """A waiting job's place in time: if running jobs end no later than expected, it starts by then."""

    job_id: int
    at_ms: int


class Plan(NamedTuple):
    """Everything decided in one pass. To be committed in this order: stops, starts, earmarks."""

    starts: tuple[Start, ...] = ()
    stops: tuple[Stop, ...] = ()
    earmarks: tuple[Earmark, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    examined: tuple[int, ...] = ()
    """Ids of the examined jobs, in order."""
    codes: bytes = b""
    """One `ReasonCode` for each examined job."""
    waiting: int = 0
    """How many jobs were eligible before the pass; jobs that were not examined are behind those that were."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.starts or self.stops or self.earmarks)


NOTHING = Plan()
