"""`fifo`: first come, first served."""

from gpuyard.core.jobs.records import JobRecord


class Fifo:
    """Earliest submission first."""

    name = "fifo"

    def key(self, record: JobRecord) -> int:
        """Submission time, or what stands for it once the job was changed; the id breaks ties, as in every order."""
        return record.line_ms
