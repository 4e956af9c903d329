"""Jobs, what they ask for, and the states they and their attempts pass through."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from gpuyard.model.fleet import Level
from gpuyard.model.placement import Term, Toleration


class Isolation(Enum):
    """How far apart sharers of one GPU are kept."""

    STRICT = "strict"
    """A MIG slice or a whole GPU: its own memory and bandwidth, and no faults of others reach it."""
    SHARED = "shared"
    """A capped share of a GPU beside others."""
    ANY = "any"
    """Whichever is cheapest."""


@dataclass(frozen=True, slots=True)
class Whole:
    """`count` whole GPUs of one node."""

    count: int


@dataclass(frozen=True, slots=True)
class Milli:
    """`count` shares of `milli` thousandths, each on a different GPU of one node."""

    count: int
    milli: int
    user: str = ""
    """The user of the shares, if shares of one GPU belong to one user; empty: it does not matter."""


@dataclass(frozen=True, slots=True)
class Mig:
    """`count` MIG slices of a profile such as `1g.18gb`."""

    count: int
    profile: str


@dataclass(frozen=True, slots=True)
class Memory:
    """`count` GPUs, or parts of one, with at least this much memory and this isolation."""

    count: int
    memory_mib: int
    isolation: Isolation


GpuRequest = Whole | Milli | Mig | Memory


def request_text(request: GpuRequest) -> str:
    """What one task asks for, in short: `4`, `0.25`, `2x0.25`, `1g.18gb`, `2x1g.18gb`; empty: by memory."""
    match request:
        case Whole(count):
            return str(count)
        case Milli(1, milli) if milli < 1000:
            return thousandths_text(milli)
        case Milli(count, milli):
            return f"{count}x{thousandths_text(milli)}"
        case Mig(count, profile):
            return profile if count == 1 else f"{count}x{profile}"
    return ""


def thousandths_text(thousandths: int) -> str:
    """An integer of thousandths as a decimal number, exactly."""
    whole, part = divmod(thousandths, 1000)
    return f"{whole}.{part:03d}".rstrip("0") if part else str(whole)


FIRST_EXTERNAL_ID = 1_000_000_000_000
"""Ids of jobs seen in another system start here, so that a smaller number is always that system's own id."""


def newest_first(job_id: int) -> tuple[bool, int]:
    """The order of lists: the yard's own jobs before those of other schedulers, each from the newest on."""
    return job_id >= FIRST_EXTERNAL_ID, -job_id


@dataclass(frozen=True, slots=True)
class Command:
    """A program and its arguments."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """A container image with its arguments."""

    reference: str
    argv: tuple[str, ...] = ()


Work = Command | Image


@dataclass(frozen=True, slots=True)
class Ask:
    """The resources of a job: `tasks` tasks, all or none, each with these GPUs, cores and memory on one node."""

    gpus: GpuRequest
    tasks: int = 1
    cpu_milli: int = 0
    memory_mib: int = 0
    models: tuple[str, ...] = ()
    """Suitable GPU models; empty: any."""
    pools: tuple[str, ...] = ()
    """Suitable pools; empty: any."""
    nodes_max: int = 0
    """The most nodes over which it may be spread; 0: as few as the fleet's node sizes allow."""
    nodes_min: int = 0
    """The fewest nodes over which its tasks are spread; 0: it does not matter."""
    on_nodes: tuple[str, ...] = ()
    """Suitable nodes; empty: any."""
    not_nodes: tuple[str, ...] = ()
    """Nodes that are excluded."""
    features: tuple[tuple[str, ...], ...] = ()
    """What its nodes must have: one feature of each group."""
    clusters: tuple[str, ...] = ()
    """Suitable clusters, the preferred one first; empty: any, as the placement chooses."""
    images: bool = False
    """Whether it runs in images."""
    selects: tuple[Term, ...] = ()
    """What the labels of its nodes must be: one of these alternatives; empty: it does not matter."""
    prefers: tuple[tuple[int, Term], ...] = ()
    """Labels that are better than others, each with its weight: nodes with the highest sum are tried first."""
    tolerates: tuple[Toleration, ...] = ()
    """The taints that it puts up with."""
    level: Level | None = None
    """The level of the fabric within which its nodes are to be; None: as near as the placement finds them."""
    level_required: bool = False
    """Whether it waits until its nodes can be that near; otherwise it takes others where there are none."""
    level_ms: int = 0
    """For how long after the submission the level is required; 0: for good."""
    one_domain: bool = False
    """Whether the GPUs of each task are to be in one NUMA domain, with its cores and its memory."""


class AfterKind(Enum):
    """What must happen to another job first."""

    STARTED = "after"
    """It has started, or ended without a start."""
    ENDED = "afterany"
    """It has ended in any way."""
    COMPLETED = "afterok"
    """It has completed."""
    FAILED = "afternotok"
    """It has ended in any other way."""
    ALONE = "singleton"
    """All earlier jobs of the same name and user have ended; names no other job."""


class After(NamedTuple):
    """A job waits for another, or for all tasks of an array, which are one dependency and not one for each task."""

    kind: AfterKind
    job_id: int
    """The id of the other job or of the array."""
    delay_ms: int = 0
    """How long after the other job's start; only for `STARTED`."""
    tasks: int = 0
    """How many tasks the array has (their ids follow its own); 0: it is a single job."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What was asked for, without the numbers of one submission. Equal specs may share one value."""

    tenant: str
    ask: Ask
    klass: str = ""
    """Name of the class; empty: the default class."""
    name: str = ""
    work: Work | None = None
    checkpoint_ms: int = 0
    """Interval at which it saves its work; 0: never."""
    restart_cost_ms: int = 0
    """Time it needs after a restart before it makes progress again."""
    user: str = ""
    """The submitter, a user."""
    recipe: str = ""
    """Hash of how to run it; empty: there is none, as in a simulation."""
    retries: int = 0
    """How often it may be retried after it failed by itself."""
    requeue: bool = True
    """Whether it is requeued when its node is lost."""
    after: tuple[After, ...] = ()
    """Its dependencies."""
    after_one: bool = False
    """Whether one of them is enough."""
    partition: str = ""
    """The names of its pools as submitted; empty: the pools' own names."""
    origin: str = ""
    """Its id and time of submission in the other system, `1234@1794738605000`, after `CLUSTER:` where the yard has
    other clusters too; empty: it was submitted here."""
    labels: tuple[tuple[str, str], ...] = ()
    """Free labels for reports, by key; the project is one of them."""
    recipe_bytes: int = 0
    """The size of the recipe; 0: unknown, as in logs of earlier releases."""
    groups: tuple[str, ...] = ()
    """The groups of its user that walls of pools named when it was submitted."""

    @property
    def elsewhere(self) -> bool:
        """Whether a cluster beside those of the yard schedules it by itself."""
        return bool(self.origin and self.ask.clusters)


class Job(NamedTuple):
    """One submission. A task of an array has its own id and knows the array's.

    A tuple, like everything that a simulation makes millions of: frozen, and made in a quarter of the time.
    """

    id: int
    spec: JobSpec
    submitted_ms: int
    limit_ms: int = 0
    """Time limit of an attempt; 0: that of its class."""
    deadline_ms: int = 0
    """When it should be done; 0: it has no deadline."""
    begin_ms: int = 0
    """The earliest start."""
    array_id: int = 0
    array_index: int = 0

    @property
    def label(self) -> str:
        """The id people use: `17`, or `12_3` for task 3 of array 12."""
        if self.spec.origin:
            return self.spec.origin.partition("@")[0]
        return f"{self.array_id}_{self.array_index}" if self.array_id else str(self.id)


class JobState(Enum):
    """The state of a job."""

    PENDING = "PENDING"
    """Waits: for room, quota, a time, or because it is held."""
    RUNNING = "RUNNING"
    """Has an attempt that holds GPUs."""
    SUSPENDED = "SUSPENDED"
    """Frozen; it keeps its GPUs."""
    COMPLETED = "COMPLETED"
    """Ended by itself with exit code 0."""
    FAILED = "FAILED"
    """Ended by itself with another exit code, or can never run."""
    CANCELLED = "CANCELLED"
    """Ended on request."""
    TIMEOUT = "TIMEOUT"
    """Reached its time limit."""
    NODE_FAIL = "NODE_FAIL"
    """Lost its node and may not be requeued."""
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    """Killed for memory."""

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self not in _LIVE


_LIVE = frozenset({JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED})


class AttemptState(Enum):
    """The state of a job's current attempt."""

    STARTING = "STARTING"
    """Decided and committed: it holds its GPUs, the engine has not confirmed it."""
    RUNNING = "RUNNING"
    """The engine has seen it run."""
    SUSPENDED = "SUSPENDED"
    """Frozen; it keeps its GPUs."""
    STOPPING = "STOPPING"
    """Being stopped; it holds its GPUs until the engine confirms that it has ended."""
    UNKNOWN = "UNKNOWN"
    """The engine does not know it. It may still run, so it still holds its GPUs."""


class Outcome(Enum):
    """How an attempt ended."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    PREEMPTED = "PREEMPTED"
    """Made room for another job; this one waits again."""
    NODE_FAIL = "NODE_FAIL"
    """Lost a node; the job waits again."""


class Verb(Enum):
    """What users request for an existing job."""

    CANCEL = "cancel"
    HOLD = "hold"
    """Do not start it."""
    RELEASE = "release"
    """End the hold."""
    SUSPEND = "suspend"
    """Freeze it; it keeps its GPUs."""
    CONTINUE = "continue"
    """Let a suspended job go on."""
    REQUEUE = "requeue"
    """Stop it and let it wait again."""
    TOP = "top"
    """Move it ahead of all other waiting jobs, whatever the order says."""
    BACK = "back"
    """Put it back in its place in the order."""


class StopCause(Enum):
    """Why an attempt is stopped."""

    RECLAIM = "reclaim"
    """Its tenant borrowed, and the owner wants its guarantee back."""
    CLASS = "class"
    """A job of a higher class needs the room."""
    SHORTER = "shorter"
    """A much shorter job needs the room (policy `srtf`)."""
    CANCEL = "cancel"
    """A user cancelled the job."""
    REQUEUE = "requeue"
    """A user requeued the job."""
    TAINT = "taint"
    """A node that it runs on has a taint that stops jobs, and it does not tolerate it, or no longer."""

    @property
    def preempts(self) -> bool:
        """Whether the scheduler decided it for another job."""
        return self in (StopCause.RECLAIM, StopCause.CLASS, StopCause.SHORTER)
