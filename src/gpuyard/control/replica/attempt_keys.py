"""The names of attempts towards engines: made from the log, and read back."""

from gpuyard.core.jobs.records import JobRecord


def key_of(yard: str, record: JobRecord) -> str:
    """The name of a job's current attempt towards an engine."""
    return attempt_key(yard, record.id, record.attempt, record.job.submitted_ms)


def attempt_key(yard: str, job_id: int, attempt: int, submitted_ms: int) -> str:
    """The time of submission is in it because an old backup that is restored hands out ids again."""
    return f"{yard}-{submitted_ms:x}-{job_id}-{attempt}"


def attempt_of(yard: str, key: str) -> tuple[int, int] | None:
    """Job and attempt of a key of this yard; None: the key belongs to no job here."""
    name, _, attempt = key.rpartition("-")
    name, _, job_id = name.rpartition("-")
    name, _, _submitted = name.rpartition("-")
    if name != yard or not (job_id.isdecimal() and attempt.isdecimal()):
        return None
    return int(job_id), int(attempt)
