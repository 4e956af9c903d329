"""The rows of the queue: what is in each, and why a job waits in a few words."""

from collections.abc import Sequence
from typing import Any

from gpuyard.control.reading.plain_views import gpus_number, node_state
from gpuyard.control.reading.slurm_views import NOTHING_MORE, throttled
from gpuyard.core import State
from gpuyard.core.explain.room_reasons import full_text
from gpuyard.core.jobs.records import JobRecord
from gpuyard.model import AttemptState, Node, ReasonCode
from gpuyard.model.units import NO_LIMIT_MS

REASON_TEXTS = {
    ReasonCode.STARTED: "about to start",
    ReasonCode.ROOM: "no room",
    ReasonCode.RESERVATION: "room is promised to a job ahead",
    ReasonCode.LIMIT: "its tenant is at its limit",
    ReasonCode.BORROW: "its tenant may not borrow more",
    ReasonCode.HELD_BACK: "what is free is guaranteed to others",
    ReasonCode.RUNNING_JOBS: "its tenant runs as many jobs as it may",
    ReasonCode.BUDGET: "over its tenant's budget",
    ReasonCode.QUOTA_AHEAD: "an earlier job of its tenant waits for quota",
    ReasonCode.EARMARK: "GPUs are being freed for it",
    ReasonCode.HEAD_BLOCKED: "a job ahead waits, and none may overtake",
    ReasonCode.HELD: "on hold",
    ReasonCode.BEGIN: "before its begin time",
    ReasonCode.NEVER_FITS: "no node could hold it",
    ReasonCode.UNSUPPORTED: "its kind of GPU sharing cannot be served yet",
    ReasonCode.JOB_TOO_LARGE: "larger than a job of its tenant may be",
    ReasonCode.NO_TIME_LIMIT: "its tenant has a budget and it has no time limit",
    ReasonCode.DEPENDENCY: "waits for another job",
    ReasonCode.PER_USER: "its user has as much as one user may",
    ReasonCode.AHEAD: "jobs ahead of it take what there is",
}

NEW_TEXT = "not looked at yet"
"""Of a job that came after the last pass."""

QUEUE_COLUMNS = (
    "id", "label", "name", "tenant", "user", "class", "state", "attempt_state", "gpus", "nodes",
    "submitted_ms", "started_ms", "time_limit_s", "reason",
)  # fmt: skip


def queue_row(record: JobRecord, nodes: Sequence[Node], reason: str) -> tuple[Any, ...]:
    job = record.job
    spec = job.spec
    limit_ms = record.limit_ms
    return (
        job.id,
        job.label,
        spec.name,
        spec.tenant,
        spec.user,
        record.klass.name,
        # As `value`, without the call that this is: a queue has thousands of rows.
        record.state._value_,
        record.phase._value_ if record.phase is not None else "",
        gpus_number(record.shape.gpu_milli),
        ",".join([nodes[grant.node].name for grant in record.grants]) if record.grants else "",
        job.submitted_ms,
        record.started_ms,
        0 if limit_ms >= NO_LIMIT_MS else limit_ms // 1000,
        reason,
    )


def masked_row(record: JobRecord, wide: bool) -> tuple[Any, ...]:
    """What others may know of a job that stands before theirs: that it is there, its state and its GPUs."""
    gpus, number = gpus_number(record.shape.gpu_milli), str(record.id)
    row = (record.id, number, "", "", "", "", record.state.value, "", gpus, "", 0, 0, 0, "")
    return row + NOTHING_MORE if wide else row


def closed_text(state: State) -> str:
    """What is more to be said where there is no room: nodes that would have some, but are out of use."""
    nodes = state.nodes
    if not nodes.closed_count:
        return ""
    full = full_text(state, sorted(nodes.full))
    said = f"; {full}" if full else ""
    shut = [number for number, closed in enumerate(nodes.closed) if closed and nodes.shut(number)]
    if len(shut) == 1:
        word, _why = node_state(state, shut[0])
        return f"{said}; node {nodes.node[shut[0]].name} is {word.lower()}"
    return f"{said}; {len(shut)} nodes are drained or down" if shut else said


def waits_text(record: JobRecord) -> str:
    if record.doomed:
        return "what it waits for cannot come true"
    if throttled(record):
        return "as many tasks of its array run as may"
    return REASON_TEXTS[ReasonCode.DEPENDENCY]


def running_text(record: JobRecord) -> str:
    if record.phase is AttemptState.STOPPING:
        return f"stopping ({record.cause.value})" if record.cause else "stopping"
    if record.phase is AttemptState.UNKNOWN:
        return "the engine does not know it"
    if record.wanted is not None:
        return f"about to {record.wanted.value}"
    return ""
