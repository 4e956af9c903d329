"""The reasons about room, one for each thing that would have to change: jobs ending, nodes opened, room given up."""

from gpuyard.core.estimate.room_lifts import Obstacles
from gpuyard.core.explain.remedies import job_labels, wait_for_ends, wait_for_stops
from gpuyard.core.explain.room_reasons import model_name, pinned_reason, shortage_text
from gpuyard.core.fleet.shapes import Way
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import count_text, names_text
from gpuyard.core.state.state import State
from gpuyard.model import (
    Cure,
    EndJobs,
    ForeignGone,
    LeaveLine,
    OpenNode,
    Reason,
    ReasonCode,
    ReleaseLayout,
    Remedy,
)
from gpuyard.quantities import span_words


def obstacle_reasons(
    state: State, record: JobRecord, way: Way, found: Obstacles, now_ms: int
) -> list[Reason]:
    """One reason for each obstacle of a job that is served one way."""
    reasons = []
    lacks = shortage_text(state, record.shape, way)
    if found.running:
        text, lifted_by = lacks, (wait_for_ends(state, found.running, now_ms),)
        if found.closed:
            where = names_text([state.nodes.node[number].name for number in found.closed])
            text += f"; on {where}, where it could go, others have its room too"
        reasons.append(Reason(ReasonCode.ROOM, "placement", text, False, lifted_by, EndJobs(found.running)))
    reasons += [_closed(state, number, lacks) for number in found.closed]
    reasons += [_foreign(state, number) for number in found.foreign]
    reasons += [_pinned(state, number) for number in found.pinned]
    return [*reasons, *[kept_reason(state, found.kept)]] if found.kept else reasons


def _foreign(state: State, number: int) -> Reason:
    """GPUs that processes outside the yard use."""
    mask, user = state.nodes.foreign[number]
    node, model = state.nodes.node[number].name, model_name(state, state.nodes.kind_of[number].model)
    are = "is" if mask.bit_count() == 1 else "are"
    text = f"{mask.bit_count()} x {model} of {node} {are} used outside the yard: {user}"
    lift = ForeignGone(number, node)
    return Reason(ReasonCode.ROOM, f"node {node}", text, False, (Remedy(Cure.FOREIGN_ENDS),), lift)


def _pinned(state: State, number: int) -> Reason:
    """GPUs that are pinned to slices."""
    name = state.nodes.node[number].name
    return pinned_reason(state, number, f"node {name}", ReleaseLayout(number, name))


def kept_reason(state: State, job_ids: tuple[int, ...]) -> Reason:
    """Room that was freed for other jobs."""
    names = job_labels(state, job_ids)
    jobs = f"job{'s' if len(job_ids) > 1 else ''} {names_text(names)}"
    text, lift = f"room that it could use is kept for {jobs}", LeaveLine(job_ids)
    return Reason(ReasonCode.AHEAD, "preemption", text, False, (Remedy(Cure.JOBS_START, names),), lift)


def earmarked_reasons(state: State, record: JobRecord, found: Obstacles, now_ms: int) -> list[Reason]:
    """The same for a job with an earmark."""
    assert record.earmark is not None
    where = names_text([state.nodes.node[grant.node].name for grant in record.earmark.grants])
    left = span_words(max(0, record.earmark.expires_ms - now_ms))
    reasons = []
    if found.running:
        text = f"its room on {where} is being freed and is kept for it for another {left}"
        lifted_by = (wait_for_stops(state, found.running),)
        lift = EndJobs(found.running)
        reasons.append(Reason(ReasonCode.EARMARK, "preemption", text, False, lifted_by, lift))
    reasons += [_closed(state, number, "its room is kept there") for number in found.closed]
    return [*reasons, *[_foreign(state, number) for number in found.foreign]]


def _closed(state: State, number: int, lacks: str) -> Reason:
    """A node that takes no new jobs, and why."""
    nodes = state.nodes
    node, name = nodes.node[number], nodes.node[number].name
    what, why = ("down", nodes.down[number]) if nodes.down[number] else ("drained", nodes.cordoned[number])
    because = f": {why}" if why not in (what, "cordoned", "drain") else ""
    if node.gpus:
        are = "is" if node.gpus == 1 else "are"
        text = f"{count_text(node.gpus, 'GPU')} on node {name} {are} {what}{because}"
    else:
        text = f"node {name} is {what}{because}"
    lifted_by = (Remedy(Cure.RESUME_NODE if what == "drained" else Cure.NODE_BACK, (name,)),)
    return Reason(
        ReasonCode.ROOM, f"node {name}", f"{text} ({lacks})", False, lifted_by, OpenNode(number, name)
    )
