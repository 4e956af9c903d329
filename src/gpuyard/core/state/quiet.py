"""The last pass, if it decided nothing.

On a full cluster most events are arrivals of jobs that cannot start. As long as nothing else happens, the last answer
stands, and an arrival behind the others need not be looked at if it asks for what is known not to be there.
"""

from collections.abc import Callable, Sequence

from gpuyard.core.jobs.records import JobRecord
from gpuyard.model import Plan


class Quiet:
    """A plan that changes nothing, and how long it holds."""

    __slots__ = (
        "applies",
        "looked",
        "plan",
        "policy",
        "promised_ms",
        "refused",
        "settled",
        "stirred",
        "until_ms",
    )

    def __init__(
        self,
        stirred: int,
        policy: object,
        applies: Sequence[Callable[..., bool]],
        plan: Plan,
        until_ms: int,
        promised_ms: int,
        refused: set[tuple[int, int, int]],
        looked: set[tuple[int, int, int]],
        settled: bool,
    ) -> None:
        self.stirred = stirred
        """`State.stirred` at the time: any event that matters moves it on."""
        self.policy = policy
        """Which it was: another one may decide otherwise."""
        self.applies = applies
        """Of each rule of force: whether it might take room for a job."""
        self.plan = plan
        self.until_ms = until_ms
        """When it has to be looked at again even if nothing happens."""
        self.promised_ms = promised_ms
        """The promise in it."""
        self.refused = refused
        """Streams whose jobs have room but would break the promise unless they are over in time."""
        self.looked = looked
        """Streams of which every job was looked at by itself: so would be a new one."""
        self.settled = settled
        """Whether a job at the end that has no room would be passed over."""

    def stands(self, stirred: int, policy: object, now_ms: int) -> bool:
        """Whether a new pass would find the same."""
        return self.stirred == stirred and self.policy is policy and now_ms < self.until_ms

    def refuses(self, record: JobRecord, now_ms: int) -> bool:
        """Whether a new job would break the promise."""
        return record.stream in self.refused and now_ms + record.estimate_ms > self.promised_ms
