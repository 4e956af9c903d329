"""Remedies that several reasons have: a job runs too long, jobs must end first."""

from collections.abc import Iterable

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state.state import State
from gpuyard.model import Cure, Remedy
from gpuyard.model.units import NO_LIMIT_MS


def ask_less_time(record: JobRecord) -> Remedy:
    """What helps a job that runs too long: a shorter time limit, or a time limit at all."""
    return Remedy(Cure.TIME_LIMIT if record.limit_ms >= NO_LIMIT_MS else Cure.LESS_TIME)


def job_labels(state: State, job_ids: Iterable[int]) -> tuple[str, ...]:
    """Jobs as users name them."""
    return tuple([state.jobs[job_id].job.label for job_id in job_ids])


def wait_for_stops(state: State, job_ids: tuple[int, ...]) -> Remedy:
    """What a job waits for while its room is being freed."""
    return Remedy(Cure.JOBS_STOPPED, job_labels(state, job_ids))


def wait_for_ends(state: State, job_ids: tuple[int, ...], now_ms: int) -> Remedy:
    """The jobs that would have to end, and when the last of them is expected to."""
    last_ms = max([state.jobs[job_id].end_ms for job_id in job_ids]) - now_ms
    return Remedy(Cure.JOBS_END_BY, job_labels(state, job_ids), last_ms)
