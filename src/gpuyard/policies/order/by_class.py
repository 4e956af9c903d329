"""`class`: the class's priority."""

from gpuyard.core.jobs.records import JobRecord


class ByClass:
    """Highest priority first."""

    name = "class"

    def key(self, record: JobRecord) -> int:
        """Priority, turned round."""
        return -record.klass.priority
