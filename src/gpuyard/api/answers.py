"""The API's answers, typed, for programs that use the client."""

from typing import Any, NamedTuple, TypedDict


class Submitted(TypedDict, total=False):
    """A job that was accepted."""

    id: int
    label: str
    name: str
    tenant: str
    user: str
    state: str
    submitted_ms: int
    array: bool
    tasks: int
    first_task_id: int


class Try(TypedDict):
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


Job = TypedDict(
    "Job",
    {
        "id": int,
        "label": str,
        "name": str,
        "tenant": str,
        "user": str,
        "class": str,
        "state": str,
        "attempt_state": str | None,
        "gpus": int | float,
        "gpu_models": list[str],
        "pools": list[str],
        "partition": str,
        "tasks": int,
        "nodes_min": int,
        "cpus": float,
        "memory_mib": int,
        "nodes": list[str],
        "gpu_indices": list[list[int]],
        "submitted": str,
        "submitted_ms": int,
        "started": str | None,
        "started_ms": int | None,
        "ended": str | None,
        "ended_ms": int | None,
        "time_limit_s": int | None,
        "attempts": int,
        "preemptions": int,
        "restarts": int,
        "tries": list[Try],
        "exit_code": int | None,
        "waits_for": str,
        "held": bool,
        "wanted": str | None,
        "reason": str,
        "array_id": int | None,
        "array_index": int | None,
        "array": bool,
        "states": dict[str, int],
        "jobs": list[dict[str, Any]],
        "files": dict[str, Any],
        "removed": dict[str, dict[str, Any]],
        "used": dict[str, Any],
        "ahead": int,
        "why": list[dict[str, str]],
        "expected_start_ms": int | None,
        "how": str,
        "helps": list[str],
    },
    total=False,
)
"""A job, live or ended, or an array as the sum of its tasks."""


class Node(TypedDict):
    """A node, and what is free on it."""

    name: str
    cluster: str
    pool: str
    state: str
    why: str
    gpu_model: str
    gpus: int
    gpus_free: int | float
    gpus_foreign: int
    foreign: str
    gpus_pinned: int
    """GPUs that are pinned to MIG slices: not among the free ones, whether or not these are in use."""
    cpus: float
    cpus_free: float
    memory_mib: int
    memory_mib_free: int
    features: list[str]
    """Features that jobs may ask for by name."""
    jobs: list[str]
    slices: list[list[Any]]
    """MIG slices in use: GPU, profile, first slot, job."""


class Queue(TypedDict):
    """Live jobs as rows, in the order of the scheduler."""

    seq: int
    at_ms: int
    running: int
    waiting: int
    set_aside: int
    columns: list[str]
    rows: list[list[Any]]


class ScriptNames(TypedDict):
    """Names that scripts have for pools, tenants and classes."""

    partitions: dict[str, list[str]]
    accounts: dict[str, str]
    qos: dict[str, str]


class Fleet(TypedDict):
    """The fleet, and what scripts call pools, tenants and classes."""

    nodes: list[Node]
    script_names: ScriptNames


class NodeGpus(TypedDict):
    """A node, GPU by GPU."""

    name: str
    state: str
    why: str
    gpu_model: str
    gpus: list[tuple[int, str, str]]
    """For each GPU the milli-GPU in use, the tenant and the job; the job `foreign` is not the yard's."""


class TenantUse(TypedDict):
    """What a tenant holds, with all below it."""

    tenant: str
    weight: int
    running: int
    waiting: int
    gpus: int | float
    gpus_wanted: int | float
    """By jobs that wait."""
    guarantee: int | float
    limit: int | float | None


class Overview(TypedDict):
    """The whole yard, for a screen."""

    at_ms: int
    running: int
    waiting: int
    set_aside: int
    nodes_in_all: int
    nodes: list[NodeGpus]
    tenants: list[TenantUse]


class Page(NamedTuple):
    """Some jobs, and where the next ones begin; None: there are no more."""

    jobs: list[Job]
    next_cursor: str | None


class Asked(TypedDict, total=False):
    """The answer to a request about a job."""

    id: int
    label: str
    verb: str
    jobs: int
    """How many jobs it changed: an array has many; a job that was so already does not count."""
    status: int
    detail: str
    hint: str


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
