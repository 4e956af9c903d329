"""What a listing for people does without and Slurm's commands show: more columns of the queue, and a job's files."""

import json
from collections.abc import Iterable
from typing import Any

from gpuyard.core.jobs.records import JobRecord
from gpuyard.model import After, AfterKind, Job
from gpuyard.model.units import MILLI
from gpuyard.store import Store

MORE_COLUMNS = (
    "pools", "gpu_models", "tasks", "cpus", "memory_mib", "begin_ms", "waits_for", "array_id", "array_index",
    "array_limit", "restarts", "requeue", "ran_ms", "nodes_min", "partition",
)  # fmt: skip
NOTHING_MORE: tuple[Any, ...] = ("", "", 1, 0, 0, 0, "", 0, 0, 0, 0, False, 0, 0, "")
"""The same of a job of which others may know nothing."""


def more(record: JobRecord, waits: str) -> tuple[Any, ...]:
    """The values of one job."""
    job, spec = record.job, record.job.spec
    ask = spec.ask
    cpu_milli = ask.cpu_milli
    return (
        ",".join(ask.pools) if ask.pools else "",
        ",".join(ask.models) if ask.models else "",
        ask.tasks,
        cpu_milli // MILLI if cpu_milli % MILLI == 0 else cpu_milli / MILLI,
        ask.memory_mib,
        record.begin_ms,
        waits,
        job.array_id,
        job.array_index,
        _array_limit(record) if spec.after and job.array_id else 0,
        max(0, record.attempt - 1),
        spec.requeue,
        record.ran_ms,
        ask.nodes_min,
        spec.partition,
    )


def _own(job: Job, other_id: int) -> bool:
    """Whether another job is an earlier task of the same array."""
    return 0 < job.array_id < other_id < job.id


def throttled(record: JobRecord) -> bool:
    """Whether it waits for nothing but earlier tasks of its own array."""
    return bool(record.pending) and all([_own(record.job, after.job_id) for after in record.pending])


def _array_limit(record: JobRecord) -> int:
    """How many tasks of its array may run at a time, told by the one it stands behind; 0: not told by this task."""
    own = [after.job_id for after in record.job.spec.after if _own(record.job, after.job_id)]
    return record.id - own[-1] if own else 0


def waits_for(waiting: Job, dependencies: Iterable[tuple[After, Job | None]]) -> str:
    """`afterok:17,afterany:12_3`, without the tasks of its own array that it stands behind.

    Each dependency comes with the job that it names; None: that one has ended, or is an array.
    """
    found = []
    for after, job in dependencies:
        if after.kind is AfterKind.ALONE:
            found.append(after.kind.value)
        elif after.tasks:
            found.append(f"{after.kind.value}:{after.job_id}_*")
        elif not _own(waiting, after.job_id):
            found.append(f"{after.kind.value}:{job.label if job else after.job_id}")
    return ",".join(found)


def files(store: Store, recipe: str) -> dict[str, Any]:
    """What a job runs, where it runs and writes, as it was handed in; empty if that is not known any more."""
    found = recipe_of(store, recipe)
    places = {name: str(found.get(name) or "") for name in ("cwd", "stdout", "stderr")}
    ranks = found.get("ranks", 0)
    return {
        "command": list(found.get("argv") or ()),
        "script": bool(found.get("script")),
        "ranks": ranks,
        **places,
    }


def recipe_of(store: Store, recipe: str) -> dict[str, Any]:
    """How a job is run, as it was handed in; empty if that is not known any more."""
    body = (store.blob(recipe) or store.bare_recipe(recipe)) if recipe else None
    found: dict[str, Any] = {} if body is None else json.loads(body)
    return found
