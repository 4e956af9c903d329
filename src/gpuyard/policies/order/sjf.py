"""`sjf`: shortest job first, by its time limit, which is all that is known before it has run."""

from gpuyard.core.jobs.records import JobRecord


class Sjf:
    """Smallest time limit first."""

    name = "sjf"

    def key(self, record: JobRecord) -> int:
        """The whole limit, however much work is saved."""
        return record.limit_ms
