"""Replies, for the API's description: nothing is checked against these on the way out, tests do that."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gpuyard.api.ahead_replies import (
    BlockerReply,
    DryRunReply,
    EtaReply,
    ExplainedReply,
    ShareReply,
    TryReply,
)
from gpuyard.api.config_replies import (
    AppliedReply,
    ConfigReply,
    ConfigVersionsReply,
    DifferenceReply,
    PreviewReply,
    TenantsReply,
)
from gpuyard.api.partition_replies import (
    DefragReply,
    GpusReply,
    MigPlanReply,
    MigPlanRequest,
    MigReply,
    PinnedReply,
    PinRequest,
    ReleasedReply,
    ReleaseRequest,
)
from gpuyard.api.schemas import (
    CheckpointRequest,
    ConfigRequest,
    DrainRequest,
    JobReply,
    JobRequest,
    ManyRequest,
    OidcLogin,
    TokenRequest,
)
from gpuyard.model.units import NO_LIMIT_MS, SECOND_MS

Milliseconds = int


class Fault(BaseModel):
    """One field that is wrong."""

    field: str
    detail: str


class ProblemReply(BaseModel):
    """What is wrong and what to do (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    hint: str = ""
    errors: list[Fault] = []


class TaskReply(BaseModel):
    """A task of an array."""

    id: int
    label: str
    state: str
    exit_code: int | None
    nodes: list[str]
    reason: str


class FilesReply(BaseModel):
    """What a job runs, where it runs and writes, for its owner and administrators."""

    command: list[str]
    script: bool
    """Whether it is a script: the command is then its arguments."""
    ranks: int
    """Processes that its script starts with `srun`; 0: as many as it has tasks."""
    cwd: str
    stdout: str
    stderr: str


class RemovedReply(BaseModel):
    """When something was removed, and by whom: `retention` is what yard.yaml says."""

    at_ms: Milliseconds
    by: str


class RecipeReply(BaseModel):
    """How a job is run, for its owner and administrators."""

    command: list[str]
    script: str
    cwd: str
    stdout: str
    stderr: str
    env: dict[str, str]
    removed: dict[str, RemovedReply] = Field(
        default={}, description="`environments`, where they are no longer kept."
    )


class UsedReply(BaseModel):
    """What a job has used so far, over all its tries."""

    run_s: int
    gpu_hours: float
    cost_usd: float | None
    """None: the price of its GPUs is not known."""
    cpu_s: float | None = None
    """CPU time of its processes; None: the engine does not know."""
    memory_mib: int | None = None
    """The most memory at a time, of all its processes together; None: the engine does not know."""
    process_mib: int | None = None
    """The same of its largest process."""


class JobView(BaseModel):
    """A job, live or ended, or an array as the sum of its tasks, which has fewer of these fields."""

    id: int
    label: str
    name: str
    tenant: str
    user: str
    klass: str = Field(alias="class")
    state: str
    attempt_state: str | None = None
    gpus: float
    gpus_per_task: str = ""
    gpu_models: list[str] = []
    pools: list[str] = Field(default=[], description="Pools that will do; empty: any.")
    partition: str = Field(default="", description="The partition that it named, as its script calls it.")
    tasks: int
    nodes_min: int = Field(default=0, description="Nodes it is spread over at least; 0: not said.")
    cpus: float = 0
    memory_mib: int = 0
    nodes: list[str] = []
    gpu_indices: list[list[int]] = []
    submitted: str | None
    submitted_ms: Milliseconds
    started: str | None = None
    started_ms: Milliseconds | None = None
    ended: str | None = None
    ended_ms: Milliseconds | None = None
    waited_ms: int | None = Field(
        default=None,
        description="How long it waited until it started, or ended: all the time since its submission in which it did "
        "not run. Of a job that ran more than once, the time between its tries counts. Null while it waits.",
    )
    ran_ms: int = Field(default=0, description="How long its tries ran that have ended, all together.")
    time_limit_s: int | None
    attempts: int = 0
    preemptions: int = 0
    restarts: int = 0
    tries: list[TryReply] = []
    exit_code: int | None = None
    waits_for: str = ""
    held: bool = False
    moved_by: str = Field(default="", description="Who moved it to the top of the line; empty: nobody did.")
    wanted: str | None = None
    reason: str = ""
    array_id: int | None = None
    array_index: int | None = None
    array: bool = False
    states: dict[str, int] = {}
    jobs: list[TaskReply] = []
    ahead: int = 0
    why: list[BlockerReply] = []
    files: FilesReply | None = None
    removed: dict[str, RemovedReply] = Field(
        default={}, description="What is no longer kept of it: `environments`, `scripts`, `logs`, `folders`."
    )
    used: UsedReply | None = None
    expected_start_ms: Milliseconds | None = None
    how: str = ""
    helps: list[str] = []


class JobsReply(BaseModel):
    """A page of jobs, and where the next one begins."""

    jobs: list[JobView]
    next_cursor: str | None


class QueueReply(BaseModel):
    """Live jobs as rows. A job of a tenant that is not yours has its id, state and GPUs, and nothing else."""

    seq: int
    """The last event that it shows: `/changes?after=` goes on from there."""
    at_ms: Milliseconds
    running: int
    waiting: int
    set_aside: int
    columns: list[str]
    rows: list[list[Any]]


class NodeReply(BaseModel):
    """A node, and what is free on it."""

    name: str
    cluster: str
    pool: str
    state: str
    why: str
    gpu_model: str
    gpus: int
    gpus_free: float
    gpus_foreign: int
    foreign: str
    gpus_pinned: int
    cpus: float
    cpus_free: float
    memory_mib: int
    memory_mib_free: int
    features: list[str]
    jobs: list[str]
    slices: list[list[Any]]


class ScriptNamesReply(BaseModel):
    """Names that scripts have for pools, tenants and classes, as yard.yaml maps them."""

    partitions: dict[str, list[str]]
    accounts: dict[str, str]
    """Those of tenants that the asker may know of."""
    qos: dict[str, str]


class NodesReply(BaseModel):
    """The fleet."""

    nodes: list[NodeReply]
    script_names: ScriptNamesReply


class NodeGpusReply(BaseModel):
    """A node, GPU by GPU: how much of it is taken, by which tenant and which job."""

    name: str
    state: str
    why: str
    gpu_model: str
    gpus: list[list[Any]]


class TenantUseReply(BaseModel):
    """What a tenant holds and wants."""

    tenant: str
    weight: int
    running: int
    waiting: int
    gpus: float
    gpus_wanted: float
    guarantee: float
    limit: float | None


class OverviewReply(BaseModel):
    """The whole yard, for a screen."""

    at_ms: Milliseconds
    running: int
    waiting: int
    set_aside: int
    nodes_in_all: int
    nodes: list[NodeGpusReply]
    tenants: list[TenantUseReply]


class DrainReply(BaseModel):
    """Whether a node takes new work."""

    node: str
    drained: bool


class AskedReply(BaseModel):
    """The answer to a request about a job."""

    id: int
    label: str
    verb: str
    jobs: int


class CheckpointReply(BaseModel):
    """When a job has saved its work last."""

    id: int
    label: str
    checkpoint_ms: Milliseconds


class OneOfMany(BaseModel):
    """The same for one of many jobs, or why not."""

    id: int | None = None
    label: str
    verb: str = ""
    jobs: int = 0
    status: int
    detail: str = ""
    hint: str = ""


class ManyReply(BaseModel):
    """An answer for each, in their order."""

    results: list[OneOfMany]


class SnapshotReply(BaseModel):
    """The whole state."""

    version: str
    seq: int
    state: dict[str, Any]


class RightReply(BaseModel):
    """A role and where it holds; an empty tenant is the whole yard."""

    role: str
    tenant: str


class MeReply(BaseModel):
    """The asker, as the yard sees them."""

    user: str
    runs_as: str | None
    """The user of the machine for their jobs; None: they run none."""
    rights: list[RightReply]
    home: str
    token: str | None
    expires_ms: Milliseconds | None
    auth: bool


class TokenReply(BaseModel):
    """A token, without its secret."""

    id: str
    user: str
    role: str
    tenant: str
    note: str
    made_by: str
    made_with: str | None
    created_ms: Milliseconds
    expires_ms: Milliseconds
    used_ms: Milliseconds | None
    revoked_ms: Milliseconds | None


class NewTokenReply(TokenReply):
    """A token with its secret, which is shown once."""

    secret: str


class TokensReply(BaseModel):
    """Tokens, the newest first."""

    tokens: list[TokenReply]


class RevokedReply(BaseModel):
    """The revoked tokens: the one that was named, and those made with it."""

    id: str
    revoked: list[str]


class UnboundReply(BaseModel):
    """A name that the next login binds, and the revoked tokens of its earlier owner."""

    user: str
    revoked: list[str]


class OidcReply(BaseModel):
    """The identity provider to log in with."""

    issuer: str
    client_id: str
    scopes: str


class LoginReply(BaseModel):
    """How to log in here."""

    auth: bool
    oidc: OidcReply | None


class AuditLine(BaseModel):
    """One thing that a person did."""

    seq: int
    at_ms: Milliseconds
    who: str
    what: str
    about: str
    tenant: str


class AuditReply(BaseModel):
    """Lines of the log that name a person, the newest first, and where the next ones begin."""

    lines: list[AuditLine]
    next_cursor: str | None


class HealthReply(BaseModel):
    """The process is there."""

    ok: bool


class ReadyReply(BaseModel):
    """Whether the server can do its work; all but the first two are for people with the right to see everything."""

    ready: bool
    role: str
    leader: str | None = Field(default=None, description="Of a follower: who leads.")
    epoch: int | None = None
    error: str | None = None
    troubles: list[str] = Field(default=[], description="Calls of the last step that came to no answer.")
    difference: int = Field(default=0, description="Attempts about which the log and the engine disagree.")
    steps: int = 0
    step_ms_p50: float | None = None
    step_ms_p99: float | None = None
    decide_ms_p50: float | None = None
    decide_ms_p99: float | None = None
    last_step_s_ago: float | None = None
    events: int = 0
    store: str = ""
    notes: list[str] = []


class VersionReply(BaseModel):
    """Which release this is, and which yard."""

    version: str
    api: str
    yard: str


class FrontReply(BaseModel):
    """What this address is."""

    what: str
    version: str
    yard: str
    auth: bool
    commands: list[str]
    description: str


class PruneRequest(BaseModel):
    """What is to go."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    older_than_s: int | None = Field(
        None,
        ge=0,
        le=NO_LIMIT_MS // SECOND_MS,
        description="Of jobs that ended so long ago. Left out: as long ago as `retention` in yard.yaml says.",
    )
    dry_run: bool = Field(False, description="Only count what would go.")
    next: str | None = Field(None, max_length=100, description="From the reply before; left out: begin.")


class PrunedReply(BaseModel):
    """How much has gone, or would."""

    count: int
    bytes: int = Field(description="Room that it took: on disk, or in the store.")


class PruneReply(BaseModel):
    """What this request removed, or would, by kind: `environments`, `scripts`, `logs`, `folders`."""

    removed: dict[str, PrunedReply]
    dry_run: bool
    next: str | None = Field(description="Ask again with this to go on; null: that was all.")


class ProjectionReply(BaseModel):
    """How far a projection has come."""

    name: str
    version: int
    began_seq: int = Field(description="Its rows tell of the events after this one; 0: of all.")
    seq: int = Field(description="The last event that is in its rows; 0: it is about to be filled.")
    head: int = Field(description="The last event of the log.")
    filled: bool = Field(description="Whether it has come to the end of the log.")
    error: str = Field(description="What keeps it from going on; empty: nothing.")


class ProjectionsReply(BaseModel):
    """All projections that follow the log, by name."""

    projections: list[ProjectionReply]


DESCRIBED: tuple[type[BaseModel], ...] = (
    JobRequest, ManyRequest, DrainRequest, TokenRequest, OidcLogin, CheckpointRequest, CheckpointReply,
    JobReply, ProblemReply, JobView, JobsReply, RecipeReply, QueueReply, NodesReply, OverviewReply, DrainReply,
    AskedReply, ManyReply, SnapshotReply, MeReply, TokensReply, NewTokenReply, RevokedReply, LoginReply, AuditReply,
    FrontReply, HealthReply, ReadyReply, VersionReply, ConfigRequest, ConfigReply, ConfigVersionsReply, AppliedReply,
    DifferenceReply, PreviewReply, TenantsReply, ExplainedReply, ShareReply, EtaReply, DryRunReply,
    MigReply, MigPlanRequest, MigPlanReply, PinRequest, PinnedReply, ReleaseRequest, ReleasedReply, DefragReply,
    GpusReply, PruneRequest, PruneReply, UnboundReply, ProjectionReply, ProjectionsReply,
)  # fmt: skip
"""Everything that the description of the API names."""
