"""`deadline`: least laxity first.

Laxity is the deadline less now less the remaining run time. Now is the same for all waiting jobs, so the order needs
no clock.
"""

from gpuyard.core.fleet.nodes import NEVER_MS
from gpuyard.core.jobs.records import JobRecord


class Deadline:
    """Least time to spare first; jobs without a deadline last."""

    name = "deadline"

    def key(self, record: JobRecord) -> int:
        """The latest time at which it could start and still be done."""
        deadline_ms = record.job.deadline_ms
        return deadline_ms - record.estimate_ms if deadline_ms else NEVER_MS
