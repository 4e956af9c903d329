"""What an observer tells of jobs, as events of the log. Pure: rows and a state in, moments out, one job for each try.

A row is known by its key, `label@submission`. Rows may come late, twice or in any order, from the live jobs and from
those that ended; whatever the log has already is passed over. Moments are sorted by the time they really happened at,
and an end comes before a start of the same moment: its GPUs are given on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from gpuyard.control.replica.labels import SEEN_IDS
from gpuyard.control.wording import LETS_WAIT_AGAIN, NODE_FAILED
from gpuyard.core import State
from gpuyard.core.jobs.records import JobRecord
from gpuyard.engines.observer import ForeignJob, ForeignState
from gpuyard.model import (
    Ask,
    AttemptConfirmed,
    AttemptEnded,
    AttemptStarted,
    AttemptState,
    Event,
    Grant,
    Job,
    JobCancelled,
    JobContinued,
    JobHeld,
    JobReleased,
    JobSpec,
    JobSubmitted,
    JobSuspended,
    NodeUncordoned,
    NodeUp,
    Outcome,
    Whole,
)
from gpuyard.model.units import MILLI
from gpuyard.wire.job_fields import LABEL_VALUE_MAX, PROJECT


class MomentKind(IntEnum):
    """What happened, in the order in which it counts within one moment."""

    END = 0
    SUBMIT = 1
    SETTLE = 2
    """It waits, and may or may not start."""
    START = 3
    FREEZE = 4
    """It stands still, or goes on."""
    LAST = 5
    """The end of a job that began in the same moment."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to one try."""

    at_ms: int
    kind: MomentKind
    key: str
    row: ForeignJob

    @property
    def order(self) -> tuple[int, int, str]:
        """Total: time, kind, key."""
        return self.at_ms, self.kind, self.key


def merge_rows(live: Iterable[ForeignJob], ended: Iterable[ForeignJob]) -> dict[str, ForeignJob]:
    """One row for each try. An end counts from either source.

    A row among those that ended which has not is no news: what is live is among the live ones, and what is not there
    may have been forgotten by a scheduler that crashed.
    """
    found: dict[str, ForeignJob] = {}
    for row in live:
        found[row.key] = row
    for row in ended:
        if not row.live and row.ended_ms:
            found[row.key] = row
    return found


def find_moments(
    rows: Mapping[str, ForeignJob],
    known: Mapping[str, JobRecord],
    done: Mapping[str, int],
    now_ms: int,
    apart: bool = False,
) -> list[Moment]:
    """What the log lacks, in the order in which it happened; `apart`: as `hold_events` has it."""
    found = []
    for key, row in rows.items():
        # Of one that was changed while it waited, the log has both: an end, and what it has become.
        if key not in done or key in known:
            found += _of(key, row, known.get(key), now_ms, apart)
    return sorted(found, key=lambda moment: moment.order)


def _of(key: str, row: ForeignJob, record: JobRecord | None, now_ms: int, apart: bool) -> list[Moment]:
    found = []
    ended = not row.live
    if ended and not 0 < row.ended_ms <= now_ms:
        # One that waits again may be shown for a moment with its old end: those that ended will tell. And an end
        # that is still to come is none, whatever the state is called: it is when the time limit is up.
        return []
    if record is None:
        found.append(Moment(row.submitted_ms, MomentKind.SUBMIT, key, row))
    runs = record is not None and record.phase is not None
    if row.started_ms and not runs:
        found.append(Moment(row.started_ms, MomentKind.START, key, row))
    if ended:
        begins = row.started_ms or row.submitted_ms
        same = row.ended_ms <= begins
        found.append(Moment(max(row.ended_ms, begins), MomentKind.LAST if same else MomentKind.END, key, row))
    elif row.state is ForeignState.WAITING:
        if record is None or hold_events(record, row, now_ms, apart):
            found.append(Moment(now_ms, MomentKind.SETTLE, key, row))
    elif not runs or (record is not None and suspension_events(record, row, now_ms)):
        found.append(Moment(now_ms, MomentKind.FREEZE, key, row))
    return found


# -- origins -------------------------------------------------------------------------------------------------------


def is_apart(state: State, cluster: str) -> bool:
    """Whether the yard drives other clusters beside this one, so that its jobs are kept apart from the yard's own."""
    return cluster in state.settings.observed


def parse_key(state: State, cluster: str, origin: str) -> str:
    """The key of a try of this cluster; empty: it is another's.

    Before the yard had other clusters, no cluster was named: such a try belongs to the only one that is observed.
    """
    named, colon, key = origin.rpartition(":")
    if colon:
        return key if named == cluster else ""
    return key if not is_apart(state, cluster) or len(state.settings.observed) == 1 else ""


def find_tries(state: State, cluster: str) -> dict[str, JobRecord]:
    """The live tries of a cluster that the log has, by key."""
    return {
        key: record
        for record in state.jobs.values()
        if record.job.spec.origin and (key := parse_key(state, cluster, record.job.spec.origin))
    }


# -- events --------------------------------------------------------------------------------------------------------


def submission_event(
    state: State, cluster: str, row: ForeignJob, key: str, tenant: str, at_ms: int
) -> JobSubmitted:
    """The job as the log has it."""
    number, index = row.number, row.index or 0
    if is_apart(state, cluster):
        # The yard has jobs of these ids itself.
        number, key = number + SEEN_IDS, f"{cluster}:{key}"
    spec = JobSpec(
        tenant,
        ask_of(state, cluster, row),
        klass=row.klass,
        name=row.name[:200],
        user=row.user,
        requeue=False,
        origin=key,
        labels=labels_of(row),
    )
    job_id = state.last_external_id + 1
    return JobSubmitted(at_ms, Job(job_id, spec, row.submitted_ms, row.limit_ms, 0, 0, number, index))


def labels_of(row: ForeignJob) -> tuple[tuple[str, str], ...]:
    """What it is booked for, as far as a label can have it."""
    project = row.project[:LABEL_VALUE_MAX].strip()
    return ((PROJECT, project),) if project else ()


def find_nodes(state: State, cluster: str, row: ForeignJob) -> list[int]:
    """The nodes of the cluster on which a job ran, as far as the replica has them."""
    return [state.node_number[cluster, name] for name in row.nodes if (cluster, name) in state.node_number]


def ask_of(state: State, cluster: str, row: ForeignJob) -> Ask:
    """What it asks for: as much as is told, less where no node of the replica could ever have served that."""
    nodes = max(1, len(row.nodes) or row.width)
    even = row.gpus % nodes == 0 and len({*row.gpus_on}) <= 1
    tasks = nodes if even else row.gpus
    cpu_milli, memory_mib = row.cpu_milli // tasks, row.memory_mib // tasks
    models = tuple(sorted({*row.models} & {*state.models}))
    clusters = (cluster,) if is_apart(state, cluster) else ()
    tries = [
        Ask(Whole(row.gpus // tasks), tasks, cpu_milli, memory_mib, models, clusters=clusters),
        Ask(Whole(row.gpus // tasks), tasks, clusters=clusters),
        Ask(Whole(1), max(1, row.gpus), clusters=clusters),
    ]
    kinds = {state.nodes.kind[number] for number in find_nodes(state, cluster, row)}
    for ask in tries:
        ways = state.shape_of(ask).way_on
        if ways and all(kind in ways for kind in kinds):
            return ask
    return Ask(Whole(0), clusters=clusters)


def has_changed(state: State, cluster: str, record: JobRecord, row: ForeignJob, tenant: str) -> bool:
    """Whether a job that starts is no longer what was seen waiting.

    Until then its user may give it another account, class, project or number of GPUs, and its scheduler may grant
    whole nodes or more nodes if the job allows it.
    """
    spec, shape, now = record.job.spec, record.shape, state.shape_of(ask_of(state, cluster, row))
    was = (spec.tenant, spec.klass, spec.labels, shape.gpus * shape.tasks, shape.ask.clusters)
    return was != (tenant, row.klass, labels_of(row), now.gpus * now.tasks, now.ask.clusters)


def hold_events(record: JobRecord, row: ForeignJob, at_ms: int, apart: bool) -> list[Event]:
    """A job that waits is on hold here as long as its scheduler says that it may not start.

    Of a cluster that is kept apart all jobs that wait are on hold: a job that is on hold is no candidate of `decide`.
    """
    if record.phase is not None:
        return []
    may_start = not apart and bool(row.eligible_ms) and row.eligible_ms <= at_ms
    if record.held and may_start:
        return [JobReleased(at_ms, record.id)]
    return [] if record.held or may_start else [JobHeld(at_ms, record.id)]


def suspension_events(record: JobRecord, row: ForeignJob, at_ms: int) -> list[Event]:
    """A running job that was suspended, or goes on."""
    stands = row.state is ForeignState.SUSPENDED
    if stands and record.phase in (AttemptState.STARTING, AttemptState.RUNNING):
        return [JobSuspended(at_ms, record.id)]
    if not stands and record.phase is AttemptState.SUSPENDED:
        return [JobContinued(at_ms, record.id)]
    return []


def start_events(
    state: State, cluster: str, record: JobRecord, row: ForeignJob, at_ms: int, by: str
) -> list[Event]:
    """The start, with nodes that the replica held closed opened first: something runs there. `by` is the observer."""
    events: list[Event] = []
    if record.held:
        events.append(JobReleased(at_ms, record.id))
    for number in find_nodes(state, cluster, row):
        if state.nodes.down[number]:
            events.append(NodeUp(at_ms, number))
        if state.nodes.cordoned[number]:
            events.append(NodeUncordoned(at_ms, number, by))
    given = grants(state, cluster, record, row)
    if not given:
        return []
    attempt = record.attempt + 1
    return [
        *events,
        AttemptStarted(at_ms, record.id, attempt, given),
        AttemptConfirmed(at_ms, record.id, attempt, row.started_ms if row.started_ms < at_ms else 0),
    ]


def grants(state: State, cluster: str, record: JobRecord, row: ForeignJob) -> tuple[Grant, ...]:
    """What it holds on each node. Which GPUs those are is not told: any that are free here stand for them.

    Where the replica has less free than was given out (cores may be shared, and an end may be told later than a start),
    what is free is entered; what the job is charged for is what it asked for, in any case.
    """
    nodes = find_nodes(state, cluster, row)
    if not nodes:
        return ()
    shape = record.shape
    if any(state.nodes.kind[number] not in shape.way_on for number in nodes):
        return ()
    count = len(nodes)
    gpus, spare = divmod(shape.gpus * shape.tasks, count)
    tasks, odd = divmod(shape.tasks, count)
    found = []
    told = row.gpus_on if len(row.gpus_on) == count and len({*row.gpus_on}) > 1 else ()
    for place, number in enumerate(nodes):
        wanted = told[place] if told else gpus + (place < spare)
        cpu_milli = min(shape.cpu_milli * shape.tasks // count, max(0, state.nodes.cpu_free[number]))
        memory_mib = min(shape.memory_mib * shape.tasks // count, max(0, state.nodes.memory_free[number]))
        mask = _lowest(state.nodes.free_mask[number], wanted)
        here = told[place] if told else tasks + (place < odd)
        found.append(Grant(number, mask, MILLI, cpu_milli, memory_mib, max(1, here)))
    return tuple(found)


def _lowest(mask: int, count: int) -> int:
    """The lowest `count` bits of a mask; all of them if it has fewer."""
    found = 0
    for _ in range(count):
        lowest = mask & -mask
        if not lowest:
            break
        found |= lowest
        mask ^= lowest
    return found


def end_event(record: JobRecord, row: ForeignJob, at_ms: int, scheduler: str) -> Event:
    """The end, as the log calls it."""
    if record.phase is None:
        return JobCancelled(at_ms, record.id)
    outcome, why = row.outcome or Outcome.FAILED, row.why
    if row.again:
        failed = outcome is Outcome.NODE_FAIL
        why = NODE_FAILED if failed else f"{row.why} by {scheduler}, {LETS_WAIT_AGAIN}"
    ended_ms = row.ended_ms if record.started_ms <= row.ended_ms < at_ms else 0
    return AttemptEnded(at_ms, record.id, record.attempt, outcome, 0, row.exit_code, why, ended_ms)


def forgotten_event(record: JobRecord, at_ms: int, scheduler: str) -> Event:
    """A job of which nothing is told any more."""
    if record.phase is None:
        return JobCancelled(at_ms, record.id)
    why = f"{scheduler} no longer knows it, and did not tell how it ended"
    return AttemptEnded(at_ms, record.id, record.attempt, Outcome.NODE_FAIL, 0, 0, why)
