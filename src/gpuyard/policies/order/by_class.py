"""`class`: the class's priority."""

from gpuyard.core.jobs.records import JobRecord


class ByClass:
    """Highest priority first."""

    name = "class"

    def key(self, record: JobRecord) -> int:
        """The negative priority."""
        return -record.klass.priority
