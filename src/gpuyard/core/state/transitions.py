"""Which event may follow which state of an attempt: the one table of transitions.

Any other event is a bug in the code that wrote it, and raises with what is known of the job.
"""

from typing import Any

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state.state import InvalidEvent, State
from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptStarted,
    AttemptState,
    AttemptStopping,
    AttemptUnknown,
    CheckpointSeen,
    EarmarkDropped,
    EarmarkSet,
    JobCancelled,
    JobChanged,
    JobContinued,
    JobHeld,
    JobReleased,
    JobSuspended,
)

FROM: dict[type, frozenset[AttemptState | None]] = {
    AttemptConfirmed: frozenset({AttemptState.STARTING, AttemptState.UNKNOWN}),
    AttemptStopping: frozenset(
        {AttemptState.STARTING, AttemptState.RUNNING, AttemptState.SUSPENDED, AttemptState.UNKNOWN}
    ),
    AttemptUnknown: frozenset({AttemptState.STARTING, AttemptState.RUNNING, AttemptState.SUSPENDED}),
    AttemptEnded: frozenset(AttemptState),
    CheckpointSeen: frozenset(AttemptState),
    # Logs of earlier releases repeat it for a job that was suspended while it was out of sight.
    JobSuspended: frozenset({AttemptState.STARTING, AttemptState.RUNNING, AttemptState.SUSPENDED}),
    JobContinued: frozenset({AttemptState.SUSPENDED}),
    AttemptStarted: frozenset({None}),
    JobChanged: frozenset({None, *AttemptState}),
    JobHeld: frozenset({None}),
    JobReleased: frozenset({None}),
    JobCancelled: frozenset({None}),
    EarmarkSet: frozenset({None}),
    EarmarkDropped: frozenset({None}),
}
"""The states in which the current attempt may be (None: the job waits and has no attempt)."""


def check_transition(state: State, event: Any) -> JobRecord:
    """The live job that an event is about; raises if the event may not follow what is known of it."""
    record = state.jobs.get(event.job_id)
    if record is None:
        raise InvalidEvent(f"{event}: no live job {event.job_id}")
    if record.phase not in FROM[type(event)]:
        raise InvalidEvent(f"{event}: {record_text(record)}")
    attempt = getattr(event, "attempt", None)
    if attempt is not None and type(event) is not AttemptStarted and attempt != record.attempt:
        raise InvalidEvent(f"{event}: the current attempt is {record.attempt}; {record_text(record)}")
    return record


def record_text(record: JobRecord) -> str:
    """What is known of a job, in one line."""
    phase = record.phase.value if record.phase else "no attempt"
    return (
        f"job {record.job.label} is {record.state.value} ({phase}), attempt {record.attempt}, "
        f"started {record.started_ms}, preempted {record.preemptions} times"
    )
