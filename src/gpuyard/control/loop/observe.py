"""What an engine reports, as events. Pure: a state and reports in, events out, nothing concluded that was not seen."""

import signal
from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import dataclass

from gpuyard.control.clock import PARTED_MS
from gpuyard.control.replica.labels import parse_attempt_key
from gpuyard.core import State
from gpuyard.core.fleet.mig_geometry import PlacedSlice
from gpuyard.core.fleet.mig_placing import pin_flaw
from gpuyard.core.jobs.records import JobRecord
from gpuyard.engines.contract import AttemptReport, NodeReport, Phase
from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptState,
    AttemptStopping,
    AttemptUnknown,
    Capability,
    CheckpointSeen,
    EarmarkDropped,
    EngineSeen,
    Event,
    GpusTaken,
    JobContinued,
    JobState,
    JobSuspended,
    LayoutPinned,
    LayoutReleased,
    Node,
    NodeAdded,
    NodeChanged,
    NodeDown,
    NodeUp,
    Outcome,
    StopCause,
    Verb,
)
from gpuyard.model.mig import Slice

CHECKPOINT_EVERY_MS = 10_000
"""How much newer than the last one in the log a checkpoint has to be to get an event of its own."""

_KILLED = 128 + signal.SIGKILL

HANDS_OFF = "card_settings"
"""The name under which GPUs are pinned to their layouts while yard.yaml says `card_settings: leave`."""

_STARTING, _RUNNING = AttemptState.STARTING, AttemptState.RUNNING
_SUSPENDED, _UNKNOWN = AttemptState.SUSPENDED, AttemptState.UNKNOWN
_SEEN = frozenset({Phase.RUNNING, Phase.SUSPENDED, Phase.STOPPING})


def attempt_events(record: JobRecord, report: AttemptReport, now_ms: int) -> list[Event]:
    """What a report about a job's current attempt adds to what is known."""
    job_id, attempt, phase = record.id, record.attempt, record.phase
    events: list[Event] = []
    # The engine has its times by the clock of its start.
    late_ms = 0 if report.saved_by_now else record.delayed_ms
    checkpoint_ms = min(report.checkpoint_ms + late_ms, now_ms) if report.checkpoint_ms else 0
    if checkpoint_ms >= max(record.checkpoint_ms, record.started_ms) + (
        CHECKPOINT_EVERY_MS if record.checkpoint_ms else 0
    ):
        events.append(CheckpointSeen(now_ms, job_id, attempt, checkpoint_ms))
    if report.phase is Phase.ENDED:
        ended_ms = _ended_ms(record, report, now_ms)
        saved_ms = _saved_ms(record, checkpoint_ms, ended_ms or now_ms)
        outcome = _outcome(record, report)
        asked = record.wanted is Verb.REQUEUE or record.cause is StopCause.REQUEUE
        if asked and outcome not in (Outcome.NODE_FAIL, Outcome.CANCELLED):
            # A job that asks to be requeued and ends at once, before it was told to stop, waits again all the same.
            if phase is not AttemptState.STOPPING:
                events.append(AttemptStopping(now_ms, job_id, attempt, StopCause.REQUEUE))
            outcome = Outcome.PREEMPTED
        why, code = report.why, report.exit_code
        for_good = report.for_good and outcome is Outcome.FAILED
        events.append(AttemptEnded(now_ms, job_id, attempt, outcome, saved_ms, code, why, ended_ms, for_good))
        return events
    if report.phase in _SEEN and phase in (_STARTING, _UNKNOWN):
        events.append(AttemptConfirmed(now_ms, job_id, attempt))
        phase = _SUSPENDED if record.state is JobState.SUSPENDED else _RUNNING
    if report.phase is Phase.SUSPENDED and phase is _RUNNING and record.wanted is Verb.SUSPEND:
        events.append(JobSuspended(now_ms, job_id))
    elif report.phase is Phase.RUNNING and phase is _SUSPENDED and record.wanted is Verb.CONTINUE:
        events.append(JobContinued(now_ms, job_id))
    elif report.phase is Phase.UNKNOWN and phase in (_RUNNING, _SUSPENDED):
        events.append(AttemptUnknown(now_ms, job_id, attempt))
    return events


def _ended_ms(record: JobRecord, report: AttemptReport, now_ms: int) -> int:
    """When an attempt ended, by the time of the log; 0: now.

    An engine has both its times by the clock as that went at its start, and the log need not have followed that clock:
    it does not go back. What the engine knows for certain is how long the attempt ran.
    """
    ended_ms = report.ended_ms + record.delayed_ms
    if report.started_ms:
        least_ms = record.started_ms + max(0, report.ended_ms - report.started_ms)
        ended_ms = least_ms if ended_ms > now_ms + PARTED_MS else max(least_ms, ended_ms)
    return ended_ms if record.started_ms <= ended_ms < now_ms else 0


def lost_event(record: JobRecord, now_ms: int) -> Event:
    """The end of an attempt that was stopped and that the engine does not know: it is gone, with no more to say."""
    outcome = Outcome.NODE_FAIL
    if record.cause is not None:
        outcome = Outcome.CANCELLED if record.cause is StopCause.CANCEL else Outcome.PREEMPTED
    saved_ms = _saved_ms(record, record.checkpoint_ms, now_ms)
    return AttemptEnded(
        now_ms, record.id, record.attempt, outcome, saved_ms, 0, "the engine no longer knew it"
    )


def withdrawn_event(record: JobRecord, why: str, now_ms: int) -> Event:
    """The end of an attempt that no engine was asked for: its job waits again, unless it was being cancelled."""
    outcome = Outcome.CANCELLED if record.cause is StopCause.CANCEL else Outcome.PREEMPTED
    return AttemptEnded(now_ms, record.id, record.attempt, outcome, record.saved_ms, 0, why)


def refused_event(record: JobRecord, why: str, now_ms: int, code: int = 0) -> Event:
    """The end of an attempt that the engine will not start; `code`: its exit code."""
    return AttemptEnded(now_ms, record.id, record.attempt, Outcome.FAILED, record.saved_ms, code, why)


def _outcome(record: JobRecord, report: AttemptReport) -> Outcome:
    """How it ended, as the log calls it. A job that was told to stop for others and did was preempted."""
    outcome = report.outcome or Outcome.FAILED
    if outcome is Outcome.FAILED and report.exit_code == _KILLED and _is_cancelled(record):
        # What ran it had not heard of that yet.
        return Outcome.CANCELLED
    if outcome is Outcome.PREEMPTED and record.cause is StopCause.CANCEL:
        return Outcome.CANCELLED
    if outcome is Outcome.CANCELLED and record.cause is not None and record.cause is not StopCause.CANCEL:
        return Outcome.PREEMPTED
    return outcome


def _is_cancelled(record: JobRecord) -> bool:
    return record.cause is StopCause.CANCEL or record.wanted is Verb.CANCEL


def _saved_ms(record: JobRecord, checkpoint_ms: int, ended_ms: int) -> int:
    """Work that need not be done again: that of earlier attempts, and of this one up to its last checkpoint.

    A file may bear a later time than the end of the attempt, where the machine's clock was set.
    """
    at_ms = min(max(checkpoint_ms, record.checkpoint_ms), ended_ms)
    restart_ms = record.job.spec.restart_cost_ms if record.attempt > 1 else 0
    return record.saved_ms + max(0, at_ms - record.started_ms - restart_ms)


def find_node(state: State, node: Node, others: Set[str] = frozenset()) -> int | None:
    """The number of a node that the replica has; None: it is new.

    A node of a cluster that nobody drives any more, `others` being driven by other engines, is the node of that name:
    its cluster has another name now.
    """
    number = state.node_number.get((node.cluster, node.name))
    if number is not None:
        return number
    driven = {node.cluster, *others}
    past = sorted({kind.cluster for kind in state.nodes.kinds} - driven)
    found = [state.node_number[each, node.name] for each in past if (each, node.name) in state.node_number]
    return found[0] if found else None


def node_events(
    state: State, reports: Sequence[NodeReport], now_ms: int, others: Set[str] = frozenset()
) -> list[Event]:
    """Nodes that joined, went, came back, or whose GPUs someone else uses.

    `reports` are of all nodes that one engine has. Nodes of `others`, the clusters of other engines, are not judged.
    """
    events: list[Event] = []
    nodes = state.nodes
    added = 0
    there: set[int] = set()
    for report in reports:
        number = find_node(state, report.node, others)
        taken, why = _foreign(report)
        there.add(number if number is not None else -1)
        if number is None:
            number = len(nodes.node) + added
            added += 1
            events.append(NodeAdded(now_ms, report.node))
            is_down, before = False, 0
        elif report.node != nodes.node[number] and not nodes.may_rename(number, report.node):
            events += _changed(state, number, report, now_ms)
            continue
        else:
            is_down, before = bool(nodes.down[number]), nodes.foreign.get(number, (0, ""))[0]
            if report.node != nodes.node[number]:
                events += _renamed(state, number, report.node, now_ms)
                # With the name of an empty node goes what was said of its GPUs.
                before = before if nodes.attempts_on[number] else 0
        if report.up and is_down:
            events.append(NodeUp(now_ms, number))
        elif not report.up and not is_down:
            events.append(NodeDown(now_ms, number, report.why or "the engine reports it down"))
        if taken != before:
            events.append(GpusTaken(now_ms, number, taken, why))
        events += _layouts(state, number, report, now_ms)
    for (cluster, _name), number in state.node_number.items():
        if number not in there and cluster not in others and not nodes.down[number]:
            events.append(NodeDown(now_ms, number, "the engine no longer has it"))
    return events


_JUDGED_BY = (Capability.GANG, Capability.SHARES, Capability.SLICES, Capability.SUSPEND, Capability.IMAGES,
              Capability.NEW_LIMITS)  # fmt: skip
"""What decides whether a job, or a wish about it, is taken."""


def engine_events(
    state: State, able: Set[Capability], reports: Sequence[NodeReport], now_ms: int
) -> list[Event]:
    """What the engine of these nodes cannot do, where the log does not say so yet."""
    lacks = tuple([each for each in _JUDGED_BY if each not in able])
    clusters = sorted({report.node.cluster for report in reports})
    known = state.nodes.lacks
    return [
        EngineSeen(now_ms, cluster, lacks)
        for cluster in clusters
        if known.get(cluster, frozenset()) != set(lacks)
    ]


def _renamed(state: State, number: int, node: Node, now_ms: int) -> list[Event]:
    """A node whose GPUs had another name gets the right one at once. Earmarks there are chosen again."""
    kept = [
        job_id
        for job_id, record in sorted(state.earmarks.items())
        if record.earmark and any([grant.node == number for grant in record.earmark.grants])
    ]
    return [*[EarmarkDropped(now_ms, job_id) for job_id in kept], NodeChanged(now_ms, number, node)]


def _changed(state: State, number: int, report: NodeReport, now_ms: int) -> list[Event]:
    """A node with other hardware than before takes no new work until it is empty, and is then taken for what it is."""
    nodes = state.nodes
    kept = any(g.node == number for r in state.earmarks.values() if r.earmark for g in r.earmark.grants)
    if nodes.attempts_on[number] or kept:
        why = f"{_difference(nodes.node[number], report.node)}; it is taken in again once nothing runs on it"
        return [] if nodes.down[number] else [NodeDown(now_ms, number, why)]
    events: list[Event] = [NodeChanged(now_ms, number, report.node)]
    if report.up and nodes.down[number]:
        events.append(NodeUp(now_ms, number))
    return events + _pins(number, report.layouts or {}, now_ms)


def _layouts(state: State, number: int, report: NodeReport, now_ms: int) -> list[Event]:
    """GPUs whose settings the engine leaves alone keep what they are cut to; once it may cut them, they are let go."""
    if number >= len(state.nodes.node):
        return _pins(number, report.layouts or {}, now_ms)
    pins = state.nodes.pins.get(number, {})
    if report.layouts is None:
        mask = sum([1 << gpu for gpu, pin in pins.items() if pin.found])
        return [LayoutReleased(now_ms, number, mask, HANDS_OFF)] if mask else []
    new = {}
    for gpu, slices in report.layouts.items():
        held = tuple([PlacedSlice(piece.profile, piece.start) for piece in slices])
        same = gpu in pins and pins[gpu].found and set(pins[gpu].held) == set(held)
        # One that something else runs on is looked at again once that has gone.
        if not same and not pin_flaw(state.nodes, number, gpu, held):
            new[gpu] = slices
    return _pins(number, new, now_ms)


def _pins(number: int, layouts: Mapping[int, tuple[Slice, ...]], now_ms: int) -> list[Event]:
    if not layouts:
        return []
    mask = sum([1 << gpu for gpu in layouts])
    pieces = tuple([piece for gpu in sorted(layouts) for piece in layouts[gpu]])
    return [LayoutPinned(now_ms, number, mask, pieces, HANDS_OFF, found=True)]


def _difference(was: Node, now: Node) -> str:
    """What changed about the node."""
    if (was.cluster, was.pool) != (now.cluster, now.pool):
        return f"it is now in pool {now.pool} of cluster {now.cluster} and was in pool {was.pool} of {was.cluster}"
    return "its hardware has changed"


def _foreign(report: NodeReport) -> tuple[int, str]:
    mask = 0
    for busy in report.busy:
        mask |= 1 << busy.gpu
    users: dict[str, list[str]] = {}
    for busy in report.busy:
        user = f"pid {busy.pid} of {busy.user}" if busy.pid else busy.user
        users.setdefault(user, []).append(str(busy.gpu))
    return mask, "; ".join([f"GPU {', '.join(gpus)}: {user}" for user, gpus in users.items()])


def index_by_key(reports: Sequence[AttemptReport]) -> Mapping[str, AttemptReport]:
    """Reports by the attempt they are about."""
    return {report.key: report for report in reports}


@dataclass(frozen=True, slots=True)
class Difference:
    """Attempts about which replica and world disagree, by key. The loop mends it; this is for a person or an alert."""

    missing: tuple[str, ...] = ()
    """Said to run, and the engine does not know them."""
    orphans: tuple[str, ...] = ()
    """Run, and no job of the replica owns them."""
    strangers: tuple[str, ...] = ()
    """Known to the engine under a name that is none of ours."""

    @property
    def count(self) -> int:
        """How many there are; 0: replica and world agree."""
        return len(self.missing) + len(self.orphans) + len(self.strangers)


def compare(
    yard: str, here: Mapping[str, JobRecord], owned: Container[str], listing: Sequence[AttemptReport]
) -> Difference:
    """Recount the truth: of the attempts `here` none should be missing, and all that run should be `owned`."""
    known = {report.key for report in listing if report.phase is not Phase.UNKNOWN}
    missing = [
        key
        for key, record in here.items()
        if key not in known and record.phase in (AttemptState.RUNNING, AttemptState.SUSPENDED)
    ]
    alive = [report.key for report in listing if report.phase in _SEEN]
    strangers = [key for key in alive if parse_attempt_key(yard, key) is None]
    orphans = [key for key in alive if key not in owned and key not in strangers]
    return Difference(tuple(sorted(missing)), tuple(sorted(orphans)), tuple(sorted(strangers)))
