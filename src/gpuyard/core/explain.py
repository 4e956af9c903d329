"""Why a job waits: all blockers, with numbers, from the same checks that decide.

A pass stops at the first thing that forbids a start, because that is all it needs. A person needs all of them, how far
each is from being lifted, and when the job could start. That is worked out here, on demand, for one job.
"""

from dataclasses import dataclass

from gpuyard.core.admission import ask_text, gpus_text, never
from gpuyard.core.policy import Policy
from gpuyard.core.profile import Profile
from gpuyard.core.quota_reasons import quota_reasons
from gpuyard.core.records import JobRecord
from gpuyard.core.room_reasons import room_reasons
from gpuyard.core.state import State
from gpuyard.core.words import span
from gpuyard.model import JobState, Reason, ReasonCode
from gpuyard.model.units import NO_LIMIT_MS

_AHEAD_BOOKED_MAX = 200
"""How many jobs ahead are booked in before the estimate is given up as too far off."""

_EVERYONE = 1 << 60


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known about one live job."""

    job_id: int
    label: str
    state: JobState
    ahead: int
    """Jobs before it in the policy's order; 0 for the first and for one that does not wait in line."""
    reasons: tuple[Reason, ...]
    """All blockers, the ones that weigh most first. Empty: nothing stands in its way."""
    start_ms: int | None
    """When it starts if what runs ends as promised and nobody comes in between; None: no promised end brings it."""
    how: str
    """How that was reached."""


def explain(state: State, policy: Policy, job_id: int, now_ms: int) -> Explanation | None:
    """All blockers of a job; None if there is no live job of that id."""
    record = state.jobs.get(job_id)
    if record is None:
        return None
    if record.state is not JobState.PENDING:
        how = f"runs since {span(now_ms - record.started_ms)}, promised to end within {_left(record, now_ms)}"
        return Explanation(job_id, record.job.label, record.state, 0, (), record.started_ms, how)
    if state.queue.order is not policy.order:
        state.reindex(policy.order)
    line = _line(state)
    position = next((i for i, other in enumerate(line) if other is record), None)
    ahead = line[: position or 0]
    reasons = _set_aside(record, now_ms)
    impossible = never(state, record.job.spec)
    if impossible is not None:
        # Nothing else matters then.
        reasons.append(impossible)
        start_ms, how = None, "it can never start as it stands"
    else:
        if record.earmark is not None:
            reasons.append(_earmarked(state, record, now_ms))
        else:
            reasons += quota_reasons(state, policy, record)
            reasons += room_reasons(state, policy, record, ahead, now_ms)
        start_ms, how = _estimate(state, policy, record, ahead, now_ms)
    return Explanation(job_id, record.job.label, record.state, len(ahead), tuple(reasons), start_ms, how)


def _left(record: JobRecord, now_ms: int) -> str:
    left_ms = record.end_ms - now_ms
    return "no known time" if left_ms >= NO_LIMIT_MS // 2 else span(max(0, left_ms))


def _line(state: State) -> list[JobRecord]:
    """All eligible jobs in order. A walk in which nobody starts visits everyone."""
    walk = state.queue.walk(_EVERYONE)
    line: list[JobRecord] = []
    while (record := walk.next()) is not None:
        line.append(record)
        walk.blocked(record, NO_LIMIT_MS)
    return line


def _set_aside(record: JobRecord, now_ms: int) -> list[Reason]:
    found = []
    if record.held:
        found.append(
            Reason(ReasonCode.HELD, "hold", "it is on hold", False, f"yard release {record.job.label}")
        )
    begin_ms = record.job.begin_ms
    if begin_ms > now_ms:
        text = f"it asked not to start for another {span(begin_ms - now_ms)}"
        found.append(Reason(ReasonCode.BEGIN, "begin time", text, False, "time"))
    return found


def _earmarked(state: State, record: JobRecord, now_ms: int) -> Reason:
    assert record.earmark is not None
    victims = sorted(
        other.job.label for other in state.running.values() if other.for_job == record.id and other.cause
    )
    waiting_for = f"job{'s' if len(victims) != 1 else ''} {', '.join(victims)}" if victims else "its room"
    left = span(max(0, record.earmark.expires_ms - now_ms))
    return Reason(
        ReasonCode.EARMARK,
        "preemption",
        f"{gpus_text(record.shape.gpu_milli)} GPUs are kept for it for another {left} while {waiting_for} stop",
        False,
        "the engine's word that they have stopped",
    )


def _estimate(
    state: State, policy: Policy, record: JobRecord, ahead: list[JobRecord], now_ms: int
) -> tuple[int | None, str]:
    """Book in everyone ahead, in order, and then this one: the conservative start."""
    if record.held:
        return None, "nobody knows when the hold ends"
    if len(ahead) > _AHEAD_BOOKED_MAX:
        return None, f"{len(ahead)} jobs are ahead: too many to foretell"
    profile = Profile(state, policy, now_ms)
    booked = 0
    for other in ahead:
        slot = profile.earliest(other, now_ms) if other.earmark is None else None
        if slot is not None:
            profile.book(other, slot)
            booked += 1
    slot = profile.earliest(record, max(now_ms, record.job.begin_ms))
    if slot is None:
        return None, f"no promised end of what runs makes room for {ask_text(record.shape)}"
    how = f"{booked} of {len(ahead)} jobs ahead booked in first, everything ending at its time limit"
    return slot.at_ms, how if ahead else "it is first in line, everything ending at its time limit"
