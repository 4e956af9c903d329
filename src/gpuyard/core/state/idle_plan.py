"""The last pass, if it decided nothing.

On a full cluster most events are arrivals of jobs that cannot start. As long as nothing else happens, the last answer
stands, and an arrival behind the others need not be examined if its ask is known to have no room.
"""

from collections.abc import Callable, Sequence

from gpuyard.core.jobs.records import JobRecord
from gpuyard.model import Plan


class IdlePlan:
    """A plan that changes nothing, and how long it holds."""

    __slots__ = (
        "applies",
        "change_seq",
        "looked",
        "plan",
        "policy",
        "promised_ms",
        "refused",
        "settled",
        "until_ms",
    )

    def __init__(
        self,
        change_seq: int,
        policy: object,
        applies: Sequence[Callable[..., bool]],
        plan: Plan,
        until_ms: int,
        promised_ms: int,
        refused: set[tuple[int, int, int]],
        looked: set[tuple[int, int, int]],
        settled: bool,
    ) -> None:
        self.change_seq = change_seq
        """`State.change_seq` at the time: any event that matters increases it."""
        self.policy = policy
        """The policy that decided: another one may decide differently."""
        self.applies = applies
        """For each preemption rule, the test whether it might take room for a job."""
        self.plan = plan
        self.until_ms = until_ms
        """When a new pass is needed even if nothing happens."""
        self.promised_ms = promised_ms
        """The start that the plan promises."""
        self.refused = refused
        """Streams of jobs that have room but would break the promise unless they end in time."""
        self.looked = looked
        """Streams with each job examined by itself: a new job would be, too."""
        self.settled = settled
        """Whether a job without room at the end of the queue would be passed over."""

    def stands(self, change_seq: int, policy: object, now_ms: int) -> bool:
        """Whether a new pass would give the same plan."""
        return self.change_seq == change_seq and self.policy is policy and now_ms < self.until_ms

    def refuses(self, record: JobRecord, now_ms: int) -> bool:
        """Whether a new job would break the promise."""
        return record.stream in self.refused and now_ms + record.estimate_ms > self.promised_ms
