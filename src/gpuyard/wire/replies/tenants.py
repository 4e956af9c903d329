"""Replies about tenants and the configuration that gives them their quotas."""

from typing import Annotated, NotRequired, TypedDict

Pair = list[float | None]
"""As it is, and as it would be; None: unknown."""


class BudgetReply(TypedDict):
    """A budget of GPU time over a window; spent, promised and left add up to all of it."""

    gpu_hours: float
    spent_gpu_hours: Annotated[
        float, "What was spent in this window, including what running jobs have used so far."
    ]
    promised_gpu_hours: Annotated[float, "What running jobs may still use, up to their time limits."]
    left_gpu_hours: Annotated[
        float, "What new jobs may ask for; below 0 if the budget was made smaller than what is promised."
    ]
    window_ms: int
    window_end_ms: Annotated[int, "When the window ends and the whole budget is available again."]


class CapsReply(TypedDict):
    """A tenant's budget and caps; null where there is none."""

    budget: NotRequired[BudgetReply | None]
    max_running_jobs: NotRequired[int | None]
    max_gpus_per_job: NotRequired[float | None]
    max_gpus_per_user: NotRequired[Annotated[float | None, "The limit of each user below the tenant."]]
    most_gpus_of_a_user: NotRequired[
        Annotated[float | None, "GPUs of the user below it with the most GPUs, if max_gpus_per_user is set."]
    ]
    max_jobs: NotRequired[Annotated[int | None, "The most jobs that wait or run."]]
    on_limit: NotRequired[Annotated[str, "What becomes of a job that would be over a limit: wait or refuse."]]
    per_job: NotRequired[
        Annotated[
            dict[str, str], "What one job may ask for, by gpus, cpus and memory: min 1, default 1, max 2."
        ]
    ]
    class_limits: NotRequired[
        Annotated[dict[str, str], "What its jobs of a class may have: limit 2, max_running_jobs 1."]
    ]
    max_cpus: NotRequired[float | None]
    cpus: NotRequired[
        Annotated[float | None, "Cores of its running jobs, as many as they name, if max_cpus is set."]
    ]
    max_memory_mib: NotRequired[int | None]
    memory_mib: NotRequired[
        Annotated[int | None, "Memory of its running jobs, as much as they name, if max_memory is set."]
    ]


class TenantReply(CapsReply):
    """A tenant: what it may use and what it uses, in GPUs by model or `total`."""

    tenant: str
    configured: bool
    weight: int
    guarantee: dict[str, float]
    limit: dict[str, float]
    borrow: dict[str, float]
    lend: dict[str, float]
    percentages: Annotated[
        dict[str, dict[str, str]],
        "What of guarantee, limit, borrow and lend is a percentage of the GPUs that exist, as yard.yaml has it.",
    ]
    gpus_used: float
    running: int
    waiting: int
    classes: list[str]
    """Classes that its jobs may be of, for any user."""


class TenantsReply(TypedDict):
    """The tree, parents before children."""

    tenants: list[TenantReply]


class AmountReply(TypedDict):
    """GPUs of one model, or in total; null: no limit."""

    used: float
    guarantee: float
    limit: float | None
    borrow: float | None
    borrowed: float
    lendable: float
    lent: float
    exposure: float


class TenantShareReply(CapsReply):
    """What a tenant is entitled to and has used. Shares are in parts per million, charges in thousandths of a
    dollar."""

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


class ShareHead(TypedDict):
    """What shares go by."""

    at_ms: int
    policy: str
    fair: bool
    half_life_ms: int
    period_ms: int


class ShareReply(ShareHead):
    """The tenants that you may see, each after its parent."""

    tenants: list[TenantShareReply]


class ConfigVersionReply(TypedDict):
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


class ConfigVersionsReply(TypedDict):
    """Versions, newest first."""

    versions: list[ConfigVersionReply]


class AppliedReply(ConfigVersionReply):
    """The version that is now in force, and how many changes it brought; 0: it was in force already."""

    changed: int


class ChangeReply(TypedDict):
    """One difference, in the notation of the file."""

    what: str
    kind: str
    name: str
    key: str
    before: str
    after: str


class DifferenceReply(TypedDict):
    """What would change, what forbids it, and what else to know."""

    version: int
    restores: int | None
    same: bool
    changes: list[ChangeReply]
    obstacles: list[str]
    notes: list[str]


class ComparedWaits(TypedDict):
    """Waits of some jobs on both sides."""

    jobs: int
    compared: int
    wait_median_ms: Pair
    wait_mean_ms: Pair
    wait_p95_ms: Pair


class ComparedReply(ComparedWaits):
    """Waits of some tenants' jobs on both sides."""

    tenant: str


class ComparedTenantReply(ComparedReply):
    """Waits of the jobs of one tenant and those below on both sides."""

    changed: bool
    """Whether the change names the tenant."""


class ComparedSizeReply(ComparedWaits):
    """Waits of jobs of one size on both sides."""

    size: str
    """GPUs of a whole job: `up to 1`, `2-8`, `17+`."""


class CheckReply(TypedDict):
    """What really happened, and what a simulation of it says."""

    jobs: int
    really_mean_ms: int | None
    simulated_mean_ms: int | None


class PreviewFigures(TypedDict):
    """The figures of a preview; of a pair, as it is and as it would be."""

    from_ms: int
    until_ms: int
    jobs: int
    live: int
    all: ComparedReply
    tenants: list[ComparedTenantReply]
    sizes: list[ComparedSizeReply]
    """From the smallest jobs to the largest; sizes of which no job was recorded are left out."""
    utilisation: Pair
    preemptions: list[int]
    timeouts: list[int]
    never: list[int]
    unfinished: list[int]
    check: CheckReply
    cpu_s: float


class PreviewReply(PreviewFigures):
    """What a configuration would have done to the recorded jobs."""

    sentence: str
    notes: list[str]
