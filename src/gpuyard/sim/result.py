"""What a simulation measured: columns per ended job, samples over time, and totals."""

from array import array
from dataclasses import dataclass, field


@dataclass(slots=True)
class Samples:
    """The cluster at regular times, for plots and time averages."""

    at_ms: "array[int]" = field(default_factory=lambda: array("q"))
    used_milli: "array[int]" = field(default_factory=lambda: array("q"))
    """Milli-GPU allocated."""
    up_milli: "array[int]" = field(default_factory=lambda: array("q"))
    """Milli-GPU of nodes that are up."""
    waiting: "array[int]" = field(default_factory=lambda: array("q"))
    """Jobs in the queue."""
    stranded_milli: "array[int]" = field(default_factory=lambda: array("q"))
    """Idle milli-GPU that a typical job of this trace could not use (FGD's measure)."""
    tenant_used_milli: list["array[int]"] = field(default_factory=list)
    """Per tenant (same order as `Result.tenants`), milli-GPU allocated."""
    tenant_entitled_milli: list["array[int]"] = field(default_factory=list)
    """Per tenant, what its weight entitles it to at that moment, given which tenants have work."""


@dataclass(slots=True)
class Result:
    """One policy on one trace."""

    policy: str
    capacity_milli: int
    tenants: list[str] = field(default_factory=list)
    jobs: int = 0
    finished: int = 0
    """Ended with COMPLETED."""
    rejected: int = 0
    """No node could ever hold them, or their tenant has no quota for them."""
    timeouts: int = 0
    """Killed at their time limit."""
    unfinished: int = 0
    """Still waiting or running when the simulation stopped."""
    preemptions: int = 0
    node_failures: int = 0
    destroyed_gpu_ms: int = 0
    """GPU time (ms x GPU) of work that had to be done again, restarts included."""
    redone_milli_ms: dict[int, int] = field(default_factory=dict)
    """By id of job, the milli-GPU x ms that it did again after a preemption or a node failure; few jobs have any."""
    used_gpu_ms: int = 0
    cost_micro_usd: int = 0
    price_micro_usd_h: int | None = None
    """What an hour of every GPU costs; None: they differ."""
    tenant_cost_micro_usd: list[int] = field(default_factory=list)
    """Per tenant, if prices differ."""
    first_submit_ms: int = 0
    last_end_ms: int = 0
    interrupted: bool = False
    cpu_s: float = 0.0
    decide_ns: "array[int]" = field(default_factory=lambda: array("q"))
    """Nanoseconds of every decision, if requested."""
    samples: Samples = field(default_factory=Samples)
    # One entry per ended job (COMPLETED or TIMEOUT), in order of their end.
    job_id: "array[int]" = field(default_factory=lambda: array("q"))
    wait_ms: "array[int]" = field(default_factory=lambda: array("q"))
    """All time not spent running: before the first start and between attempts."""
    jct_ms: "array[int]" = field(default_factory=lambda: array("q"))
    """From submission to end."""
    gpu_milli: "array[int]" = field(default_factory=lambda: array("q"))
    tenant: "array[int]" = field(default_factory=lambda: array("i"))
    """Index into `tenants`."""
