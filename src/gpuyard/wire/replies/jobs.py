"""Replies about jobs: one job, lists of them, why one waits, and when it will start."""

from typing import Annotated, Any, NotRequired, TypedDict, final


class Fault(TypedDict):
    """One field that is wrong."""

    field: str
    detail: str


class ProblemReply(TypedDict):
    """What is wrong and what to do (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    hint: NotRequired[str]
    errors: NotRequired[list[Fault]]


class JobReply(TypedDict):
    """The answer to a submission."""

    id: int
    label: str
    name: str
    tenant: str
    user: str
    state: str
    submitted_ms: int
    array: NotRequired[bool]
    tasks: NotRequired[int | None]
    first_task_id: NotRequired[int | None]


REQUEUED = "requeued on request"
"""How `why` of a try begins that somebody asked to end, for the job to run again."""


class TryReply(TypedDict):
    """One try of a job. A running try has no end and no outcome yet."""

    attempt: int
    started: str | None
    started_ms: int
    ended: str | None
    ended_ms: int | None
    nodes: list[str]
    gpu_indices: list[list[int]]
    """For each of the nodes, the GPUs that it held there."""
    outcome: str | None
    exit_code: int | None
    why: str


class BlockerReply(TypedDict):
    """One thing that is in a job's way; `lift` is what would remove it, as a value with its `kind`."""

    code: str
    by: str
    text: str
    lifted_by: str
    lift: dict[str, Any] | None


class TaskReply(TypedDict):
    """A task of an array."""

    id: int
    label: str
    state: str
    exit_code: int | None
    nodes: list[str]
    reason: str


class FilesReply(TypedDict):
    """What a job runs, and where it runs and writes, for its owner and administrators."""

    command: list[str]
    script: bool
    """Whether it is a script: the command is then its arguments."""
    ranks: int
    """Processes that its script starts with `srun`; 0: as many as it has tasks."""
    cwd: str
    stdout: str
    stderr: str


class RemovedReply(TypedDict):
    """When something was removed, and by whom; `retention` stands for the rule in yard.yaml."""

    at_ms: int
    by: str


class RecipeReply(TypedDict):
    """How a job is run, for its owner and administrators."""

    command: list[str]
    script: str
    cwd: str
    stdout: str
    stderr: str
    env: dict[str, str]
    removed: NotRequired[Annotated[dict[str, RemovedReply], "`environments`, if they were removed."]]


class RequestReply(TypedDict):
    """The request that would submit a job or an array again, for its owner and administrators.

    It lacks what belongs to one submission: begin, deadline, dependencies and hold.
    """

    request: Annotated[dict[str, Any], "The body of a `POST /jobs`, without fields that have their defaults."]
    removed: NotRequired[Annotated[dict[str, RemovedReply], "`environments`, if they were removed."]]


class CurveReply(TypedDict):
    """One signal of a try over time, with at most 240 points. A time without a point is a gap: nothing was measured
    then."""

    signal: str
    unit: str
    counts: bool
    """Whether each value is what a counter rose since the point before."""
    estimated: bool
    """Whether it was worked out: the GPU does not say which job computed."""
    full: int | None
    """What the job holds of it, in the same unit; of CPU time in a second. Null: nobody knows."""
    times_ms: list[int]
    values: list[int | None]


class CurvesReply(TypedDict):
    """What the last try of a job did over time; without curves: nothing was measured."""

    label: str
    attempt: int
    started_ms: int | None
    ended_ms: int | None
    curves: list[CurveReply]


class ImageUsedReply(TypedDict):
    """The image of a job's last try, and how long its container took to start; null: it did not start."""

    image: str
    digest: str
    pull_ms: int | None
    """How long it was pulled; null: it was there."""
    start_ms: int | None
    """From the start of the try until its container ran."""
    line_ms: int | None
    """From the start of the try until it wrote something."""


class UsedReply(TypedDict):
    """What a job has used so far, over all its tries."""

    run_s: int
    gpu_hours: float
    cost_usd: float | None
    """What it owes by the books; None: its GPUs have no price, or the books do not tell of it."""
    cpu_s: NotRequired[float | None]
    """CPU time of its processes; None: the engine does not know."""
    memory_mib: NotRequired[int | None]
    """The most memory at a time, of all its processes together; None: the engine does not know."""
    process_mib: NotRequired[int | None]
    """The same of its largest process."""
    image: NotRequired[ImageUsedReply]
    """Left out where it ran in no image."""


_Name = TypedDict("_Name", {"id": int, "label": str, "name": str, "tenant": str, "user": str, "class": str})
"""`class` is a word of Python: it cannot be a name in a class body."""


class ListedJob(_Name):
    """A job, live or ended, as a list has it."""

    labels: Annotated[dict[str, str], "Its labels by key; `project` is its project."]
    state: str
    attempt_state: str | None
    gpus: float
    gpus_per_task: str
    gpu_models: list[str]
    pools: Annotated[list[str], "Acceptable pools; empty: any."]
    clusters: Annotated[list[str], "Acceptable clusters, preferred one first; empty: any."]
    partition: Annotated[str, "The partition that its script named."]
    tasks: int
    nodes_min: Annotated[int, "The fewest nodes to spread it over; 0: not given."]
    cpus: float
    memory_mib: int
    nodes: list[str]
    gpu_indices: list[list[int]]
    submitted: str | None
    submitted_ms: int
    started: str | None
    started_ms: int | None
    ended: str | None
    ended_ms: int | None
    waited_ms: Annotated[
        int | None,
        "How long it waited until it started, or ended: all the time since its submission in which "
        "it did not run, including the time between tries. Null while it waits.",
    ]
    ran_ms: Annotated[int, "How long its ended tries ran, in total."]
    time_limit_s: int | None
    attempts: int
    preemptions: int
    restarts: int
    exit_code: int | None
    held: bool
    wanted: str | None
    reason: str
    array_id: int | None
    array_index: int | None
    waits_for: NotRequired[Annotated[str, "The jobs that a live job still waits for, as Slurm writes them."]]
    moved_by: NotRequired[Annotated[str, "Who moved a live job to the top of the queue; empty: nobody."]]
    used: NotRequired[UsedReply]


class KernelLineReply(TypedDict):
    """A fault that the kernel of a node wrote into its log."""

    at_ms: int
    node: str
    text: str


@final
class OneJob(ListedJob):
    """A job, live or ended. What is in its way, and when it may start, is said only of a job that waits."""

    tries: NotRequired[list[TryReply]]
    ahead: NotRequired[int]
    why: NotRequired[list[BlockerReply]]
    files: NotRequired[FilesReply]
    removed: NotRequired[
        Annotated[
            dict[str, RemovedReply],
            "What was removed of it: `environments`, `scripts`, `logs`, `folders`.",
        ]
    ]
    scheduler_log: NotRequired[
        Annotated[
            list[str],
            "What the daemons of its scheduler (Slurm) logged about it, for people who may read its "
            "output; absent if there is nothing, or if the yard cannot read these logs.",
        ]
    ]
    kernel_log: NotRequired[
        Annotated[
            list[KernelLineReply],
            "Faults that the kernels of its nodes reported during its last try, about the job or about "
            "their machines; absent if there are none, and for people who may not read its output.",
        ]
    ]
    expected_start_ms: NotRequired[int | None]
    how: NotRequired[str]
    helps: NotRequired[list[str]]


@final
class ArrayReply(_Name):
    """An array as the sum of its tasks: what they have in common, and of each what differs."""

    labels: dict[str, str]
    gpus: float
    """Of each task."""
    submitted: str | None
    submitted_ms: int
    time_limit_s: int | None
    array: bool
    state: str
    tasks: int
    states: dict[str, int]
    """How many of its tasks are in which state."""
    jobs: list[TaskReply]


JobView = Annotated[OneJob | ArrayReply, "JobView", "What a label names: a job, or an array."]


class JobsReply(TypedDict):
    """A page of jobs, and the cursor of the next page."""

    jobs: list[ListedJob]
    next_cursor: str | None


class QueueHead(TypedDict):
    """What stands above the rows."""

    seq: int
    """The last event that it shows: `/changes?after=` goes on from there."""
    at_ms: int
    running: int
    waiting: int
    set_aside: int
    columns: list[str]


class QueueReply(QueueHead):
    """Live jobs as rows.

    For a job that you may not see a row has only id, state and GPUs: texts are empty and times are 0. Only such a job
    has 0 for `submitted_ms`.
    """

    rows: list[list[Any]]


class AskedReply(TypedDict):
    """The answer to a request about a job."""

    id: int
    label: str
    verb: str
    jobs: int


class CheckpointReply(TypedDict):
    """When a job last saved its work."""

    id: int
    label: str
    checkpoint_ms: int


class OneOfMany(TypedDict):
    """The answer for one of many jobs, or the reason for a refusal."""

    id: NotRequired[int | None]
    label: str
    verb: NotRequired[str]
    jobs: NotRequired[int]
    status: int
    detail: NotRequired[str]
    hint: NotRequired[str]
    notes: NotRequired[list[str]]
    """What follows of a change."""


class ManyReply(TypedDict):
    """One answer for each job, in the order of the request."""

    results: list[OneOfMany]


class HelpReply(TypedDict):
    """What would let a job start sooner, with the options for it."""

    text: str
    flags: str
    fields: dict[str, Any]
    """The same as fields of `POST /jobs`, over those of `/jobs/{id}/request`."""


class StartReply(TypedDict):
    """When a job would start by the time limits of running jobs alone, and how that is known."""

    at_ms: int | None
    how: str


class ExplainedHead(TypedDict):
    """The job that is explained, and what others say of it."""

    job: int
    label: str
    tenant: str
    state: str
    at_ms: int
    said: str
    """Why it waits in the words of the scheduler that decides there; empty: the yard decides."""
    said_by: str
    """The name of that scheduler, such as Slurm; empty: the yard decides."""
    last_try: TryReply | None
    """For a job that has run and waits again: how that ended."""


class ExplainedReply(ExplainedHead):
    """Why a job waits. It names jobs of others only by their ids."""

    ahead: int
    waiting: int
    position: str
    blockers: list[BlockerReply]
    also: list[BlockerReply]
    judged: bool
    left_out: int
    """Jobs that wait and were left out of the judgement: there are too many to try things out with all of them."""
    start: StartReply
    helps: list[HelpReply]


class BasisReply(TypedDict):
    """What an estimate rests on."""

    history_jobs: int
    level: str
    stretch: dict[str, float]
    past_estimates: int


class EtaReply(TypedDict):
    """By when a job starts, in milliseconds since 1970: `p50` in half of the simulated runs, `p90` in nine of ten."""

    job: str | None
    task: str | None
    state: str
    now_ms: int
    started_ms: int | None
    starts_by_ms: dict[str, int | None] | None
    not_before_ms: int | None
    """Where some of the jobs ahead were left out of the runs: it starts later than that. None: none were."""
    left_out_ahead: int
    """How many of them were, because they are too many."""
    never_of_runs: int
    runs: int
    bound_ms: int | None
    how: str
    basis: BasisReply
    seed: int | None


class PlaceReply(TypedDict):
    """GPUs of a node."""

    node: str
    gpus: list[int]


class InTheWayReply(TypedDict):
    """What would be in the way of a job that is not yet submitted."""

    by: str
    text: str
    lifted_by: str


class CostReply(TypedDict):
    """What a job would cost, in micro-dollars; null: unknown."""

    gpu_model: str | None
    price_micro_usd_h: int
    charged_gpus: float
    at_most_micro_usd: int | None
    expected_micro_usd: int | None
    expected_run_ms: int | None
    expected_from: str


class DryRunReply(TypedDict):
    """What would happen to a job, and the id that it would have if it were submitted next.

    A job that could never run has `why_never` and `hint`, and none of the other fields.
    """

    would_run: bool
    why_never: NotRequired[str]
    hint: NotRequired[str]
    id: NotRequired[int]
    name: NotRequired[str]
    tenant: NotRequired[str]
    tasks: NotRequired[int]
    gpus: NotRequired[float]
    starts_now: NotRequired[bool]
    nodes: NotRequired[list[PlaceReply]]
    why: NotRequired[list[InTheWayReply]]
    helps: NotRequired[list[str]]
    cost: NotRequired[CostReply | None]
    job: NotRequired[None]
    """As in an estimate of a job that is there; here always null, like `task` and `started_ms`."""
    task: NotRequired[None]
    state: NotRequired[str]
    now_ms: NotRequired[int]
    started_ms: NotRequired[None]
    starts_by_ms: NotRequired[dict[str, int | None] | None]
    not_before_ms: NotRequired[int | None]
    left_out_ahead: NotRequired[int]
    never_of_runs: NotRequired[int]
    runs: NotRequired[int]
    bound_ms: NotRequired[int | None]
    how: NotRequired[str]
    basis: NotRequired[BasisReply | None]
    seed: NotRequired[int | None]


class ReadJobReply(TypedDict):
    """One job of a file, as the yard understands it."""

    form: str
    """What it is written for: `sbatch`, `kubernetes` or `native`."""
    line: int
    yaml: str
    """The same in native YAML."""
    request: dict[str, Any]
    """For `POST /jobs`."""
    warnings: list[str]
    """What will not be as its author may expect, with the line."""
    test_only: bool
    """It says itself that it is not to be submitted."""


class ReadJobsReply(TypedDict):
    """The jobs of a file, in its order."""

    jobs: list[ReadJobReply]


class Standing(TypedDict, total=False):
    """The state of a job that is followed."""

    state: str
    label: str
    reason: str
    place: int | None
    """In line, the first is 1; None: it is not in line."""
    starts_by_ms: int | None
    """If running jobs end when they have to; None: unknown, or it is far back in line."""
    nodes: list[str]
    submitted_ms: int
    now_ms: int


class End(TypedDict):
    """How a job that was followed ended."""

    id: int
    label: str
    state: str
    exit_code: int | None
    reason: str
    attempts: int
