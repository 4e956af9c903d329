"""Replies about the configuration and the tenants, for the API's description."""

from pydantic import BaseModel, Field


class BudgetReply(BaseModel):
    """A budget of GPU time over a window: spent, promised and left are all of it."""

    gpu_hours: float
    spent_gpu_hours: float = Field(description="In this window, what runs has used so far included.")
    promised_gpu_hours: float = Field(description="What runs may still use, up to its time limits.")
    left_gpu_hours: float = Field(
        description="What new jobs may ask for; below 0 where the budget was made smaller than what is promised."
    )
    window_ms: int
    window_end_ms: int = Field(description="When the window ends and the budget is whole again.")


class CapsReply(BaseModel):
    """A tenant's budget and caps; null where there is none."""

    budget: BudgetReply | None = None
    max_running_jobs: int | None = None
    max_gpus_per_job: float | None = None
    max_gpus_per_user: float | None = Field(default=None, description="Of each user below the tenant.")
    most_gpus_of_a_user: float | None = Field(
        default=None, description="What the user below it has that uses most, where max_gpus_per_user is set."
    )


Pair = list[float | None]
"""As it is, and as it would be; None: unknown."""


class ConfigVersionReply(BaseModel):
    """A version of the configuration: its author, and when and how it was put in force."""

    version: int
    at_ms: int
    by: str
    how: str
    hash: str
    restores: int | None


class ConfigReply(ConfigVersionReply):
    """A version with its text."""

    yaml: str


class ConfigVersionsReply(BaseModel):
    """Versions, the newest first."""

    versions: list[ConfigVersionReply]


class AppliedReply(ConfigVersionReply):
    """The version that is in force now, and how much it changed; 0: it was in force already."""

    changed: int


class ChangeReply(BaseModel):
    """One difference, in the notation of the file."""

    what: str
    kind: str
    name: str
    key: str
    before: str
    after: str


class DifferenceReply(BaseModel):
    """What would change, what is against it and what should be known."""

    version: int
    restores: int | None
    same: bool
    changes: list[ChangeReply]
    obstacles: list[str]
    notes: list[str]


class ComparedReply(BaseModel):
    """Waits of some tenants' jobs on both sides."""

    tenant: str
    jobs: int
    compared: int
    wait_mean_ms: Pair
    wait_p95_ms: Pair
    changed: bool = False


class CheckReply(BaseModel):
    """What really happened beside the simulation of it."""

    jobs: int
    really_mean_ms: int | None
    simulated_mean_ms: int | None


class PreviewReply(BaseModel):
    """What a configuration would have done to the recorded jobs."""

    from_ms: int
    until_ms: int
    jobs: int
    live: int
    all: ComparedReply
    tenants: list[ComparedReply]
    utilisation: Pair
    preemptions: list[int]
    timeouts: list[int]
    never: list[int]
    unfinished: list[int]
    check: CheckReply
    cpu_s: float
    sentence: str
    notes: list[str]


class TenantReply(CapsReply):
    """A tenant: what it may use, in GPUs by model or `total`, and what it uses."""

    tenant: str
    configured: bool
    weight: int
    guarantee: dict[str, float]
    limit: dict[str, float]
    borrow: dict[str, float]
    lend: dict[str, float]
    gpus_used: float
    running: int
    waiting: int
    classes: list[str]
    """Classes that its jobs may be of, for any user."""


class TenantsReply(BaseModel):
    """The tree, parents before children."""

    tenants: list[TenantReply]
