"""The lines of the append-only log. State is a fold over them; nothing else changes it.

Times are in the event because the fold has no clock. An event says what happened, never what follows from it. The
events that every job has are tuples, because a simulation makes millions of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import NamedTuple

from gpuyard.model.fleet import Capability, Node
from gpuyard.model.jobs import After, AfterKind, Ask, Job, JobSpec, Outcome, StopCause, Verb
from gpuyard.model.mig import Slice
from gpuyard.model.placement import Taint
from gpuyard.model.plans import Grant
from gpuyard.model.settings import Settings

_FIELDS = [field.name for field in fields(JobSpec)]
_VALUES, _AFTER = attrgetter(*_FIELDS), _FIELDS.index("after")


@dataclass(frozen=True, slots=True)
class ConfigSet:
    """These settings are in force from now on."""

    at_ms: int
    settings: Settings
    by: str = ""
    """The user behind the change."""
    number: int = 0
    """The version of the configuration that they come from; 0: none, as in a simulation."""
    source: str = ""
    """Hash of the text that they were read from."""


@dataclass(frozen=True, slots=True)
class NodeAdded:
    """A node joined the fleet and gets the next number."""

    at_ms: int
    node: Node


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node has different hardware: it must be empty. Or its GPUs have a new name: the attempts there stay."""

    at_ms: int
    number: int
    node: Node


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """The engine of a cluster said what it cannot do. It can do everything else."""

    at_ms: int
    cluster: str
    lacks: tuple[Capability, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDown:
    """A node is down. The end of each attempt there is an event of its own."""

    at_ms: int
    node: int
    why: str


@dataclass(frozen=True, slots=True)
class NodeUp:
    """A node is up again."""

    at_ms: int
    node: int


@dataclass(frozen=True, slots=True)
class NodeCordoned:
    """No new attempt may start on a node."""

    at_ms: int
    node: int
    why: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class NodeMarked:
    """A person set labels and taints of a node. What was set before stays, unless it is set otherwise or reset."""

    at_ms: int
    node: int
    labels: tuple[tuple[str, str], ...] = ()
    """Set, by key."""
    unlabelled: tuple[str, ...] = ()
    """Keys of labels that it no longer has, whatever the configuration says."""
    taints: tuple[Taint, ...] = ()
    """Set, by key and effect."""
    untainted: tuple[Taint, ...] = ()
    """Taints that it no longer has, whatever the configuration says; their values do not matter."""
    reset: bool = False
    """Whether first everything is as the configuration says."""
    by: str = ""


@dataclass(frozen=True, slots=True)
class NodeUncordoned:
    """A cordoned node takes new jobs again."""

    at_ms: int
    node: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class GpusTaken:
    """These GPUs of a node, and no others of it, are used from outside the yard: they are not free."""

    at_ms: int
    node: int
    gpus: int
    """As a bit mask; 0: none any more."""
    why: str


@dataclass(frozen=True, slots=True)
class LayoutPinned:
    """These GPUs of a node keep this layout of MIG slices until they are released, whatever jobs ask for."""

    at_ms: int
    node: int
    gpus: int
    """As a bit mask. A GPU without slices stays whole."""
    slices: tuple[Slice, ...]
    by: str = ""
    found: bool = False
    """Whether the GPUs were found like this and the yard leaves them alone (`card_settings: leave`)."""


@dataclass(frozen=True, slots=True)
class LayoutReleased:
    """These GPUs are cut on demand again."""

    at_ms: int
    node: int
    gpus: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class LayoutMade:
    """The engine has made the pinned layouts of these GPUs, or could not: then `why` says what is wrong."""

    at_ms: int
    node: int
    gpus: int
    why: str = ""
    took_ms: int = 0


class JobSubmitted(NamedTuple):
    """A job was accepted."""

    at_ms: int
    job: Job


class TasksSubmitted(NamedTuple):
    """Tasks of an array were accepted: one event instead of a `JobSubmitted` for each.

    Their ids are consecutive. A long array is several of these events, written together.
    """

    at_ms: int
    job: Job
    """The first task."""
    indices: tuple[int, ...]
    """The index of each task in the array."""
    own: tuple[tuple[After, ...], ...] = ()
    """The dependencies of each task besides the common ones; empty: none, or as `beside` says."""
    beside: tuple[After, ...] = ()
    """The own dependencies of the first task; for each later task the ids in them are one higher."""
    at_once: int = 0
    """How many tasks of the array may run at a time; 0: all."""
    held: bool = False
    """Whether the tasks may not start until they are released."""

    def jobs(self) -> Iterator[Job]:
        """Each task as a job."""
        first_id, spec, array_id = self.job.id, self.job.spec, self.job.array_id
        # As `Job(…)` does, in half the time.
        new = tuple.__new__
        if not (self.own or self.beside or self.at_once):
            _id, _spec, at_ms, limit_ms, deadline_ms, begin_ms, _array_id, _index = self.job
            for job_id, index in enumerate(self.indices, first_id):
                yield new(Job, (job_id, spec, at_ms, limit_ms, deadline_ms, begin_ms, array_id, index))
            return
        times, values = self.job[2:6], _VALUES(spec)
        make: Callable[..., JobSpec] = JobSpec
        before, behind = values[:_AFTER], values[_AFTER + 1 :]
        beside = [(each.kind, each.job_id, each.delay_ms) for each in self.beside]
        for place, index in enumerate(self.indices):
            job_id = first_id + place
            after = self.own[place] if self.own else ()
            if beside:
                after = tuple(
                    [new(After, (kind, other_id + place, delay_ms, 0)) for kind, other_id, delay_ms in beside]
                )
            if 0 < self.at_once < job_id - array_id:
                # As many chains as tasks may run at a time; each task waits for the one before it in its chain.
                after += (After(AfterKind.ENDED, job_id - self.at_once),)
            # Like `replace`, in half the time.
            one = make(*before, spec.after + after, *behind) if after else spec
            yield new(Job, (job_id, one, *times, array_id, index))


@dataclass(frozen=True, slots=True)
class JobChanged:
    """A job is another one from now on: what it asks for, its times, what it waits for, or its place in its line.

    A job with an attempt asks for the same as before: only its limit, its name and its labels may be others.
    """

    at_ms: int
    job: Job
    """As it is now. Id, user, recipe and time of submission are as before."""
    joined_ms: int = 0
    """When it went to the end of its line, because it asks for more than before; 0: it never did."""
    nice_ms: int = 0
    """By how much later than that, or than its submission, its place in its line is; negative: earlier."""
    by: str = ""
    """The user behind the change."""
    what: str = ""
    """What was asked for, in words."""

    @property
    def job_id(self) -> int:
        """The job that it is about."""
        return self.job.id


@dataclass(frozen=True, slots=True)
class JobHeld:
    """A pending job may not start until it is released."""

    at_ms: int
    job_id: int


@dataclass(frozen=True, slots=True)
class JobReleased:
    """The job is no longer on hold."""

    at_ms: int
    job_id: int


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """A pending job ends here. A running one is stopped first (`AttemptStopping`)."""

    at_ms: int
    job_id: int


@dataclass(frozen=True, slots=True)
class JobSuspended:
    """A running job was suspended and keeps its GPUs."""

    at_ms: int
    job_id: int


@dataclass(frozen=True, slots=True)
class JobContinued:
    """A suspended job runs on."""

    at_ms: int
    job_id: int


@dataclass(frozen=True, slots=True)
class Requested:
    """A user requested something for a job.

    A request may be written at any time, so it is always valid: one that has become impossible meanwhile changes
    nothing. A request for a running attempt is noted, and the control loop carries it out.
    """

    at_ms: int
    job_id: int
    verb: Verb
    by: str = ""


class AttemptStarted(NamedTuple):
    """An attempt was committed: from here on it holds its grants."""

    at_ms: int
    job_id: int
    attempt: int
    grants: tuple[Grant, ...]


class AttemptConfirmed(NamedTuple):
    """The engine has seen the attempt run."""

    at_ms: int
    job_id: int
    attempt: int
    started_ms: int = 0
    """When another scheduler started it, if it is told later; 0: with the event of its start."""


@dataclass(frozen=True, slots=True)
class AttemptUnknown:
    """The engine no longer knows the attempt. It may still run, so it keeps its grants."""

    at_ms: int
    job_id: int
    attempt: int


@dataclass(frozen=True, slots=True)
class AttemptStopping:
    """The attempt is being stopped; it holds its grants until its end is reported."""

    at_ms: int
    job_id: int
    attempt: int
    cause: StopCause
    for_job: int = 0


class AttemptEnded(NamedTuple):
    """The attempt is gone and its grants are free.

    `saved_ms` is the work that a next attempt need not do again, over all attempts so far.
    """

    at_ms: int
    job_id: int
    attempt: int
    outcome: Outcome
    saved_ms: int = 0
    exit_code: int = 0
    why: str = ""
    ended_ms: int = 0
    """When it really ended, if that was seen only later; 0: at `at_ms`. It held its grants until `at_ms`."""
    for_good: bool = False
    """Whether another attempt would fail alike, so that there is none: its image does not exist."""


@dataclass(frozen=True, slots=True)
class CheckpointSeen:
    """The attempt saved its work at `saved_at_ms`."""

    at_ms: int
    job_id: int
    attempt: int
    saved_at_ms: int
    by: str = ""
    """The reporting user; empty: the engine saw it."""


@dataclass(frozen=True, slots=True)
class EarmarkSet:
    """These grants are kept for the job."""

    at_ms: int
    job_id: int
    grants: tuple[Grant, ...]
    expires_ms: int


@dataclass(frozen=True, slots=True)
class EarmarkDropped:
    """The job's earmark is gone."""

    at_ms: int
    job_id: int


@dataclass(frozen=True, slots=True)
class DemandLearned:
    """The mix of asks to expect, each with an integer weight (used by fragmentation-aware placement)."""

    at_ms: int
    asks: tuple[tuple[Ask, int], ...]


@dataclass(frozen=True, slots=True)
class TokenMade:
    """A user got a token. Changes nothing for the scheduler: it is here because the log is the audit trail."""

    at_ms: int
    token: str
    user: str
    role: str
    tenant: str
    expires_ms: int
    by: str
    subject: str = ""
    """For a login: the identity provider and its own name for the user."""


@dataclass(frozen=True, slots=True)
class TokenRevoked:
    """A token is no longer accepted."""

    at_ms: int
    token: str
    user: str
    by: str


@dataclass(frozen=True, slots=True)
class NameUnbound:
    """A name no longer belongs to the person who first logged in with it: the next login binds it."""

    at_ms: int
    user: str
    by: str


@dataclass(frozen=True, slots=True)
class MonthClosed:
    """The books of a month stand from here on: what is learned about it later is a correction in an open month.

    Months before it that are still open are closed with it.
    """

    at_ms: int
    month: str
    """`2026-11`."""
    by: str = ""


@dataclass(frozen=True, slots=True)
class AttemptMeasured:
    """What an attempt was seen to use in a part of one clock hour. Events of one attempt add up.

    There is one for each hour, and one for the rest at the end. Samples that come later are told in one more, which has
    what they add: nothing that was told is told again, or taken back in place.
    """

    at_ms: int
    job_id: int
    attempt: int
    from_ms: int
    until_ms: int
    held_gpu_ms: int
    """GPU time that it had, of all its GPUs together; a share or a slice counts as the part of a GPU that it is."""
    measured_gpu_ms: int = 0
    """How much of that somebody looked at."""
    used_gpu_ms: int = 0
    """How much of that it used."""
    estimated_gpu_ms: int = 0
    """How much of what it used is an estimate: the GPU did not say whose work it did."""
    spans: tuple[tuple[int, int], ...] = ()
    """When it was measured: times that no event told of before."""
    energy_mj: int | None = None
    """Of its GPUs, of a shared one its share, in millijoules; None: nobody measured it."""
    cpu_ms: int | None = None
    gpu_memory_mib: int | None = None
    """The most at a time."""
    memory_mib: int | None = None


class WaitLine(NamedTuple):
    """What some jobs that are alike waited for one cause, in a part of one clock hour."""

    tenant: str
    pool: str
    """The pools whose nodes would do, with commas; empty: those of several pools, without a choice."""
    gpu_milli: int
    """What each of the jobs asked for."""
    cause: str
    """A `WaitCause`."""
    gpu_ms: int
    """GPUs asked for times how long they were waited for, of all these jobs together."""
    job_ms: int
    """How long all these jobs together waited."""
    user: str = ""
    name: str = ""
    """The name of the jobs; empty: names beyond the first ones of a user."""


@dataclass(frozen=True, slots=True)
class WaitsSeen:
    """What jobs waited for in a part of one clock hour, as the leader saw it. Events add up."""

    at_ms: int
    from_ms: int
    until_ms: int
    lines: tuple[WaitLine, ...]


@dataclass(frozen=True, slots=True)
class JobEntered:
    """Somebody came into a job that runs: its terminal, a shell beside it, a port or files of it."""

    at_ms: int
    job_id: int
    how: str
    by: str


@dataclass(frozen=True, slots=True)
class BudgetReached:
    """So much of a named budget, in percent, is spent in its window. Told once for each threshold of a window."""

    at_ms: int
    budget: str
    percent: int


class ClockSet(NamedTuple):
    """The machine's clock was set ahead, and the log follows it: nothing happened in the `by_ms` before `at_ms`.

    Attempts that run have not run in that time: their times move with the clock.
    """

    at_ms: int
    by_ms: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed: periods and budget windows close, waiting jobs reach their begin time, earmarks expire."""

    at_ms: int


SchedulingEvent = (
    ConfigSet
    | NodeAdded
    | NodeChanged
    | EngineSeen
    | NodeDown
    | NodeUp
    | NodeCordoned
    | NodeUncordoned
    | NodeMarked
    | GpusTaken
    | LayoutPinned
    | LayoutReleased
    | LayoutMade
    | JobSubmitted
    | TasksSubmitted
    | JobChanged
    | JobHeld
    | JobReleased
    | JobCancelled
    | JobSuspended
    | JobContinued
    | Requested
    | AttemptStarted
    | AttemptConfirmed
    | AttemptUnknown
    | AttemptStopping
    | AttemptEnded
    | CheckpointSeen
    | EarmarkSet
    | EarmarkDropped
    | DemandLearned
    | BudgetReached
    | ClockSet
    | Ticked
)
"""What the core folds: jobs, nodes, settings, time."""

AccessEvent = TokenMade | TokenRevoked | NameUnbound | JobEntered
"""Logins, tokens, and who came into which job. The core notes the time of these events and nothing else."""

BookEvent = MonthClosed | AttemptMeasured | WaitsSeen
"""What concerns the books alone. The core notes the time of these events and nothing else."""

Event = SchedulingEvent | AccessEvent | BookEvent
"""Everything that a log can hold, by domain."""
