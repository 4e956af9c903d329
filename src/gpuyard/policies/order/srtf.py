"""`srtf`: shortest remaining time first. With the preemption rule `srtf`, a much longer job makes room."""

from gpuyard.core.jobs.records import JobRecord


class Srtf:
    """Least left to do first."""

    name = "srtf"

    def key(self, record: JobRecord) -> int:
        """The limit less the saved work; it changes only when the job is requeued."""
        return record.estimate_ms
