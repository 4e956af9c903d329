"""Replies about why and when, for the API's description: explanations, shares, estimates."""

from typing import Any

from pydantic import BaseModel

from gpuyard.api.config_replies import CapsReply


class BlockerReply(BaseModel):
    """One thing that is in a job's way; `lift` is what would remove it, as a value with its `kind`."""

    code: str
    by: str
    text: str
    lifted_by: str
    lift: dict[str, Any] | None


class HelpReply(BaseModel):
    """What would let a job start sooner, and the flags for it."""

    text: str
    flags: str


class StartReply(BaseModel):
    """When a job starts by promised ends alone, and how that is known."""

    at_ms: int | None
    how: str


class TryReply(BaseModel):
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


class ExplainedReply(BaseModel):
    """Why a job waits. Of jobs that are not yours it has only ids."""

    job: int
    label: str
    tenant: str
    state: str
    at_ms: int
    said: str
    """Why it waits in the words of Slurm, where Slurm decides; empty: the yard does."""
    last_try: TryReply | None
    """For a job that has run and waits again: how that ended."""
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


class AmountReply(BaseModel):
    """GPUs of one model, or in total; None: there is no limit."""

    used: float
    guarantee: float
    limit: float | None
    borrow: float | None
    borrowed: float
    lendable: float
    lent: float
    exposure: float


class TenantShareReply(CapsReply):
    """What a tenant is due and has had. Shares are in parts per million, charges in thousandths of a dollar."""

    path: str
    depth: int
    weight: int
    weights: int
    share_ppm: int
    yard_ppm: int
    usage_milli_usd: int
    current_milli_usd: int
    siblings_milli_usd: int
    used_ppm: int
    fair_key: int
    place: int
    members: int
    running: int
    waiting: int
    amounts: dict[str, AmountReply]


class ShareReply(BaseModel):
    """The tenants that you may see, each after its parent."""

    at_ms: int
    policy: str
    fair: bool
    half_life_ms: int
    period_ms: int
    tenants: list[TenantShareReply]


class BasisReply(BaseModel):
    """What an estimate rests on."""

    history_jobs: int
    level: str
    stretch: dict[str, float]
    past_estimates: int


class EtaReply(BaseModel):
    """By when a job starts, in milliseconds since 1970: `p50` in half of the runs, `p90` in nine of ten."""

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


class PlaceReply(BaseModel):
    """GPUs of a node."""

    node: str
    gpus: list[int]


class InTheWayReply(BaseModel):
    """What would be in the way of a job that is not submitted yet."""

    by: str
    text: str
    lifted_by: str


class CostReply(BaseModel):
    """What a job would cost, in micro-dollars; None: unknown."""

    gpu_model: str | None
    price_micro_usd_h: int
    at_most_micro_usd: int | None
    expected_micro_usd: int | None
    expected_run_ms: int | None
    expected_from: str


class DryRunReply(BaseModel):
    """What would become of a job, which would have this id if it were the next one.

    A job that could never run has `why_never` and `hint`, and nothing of the rest.
    """

    would_run: bool
    why_never: str = ""
    hint: str = ""
    id: int = 0
    name: str = ""
    tenant: str = ""
    tasks: int = 1
    gpus: float = 0
    starts_now: bool = False
    nodes: list[PlaceReply] = []
    why: list[InTheWayReply] = []
    helps: list[str] = []
    cost: CostReply | None = None
    job: None = None
    """As in an estimate of a job that is there; here always null, like `task` and `started_ms`."""
    task: None = None
    state: str = ""
    now_ms: int = 0
    started_ms: None = None
    starts_by_ms: dict[str, int | None] | None = None
    not_before_ms: int | None = None
    left_out_ahead: int = 0
    never_of_runs: int = 0
    runs: int = 0
    bound_ms: int | None = None
    how: str = ""
    basis: BasisReply | None = None
    seed: int | None = None
