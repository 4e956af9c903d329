"""Jobs for Slurm's commands: one shape for what the queue and the history say of them."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from gpuyard.cli.slurm.language.pools import Pools
from gpuyard.cli.slurm.language.words import slurm_reason, slurm_state
from gpuyard.engines.name_lists import fold_indices, fold_names, natural_key


class SlurmJob:
    """A job, or the tasks of an array that wait, folded into one."""

    __slots__ = (
        "array_id",
        "array_index",
        "array_limit",
        "asked_partition",
        "attempt",
        "begin_ms",
        "cpus",
        "ended_ms",
        "exit_code",
        "gpu_models",
        "gpus",
        "gpus_each",
        "id",
        "indices",
        "klass",
        "label",
        "limit_s",
        "memory_mib",
        "name",
        "nodes",
        "nodes_min",
        "now_ms",
        "partition",
        "pools",
        "ran_ms",
        "requeue",
        "restarts",
        "said",
        "start_guess_ms",
        "started_ms",
        "state",
        "submitted_ms",
        "tasks",
        "tenant",
        "user",
        "waits_for",
    )  # fmt: skip

    id: int
    label: str
    name: str
    tenant: str
    user: str
    klass: str
    state: str
    """In Slurm's words."""
    said: str
    """Why it waits, or how it ended, in the yard's words."""
    gpus: int | float
    gpus_each: str
    """What each task asks for, as the yard writes it: `2`, `0.25`, `2x1g.10gb`; empty: not known."""
    nodes: list[str]
    nodes_min: int
    """Nodes it is spread over at least."""
    asked_partition: str
    """The partitions that its script named; empty: none."""
    partition: str
    submitted_ms: int
    started_ms: int
    ended_ms: int
    now_ms: int
    limit_s: int
    """0: none."""
    tasks: int
    cpus: float
    """Cores of each task."""
    memory_mib: int
    indices: list[int]
    """Indices of the tasks that are folded into this one; empty: it is one job."""
    array_id: int
    array_index: int
    array_limit: int
    start_guess_ms: int
    """When it is expected to start; 0: unknown, or not asked for."""
    begin_ms: int
    waits_for: str
    gpu_models: str
    pools: str
    restarts: int
    ran_ms: int
    """How long its earlier tries ran."""
    requeue: bool
    exit_code: int | None

    @property
    def masked(self) -> bool:
        """Whether it is another tenant's: then only its state and its GPUs may be shown."""
        return not self.submitted_ms

    @property
    def ran_s(self) -> int:
        """How long it has run."""
        return ((self.ended_ms or self.now_ms) - self.started_ms) // 1000 if self.started_ms else 0

    @property
    def shown_id(self) -> str:
        """17, 12_3 or 12_[3-9%2]."""
        if not self.indices:
            return self.label
        return f"{self.array_id}_[{self.shown_indices}]"

    @property
    def shown_indices(self) -> str:
        """3, or 3-9%2 for tasks that are folded; empty: no array."""
        if not self.array_id:
            return ""
        if not self.indices:
            return str(self.array_index)
        limit = f"%{self.array_limit}" if self.array_limit else ""
        return fold_indices(self.indices) + limit

    @property
    def reason(self) -> str:
        """Why it waits, in a word of Slurm's."""
        return slurm_reason(self.said) if self.state == "PENDING" else "None"

    @property
    def nodelist(self) -> str:
        """Its nodes, folded."""
        return folded_nodes(tuple(self.nodes)) if self.nodes else ""

    @property
    def node_count(self) -> int:
        """Nodes it has; before it runs, the least it needs."""
        return len(self.nodes) or self.nodes_min

    @property
    def cpu_count(self) -> int:
        """Cores in all; one for each task where fewer were asked for, as Slurm counts."""
        return max(1, self.tasks, round(self.cpus * self.tasks))

    def tres(self) -> str:
        """What it holds or asks for, as Slurm writes it."""
        memory = self.memory_mib * self.tasks
        parts = [f"cpu={self.cpu_count}", *([f"mem={memory_text(memory)}"] if memory else [])]
        parts += [f"node={self.node_count}", f"billing={self.cpu_count}"]
        kind, count = self._gres()
        parts += [f"gres/{kind}={count}"] if count else []
        # A slice is a GPU of a type of its own, as Slurm has GPUs that are cut by MIG.
        return ",".join([*parts, *([f"gres/gpu={count}"] if kind.startswith("gpu:") else [])])

    def tres_per_node(self) -> str:
        """`gres:gpu:2`, `gres:gpu:1g.10gb:1` of slices, `gres:mps:25` of shares; the most that a node has of it."""
        kind, count = self._gres()
        return f"gres:{kind}:{-(-count // self.node_count)}" if count else "N/A"

    def gres(self) -> str:
        """The same in all, as older releases of `sacct` had it: `gpu:2`; empty: none."""
        kind, count = self._gres()
        return f"{kind}:{count}" if count else ""

    def _gres(self) -> tuple[str, int]:
        """What it holds of GPUs in all, as Slurm counts: GPUs, slices of a profile, or hundredths of GPUs for MPS."""
        if "g." in self.gpus_each:
            count, _, profile = self.gpus_each.rpartition("x")
            return f"gpu:{profile}", int(count or 1) * self.tasks
        if "." in self.gpus_each or self.gpus != int(self.gpus):
            return "mps", round(100 * self.gpus)
        return "gpu", int(self.gpus)


@cache
def folded_nodes(names: tuple[str, ...]) -> str:
    """Names in order, in brackets. Many jobs have the same."""
    return fold_names(sorted(names, key=natural_key))


def memory_text(mib: int) -> str:
    """512M, 4G, 1.50T, as Slurm writes memory."""
    amount, unit = float(mib), "M"
    for larger in "GTP":
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{int(amount)}{unit}" if amount == int(amount) else f"{amount:.2f}{unit}"


def jobs_from_queue(found: Mapping[str, Any], pools: Pools) -> list[SlurmJob]:
    """The rows of a wide queue."""
    now_ms, jobs = found["at_ms"], []
    for row in found["rows"]:
        job = SlurmJob()
        (
            job.id, job.label, job.name, job.tenant, job.user, job.klass, state, attempt, job.gpus, nodes,
            job.submitted_ms, job.started_ms, job.limit_s, job.said,
            job.pools, job.gpu_models, job.tasks, job.cpus, job.memory_mib, job.begin_ms, job.waits_for,
            job.array_id, job.array_index, job.array_limit, job.restarts, job.requeue, job.ran_ms,
            *newer,
        ) = row  # fmt: skip
        # A server that was started before an upgrade of these commands has no such column.
        nodes_min, asked, job.gpus_each = [*newer, *("", "", "")[len(newer) :]][:3]
        if job.masked:
            # An empty column would shift those behind it for scripts that count them.
            job.name = job.user = job.tenant = job.klass = "-"
        job.state = slurm_state(state, attempt) if attempt != state else state
        # A gang has a grant for every task, several of them on one node.
        job.nodes = list(dict.fromkeys(nodes.split(","))) if nodes else []
        job.asked_partition, job.partition = asked, pools.partition(job.nodes, asked or job.pools)
        job.nodes_min = len(job.nodes) or max(nodes_min or 1, _fewest(job, pools))
        job.ended_ms, job.now_ms, job.indices, job.exit_code, job.start_guess_ms = 0, now_ms, [], None, 0
        jobs.append(job)
    return jobs


def _fewest(job: SlurmJob, pools: Pools) -> int:
    """The fewest nodes that a job needs; of one of which only the GPUs are shown, if each could be on any node."""
    tasks = max(1, int(job.gpus)) if job.masked else job.tasks
    return pools.fewest_nodes(job.pools, job.gpu_models, job.gpus, tasks, job.cpus, job.memory_mib)


def job_from_view(found: Mapping[str, Any], pools: Pools, now_ms: int) -> SlurmJob:
    """One job as `show` and the history have it."""
    job = SlurmJob()
    job.id, job.label, job.name = found["id"], found["label"], found["name"]
    job.tenant, job.user, job.klass = found["tenant"], found["user"], found["class"]
    job.state = slurm_state(found["state"], found.get("attempt_state") or "")
    job.said, job.gpus, job.tasks = found["reason"], found["gpus"], found["tasks"]
    job.cpus, job.memory_mib = found["cpus"], found["memory_mib"]
    job.nodes, job.gpus_each = list(dict.fromkeys(found["nodes"])), str(found.get("gpus_per_task", ""))
    job.gpu_models, job.pools = ",".join(found["gpu_models"]), ",".join(found.get("pools", []))
    job.asked_partition = found.get("partition") or ""
    job.partition = pools.partition(job.nodes, job.asked_partition or job.pools)
    job.submitted_ms, job.started_ms = found["submitted_ms"], found["started_ms"] or 0
    job.ended_ms, job.now_ms, job.limit_s = found["ended_ms"] or 0, now_ms, found["time_limit_s"] or 0
    job.array_id, job.array_index = found["array_id"] or 0, found["array_index"] or 0
    job.exit_code, job.restarts, job.requeue = found["exit_code"], found["restarts"], True
    job.start_guess_ms = found.get("expected_start_ms") or 0
    # For a job that has ended, the last try is among those that ran.
    last_ms = job.ended_ms - job.started_ms if job.ended_ms and job.started_ms else 0
    job.ran_ms = found.get("ran_ms", last_ms) - last_ms
    job.nodes_min = len(job.nodes) or max(found.get("nodes_min", 0), _fewest(job, pools))
    job.indices, job.array_limit, job.waits_for, job.begin_ms = [], 0, found.get("waits_for", ""), 0
    return job


def fold_arrays(jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
    """Waiting tasks of one array become one line, at the place of the first of them."""
    folded_jobs: list[SlurmJob] = []
    first: dict[int, SlurmJob] = {}
    for job in jobs:
        if job.state != "PENDING" or not job.array_id:
            folded_jobs.append(job)
            continue
        known = first.get(job.array_id)
        if known is None:
            first[job.array_id] = job
            job.indices = [job.array_index]
            folded_jobs.append(job)
        else:
            known.indices.append(job.array_index)
            known.array_limit = known.array_limit or job.array_limit
    for job in first.values():
        if len(job.indices) == 1:
            job.indices = []
    return folded_jobs
