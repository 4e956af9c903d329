"""The order of waiting jobs: criteria, and whether the fair share is one of them."""

from dataclasses import dataclass
from typing import Protocol

from gpuyard.core.jobs.records import JobRecord


class Criterion(Protocol):
    """One step of a lexicographic order over waiting jobs. Its key may change only when the job is requeued."""

    name: str

    def key(self, record: JobRecord) -> int:
        """The smallest key goes first."""
        ...


class FairShare:
    """The one criterion that is not a key: it walks the tenant tree, least served first."""

    name = "fair"


@dataclass(frozen=True, slots=True)
class Order:
    """Criteria before the fair share, whether there is one, and criteria after it; age and id come last."""

    before: tuple[Criterion, ...]
    fair: bool
    after: tuple[Criterion, ...]
    by_rights: bool = False
    """Whether a job's rights affect whether it has room, because the policy preempts."""
    turn_ms: int = 0
    """With fair share: a gang that has waited this long leaves its user's line for its team's, by age; 0: never."""
