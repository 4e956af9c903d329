"""What the scheduler decided from one state: values only, nothing is done yet."""

from dataclasses import dataclass
from typing import NamedTuple

from gpuyard.model.jobs import StopCause
from gpuyard.model.mig import Slice


class Grant(NamedTuple):
    """What an attempt holds on one node. A tuple, because a simulation makes millions of them."""

    node: int
    """The node's number in the fleet: given when it joined, never given again."""
    gpus: int
    """The GPUs as a bit mask."""
    milli: int
    """How much of each of them: 1000 for whole GPUs."""
    cpu_milli: int
    memory_mib: int
    tasks: int
    """How many of the job's tasks run here."""
    slices: tuple[Slice, ...] = ()
    """The MIG slices, where the GPUs are cut; the same number on each."""
    user: str = ""
    """Whose shares these are, where no others may be put beside them."""

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
    """Stop this attempt to make room for `for_job`, which is earmarked in the same plan."""

    job_id: int
    attempt: int
    cause: StopCause
    for_job: int


@dataclass(frozen=True, slots=True)
class Earmark:
    """Slices held for a job while what is on them is being stopped."""

    job_id: int
    grants: tuple[Grant, ...]
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """A waiting job's place in time: if running jobs end no later than promised, it starts by then."""

    job_id: int
    at_ms: int


class Plan(NamedTuple):
    """Everything decided in one pass. To be committed in this order: stops, starts, earmarks."""

    starts: tuple[Start, ...] = ()
    stops: tuple[Stop, ...] = ()
    earmarks: tuple[Earmark, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    examined: tuple[int, ...] = ()
    """Ids of the jobs looked at, in order."""
    codes: bytes = b""
    """One `ReasonCode` for each of them."""
    waiting: int = 0
    """How many jobs were eligible before the pass; those not examined are behind the ones that were."""

    @property
    def empty(self) -> bool:
        """Nothing to do."""
        return not (self.starts or self.stops or self.earmarks)


NOTHING = Plan()
