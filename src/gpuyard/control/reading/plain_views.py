"""Jobs, their tries and nodes as plain values, ready to be shown: one form for live and ended jobs, rows of the queue.

`MORE_COLUMNS` are what a listing for people does without and Slurm's commands show.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpuyard.config.compare import bounds_text, class_limit_text
from gpuyard.control.clock import time_text
from gpuyard.control.replica.labels import row_label
from gpuyard.control.wording import LETS_WAIT_AGAIN, NODE_FAILED
from gpuyard.core import State
from gpuyard.core.explain.caps import Caps
from gpuyard.core.explain.room_reasons import full_text
from gpuyard.core.fleet.bits import positions
from gpuyard.core.fleet.claims import pinned_mask
from gpuyard.core.jobs.records import JobRecord, waited_ms
from gpuyard.engines.contract import ImageUse, Usage
from gpuyard.model import After, AfterKind, Ask, AttemptState, Job, Node, ReasonCode, Whole
from gpuyard.model.jobs import FIRST_EXTERNAL_ID, request_text
from gpuyard.model.serialise import from_plain
from gpuyard.model.units import HOUR_MS, MICRO_USD, MILLI, NO_LIMIT_MS, SECOND_MS
from gpuyard.store import HistoryRow, Store, TryRow
from gpuyard.store.tables.tries import TRIES_MAX
from gpuyard.wire.replies.fleet import NodeReply, PlacedSlice
from gpuyard.wire.replies.jobs import (
    FilesReply,
    ImageUsedReply,
    ListedJob,
    OneJob,
    TaskReply,
    TryReply,
    UsedReply,
)
from gpuyard.wire.replies.tenants import BudgetReply, CapsReply


def gpus_number(milli: int) -> int | float:
    """Milli-GPU as a number of GPUs, whole where it is."""
    return milli // MILLI if milli % MILLI == 0 else milli / MILLI


def caps_view(caps: Caps) -> CapsReply:
    """A tenant's budget and caps, with what is used of them; None where there is none."""
    found, most = caps.budget, caps.max_gpus_per_job_milli
    budget: BudgetReply | None = (
        None
        if found is None
        else {
            "gpu_hours": _gpu_hours(found.budget_milli_ms),
            "spent_gpu_hours": _gpu_hours(found.spent_milli_ms),
            "promised_gpu_hours": _gpu_hours(found.promised_milli_ms),
            "left_gpu_hours": _gpu_hours(found.left_milli_ms),
            "window_ms": found.window_ms,
            "window_end_ms": found.window_end_ms,
        }
    )
    per_user = caps.max_gpus_per_user_milli
    return {
        "budget": budget,
        "max_running_jobs": caps.max_running_jobs,
        "max_gpus_per_job": None if most is None else gpus_number(most),
        "max_gpus_per_user": None if per_user is None else gpus_number(per_user),
        "most_gpus_of_a_user": None if per_user is None else gpus_number(caps.most_per_user_milli),
        "max_jobs": caps.max_jobs,
        "on_limit": "refuse" if caps.refuses else "wait",
        "per_job": {kind: bounds_text(kind, bounds) for kind, bounds in sorted(caps.per_job.items())},
        "class_limits": {klass: class_limit_text(given) for klass, given in sorted(caps.classes.items())},
        "max_cpus": None if caps.max_cpu_milli is None else caps.max_cpu_milli / MILLI,
        "cpus": None if caps.max_cpu_milli is None else caps.cpu_milli / MILLI,
        "max_memory_mib": caps.max_memory_mib,
        "memory_mib": None if caps.max_memory_mib is None else caps.memory_mib,
    }


def _gpu_hours(milli_ms: int) -> float:
    """To a thousandth of a GPU-hour."""
    return round(milli_ms / (MILLI * HOUR_MS), 3)


def limit_s(limit_ms: int) -> int | None:
    """A time limit in seconds; None: there is none."""
    return None if limit_ms >= NO_LIMIT_MS else limit_ms // SECOND_MS


def live_job_view(nodes: Sequence[Node], record: JobRecord, reason: str, waits_for: str) -> OneJob:
    """A job that has not ended."""
    job, spec, ask = record.job, record.job.spec, record.job.spec.ask
    return {
        "id": job.id,
        "label": job.label,
        "name": spec.name,
        "tenant": spec.tenant,
        "user": spec.user,
        "class": record.klass.name,
        "labels": dict(spec.labels),
        "state": record.state.value,
        "attempt_state": record.phase.value if record.phase else None,
        "gpus": gpus_number(record.shape.gpu_milli),
        "gpus_per_task": request_text(ask.gpus),
        "gpu_models": list(ask.models),
        "pools": list(ask.pools),
        "clusters": list(ask.clusters),
        "partition": spec.partition,
        "tasks": ask.tasks,
        "nodes_min": ask.nodes_min,
        "cpus": ask.cpu_milli / MILLI,
        "memory_mib": ask.memory_mib,
        "nodes": [nodes[grant.node].name for grant in record.grants],
        "gpu_indices": [list(positions[grant.gpus]) for grant in record.grants],
        "submitted": time_text(job.submitted_ms),
        "submitted_ms": job.submitted_ms,
        "started": time_text(record.started_ms),
        "started_ms": record.started_ms or None,
        "ended": None,
        "ended_ms": None,
        "waited_ms": None
        if record.phase is None
        else waited_ms(job.submitted_ms, record.started_ms, record.ran_ms),
        "ran_ms": record.ran_ms,
        "time_limit_s": limit_s(record.limit_ms),
        "attempts": record.attempt,
        "preemptions": record.preemptions,
        "restarts": max(0, record.attempt - 1),
        "exit_code": None,
        "waits_for": waits_for,
        "held": record.held,
        "moved_by": record.moved_by,
        "wanted": record.wanted.value if record.wanted else None,
        "reason": reason,
        "array_id": job.array_id or None,
        "array_index": job.array_index if job.array_id else None,
    }


def live_task_view(nodes: Sequence[Node], record: JobRecord) -> TaskReply:
    """A live task in a list of all tasks of its array: only the fields that differ from task to task."""
    return {
        "id": record.id,
        "label": record.job.label,
        "state": record.state.value,
        "exit_code": None,
        "nodes": [nodes[grant.node].name for grant in record.grants],
        "reason": "",
    }


def ended_job_view(nodes: Sequence[Node], row: HistoryRow) -> OneJob:
    """A job that has ended."""
    spec = row.detail.get("spec", {})
    grants = row.detail.get("grants", [])
    asked = from_plain(Ask, spec["ask"]) if spec.get("ask") else None
    ask = asked or Ask(Whole(0))
    ran_ms = row.detail.get("ran_ms", 0) + (row.ended_ms - row.started_ms if row.started_ms else 0)
    return {
        "id": row.id,
        "label": row_label(row),
        "name": row.name,
        "tenant": row.tenant,
        "user": row.user,
        "class": row.klass,
        "labels": dict(spec.get("labels", ())),
        "state": row.state,
        "attempt_state": None,
        "gpus": gpus_number(row.gpus_milli),
        "gpus_per_task": request_text(asked.gpus) if asked else "",
        "gpu_models": list(ask.models),
        "pools": list(ask.pools),
        "clusters": list(ask.clusters),
        "partition": spec.get("partition", ""),
        "tasks": ask.tasks,
        "nodes_min": ask.nodes_min,
        "cpus": ask.cpu_milli / MILLI,
        "memory_mib": ask.memory_mib,
        "nodes": [nodes[g["node"]].name for g in grants if g["node"] < len(nodes)],
        "gpu_indices": [list(positions[g["gpus"]]) for g in grants],
        "submitted": time_text(row.submitted_ms),
        "submitted_ms": row.submitted_ms,
        "started": time_text(row.started_ms),
        "started_ms": row.started_ms or None,
        "ended": time_text(row.ended_ms),
        "ended_ms": row.ended_ms or None,
        "waited_ms": waited_ms(row.submitted_ms, row.ended_ms, ran_ms),
        "ran_ms": ran_ms,
        "time_limit_s": limit_s(row.detail.get("limit_ms", NO_LIMIT_MS)),
        "attempts": row.attempts,
        "preemptions": row.preemptions,
        "restarts": max(0, row.attempts - 1),
        "exit_code": row.exit_code if row.attempts else None,
        "held": False,
        "wanted": None,
        "reason": row.why,
        "array_id": row.array_id or None,
        "array_index": row.array_index if row.array_id > 0 else None,
    }


def node_state(state: State, number: int) -> tuple[str, str]:
    """Whether a node takes work, in a word, and why not."""
    down, cordoned = state.nodes.down[number], state.nodes.cordoned[number]
    return "DOWN" if down else "DRAINED" if cordoned else "UP", down or cordoned


def node_view(state: State, number: int) -> NodeReply:
    """A node, what is free on it and what runs there."""
    nodes, node = state.nodes, state.nodes.node[number]
    foreign, by = nodes.foreign.get(number, (0, ""))
    word, why = node_state(state, number)
    free_milli = sum(max(0, free) for free in nodes.gpu_free[number])
    return {
        "name": node.name,
        "cluster": node.cluster,
        "pool": node.pool,
        "state": word,
        "why": why,
        "gpu_model": node.gpu_model,
        "gpus": node.gpus,
        "gpus_free": gpus_number(free_milli),
        "gpus_foreign": foreign.bit_count(),
        "foreign": by,
        "gpus_pinned": pinned_mask(nodes, number).bit_count(),
        "cpus": node.cpu_milli / MILLI,
        "cpus_free": nodes.cpu_free[number] / MILLI,
        "memory_mib": node.memory_mib,
        "memory_mib_free": nodes.memory_free[number],
        "features": list(node.features),
        "labels": nodes.marks.own_labels(number),
        "taints": [str(taint) for taint in nodes.marks.tainted.get(number, ())],
        "jobs": [
            state.jobs[job_id].job.label
            for job_id in sorted(nodes.attempts_on[number])
            if job_id in state.jobs
        ],
        "slices": _slices(state, number),
    }


def _slices(state: State, number: int) -> list[PlacedSlice]:
    """MIG slices in use: GPU, profile, first slot and job."""
    return sorted(
        [
            (piece.gpu, piece.profile, piece.start, state.jobs[job_id].job.label)
            for job_id, (_end_ms, grant) in state.nodes.attempts_on[number].items()
            if job_id in state.jobs
            for piece in grant.slices
        ],
        key=lambda row: (row[0], row[2]),
    )


MORE_COLUMNS = (
    "pools", "gpu_models", "tasks", "cpus", "memory_mib", "begin_ms", "waits_for", "array_id", "array_index",
    "array_limit", "restarts", "requeue", "ran_ms", "nodes_min", "partition", "gpus_per_task",
)  # fmt: skip
NOTHING_MORE: tuple[Any, ...] = ("", "", 1, 0, 0, 0, "", 0, 0, 0, 0, False, 0, 0, "", "")
"""The same of a job of which others may know nothing."""


def more_values(record: JobRecord, waits: str) -> tuple[Any, ...]:
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
        array_limit(job.id, job.array_id, spec.after) if spec.after and job.array_id else 0,
        max(0, record.attempt - 1),
        spec.requeue,
        record.ran_ms,
        ask.nodes_min,
        spec.partition,
        request_text(ask.gpus),
    )


def _own(job_id: int, array_id: int, other_id: int) -> bool:
    """Whether another job is an earlier task of the same array."""
    return 0 < array_id < other_id < job_id


def throttled(record: JobRecord) -> bool:
    """Whether it waits for nothing but earlier tasks of its own array."""
    return bool(record.pending) and all(
        [_own(record.id, record.job.array_id, after.job_id) for after in record.pending]
    )


def array_limit(job_id: int, array_id: int, waits: Sequence[After]) -> int:
    """How many tasks of its array may run at a time, told by the one it stands behind; 0: not told by this task."""
    own = [after.job_id for after in waits if _own(job_id, array_id, after.job_id)]
    return job_id - own[-1] if own else 0


def dependencies_text(waiting: Job, dependencies: Iterable[tuple[After, Job | None]]) -> str:
    """`afterok:17,afterany:12_3`, without the tasks of its own array that it stands behind.

    Each dependency comes with the job that it names; None: that one has ended, or is an array.
    """
    found = []
    for after, job in dependencies:
        if after.kind is AfterKind.ALONE:
            found.append(after.kind.value)
        elif after.tasks:
            found.append(f"{after.kind.value}:{after.job_id}_*")
        elif not _own(waiting.id, waiting.array_id, after.job_id):
            found.append(f"{after.kind.value}:{job.label if job else after.job_id}")
    return ",".join(found)


def read_files(store: Store, recipe: str) -> FilesReply:
    """What a job runs, where it runs and writes, as it was handed in; empty if that is not known any more."""
    found = read_recipe(store, recipe)
    return {
        "command": list(found.get("argv") or ()),
        "script": bool(found.get("script")),
        "ranks": found.get("ranks", 0),
        "cwd": str(found.get("cwd") or ""),
        "stdout": str(found.get("stdout") or ""),
        "stderr": str(found.get("stderr") or ""),
    }


def read_recipe(store: Store, recipe: str) -> dict[str, Any]:
    """How a job is run, as it was handed in; empty if that is not known any more."""
    body = (store.blob(recipe) or store.removals.bare_recipe(recipe)) if recipe else None
    found: dict[str, Any] = {} if body is None else json.loads(body)
    return found


REASON_TEXTS = {
    ReasonCode.STARTED: "about to start",
    ReasonCode.ROOM: "no room",
    ReasonCode.RESERVATION: "room is promised to a job ahead",
    ReasonCode.LIMIT: "its tenant is at its limit",
    ReasonCode.BORROW: "its tenant may not borrow more",
    ReasonCode.HELD_BACK: "what is free is guaranteed to others",
    ReasonCode.RUNNING_JOBS: "its tenant runs as many jobs as it may",
    ReasonCode.BUDGET: "over a budget",
    ReasonCode.QUOTA_AHEAD: "an earlier job of its tenant waits for quota",
    ReasonCode.EARMARK: "GPUs are being freed for it",
    ReasonCode.HEAD_BLOCKED: "a job ahead waits, and none may overtake",
    ReasonCode.HELD: "on hold",
    ReasonCode.BEGIN: "before its begin time",
    ReasonCode.NEVER_FITS: "no node could hold it",
    ReasonCode.UNSUPPORTED: "its kind of GPU sharing cannot be served yet",
    ReasonCode.JOB_TOO_LARGE: "larger than a job of its tenant may be",
    ReasonCode.NO_TIME_LIMIT: "its tenant has a budget and it has no time limit",
    ReasonCode.DEPENDENCY: "waits for another job",
    ReasonCode.WALL: "no pool that could hold it takes it",
    ReasonCode.PER_USER: "its user has as much as one user may",
    ReasonCode.AHEAD: "jobs ahead of it take what there is",
}

NEW_TEXT = "not looked at yet"
"""Of a job that came after the last pass."""


def queue_row(record: JobRecord, nodes: Sequence[Node], reason: str) -> tuple[Any, ...]:
    """A job under `QUEUE_COLUMNS`."""
    job = record.job
    spec = job.spec
    limit_ms = record.limit_ms
    return (
        job.id,
        job.label,
        spec.name,
        spec.tenant,
        spec.user,
        record.klass.name,
        # As `value`, without the call that this is: a queue has thousands of rows.
        record.state._value_,
        record.phase._value_ if record.phase is not None else "",
        gpus_number(record.shape.gpu_milli),
        ",".join([nodes[grant.node].name for grant in record.grants]) if record.grants else "",
        job.submitted_ms,
        record.started_ms,
        0 if limit_ms >= NO_LIMIT_MS else limit_ms // 1000,
        reason,
    )


def masked_row(record: JobRecord, wide: bool) -> tuple[Any, ...]:
    """What others may know of a job that stands before theirs: that it is there, its state and its GPUs."""
    gpus, number = gpus_number(record.shape.gpu_milli), str(record.id)
    row = (record.id, number, "", "", "", "", record.state.value, "", gpus, "", 0, 0, 0, "")
    return row + NOTHING_MORE if wide else row


def closed_text(state: State) -> str:
    """What is more to be said where there is no room: nodes that would have some, but are out of use."""
    nodes = state.nodes
    if not nodes.closed_count:
        return ""
    full = full_text(state, sorted(nodes.full))
    said = f"; {full}" if full else ""
    shut = [number for number, closed in enumerate(nodes.closed) if closed and nodes.shut(number)]
    if len(shut) == 1:
        word, _why = node_state(state, shut[0])
        return f"{said}; node {nodes.node[shut[0]].name} is {word.lower()}"
    return f"{said}; {len(shut)} nodes are drained or down" if shut else said


def waits_text(record: JobRecord) -> str:
    if record.doomed:
        return "what it waits for cannot come true"
    if throttled(record):
        return "as many tasks of its array run as may"
    return REASON_TEXTS[ReasonCode.DEPENDENCY]


def running_text(record: JobRecord) -> str:
    if record.phase is AttemptState.STOPPING:
        return f"stopping ({record.cause.value})" if record.cause else "stopping"
    if record.phase is AttemptState.UNKNOWN:
        return "the engine does not know it"
    if record.wanted is not None:
        return f"about to {record.wanted.value}"
    return ""


# -- the tries of a job ------------------------------------------------------------------------------------------------

# A job that has run at most once has none: all there is to tell about it is in the job. Of what is only seen elsewhere
# each try is a job of its own, and those before it are found in the history.


def read_tries(store: Store, job: ListedJob, shown: Callable[[HistoryRow], ListedJob]) -> list[TryReply]:
    """Of a job as it is shown, live or ended; oldest first. The tries are asked for only if it has run before."""
    if job["id"] >= FIRST_EXTERNAL_ID:
        return _seen_elsewhere(store, job, shown)
    runs = job["started_ms"] is not None
    before = job["attempts"] - runs
    if before < 1:
        return []
    # None after these, though there may be by now: the list is of the job as it is shown.
    found = [_try_view(row) for row in store.tries.of_job(job["id"], before)]
    return [*found, _running_or_last(job)] if runs else found


def find_last_try(store: Store, job_id: int, attempt: int) -> TryReply | None:
    """The try with this number, if it is known."""
    rows = store.tries.of_job(job_id, attempt, 1)
    return _try_view(rows[0]) if rows and rows[0].attempt == attempt else None


def _seen_elsewhere(store: Store, job: ListedJob, shown: Callable[[HistoryRow], ListedJob]) -> list[TryReply]:
    """An id may be given again after a long time: what did not wait again before this one was another job."""
    rows = [
        row
        for row in store.history.of_array(job["array_id"] or 0, (job["array_index"] or 0) - 1, TRIES_MAX)
        if row_label(row) == job["label"] and row.started_ms and row.submitted_ms < job["submitted_ms"]
    ]
    earlier: list[ListedJob] = []
    for row in sorted(rows, key=lambda row: (row.submitted_ms, row.id), reverse=True):
        if row.user != job["user"] or not row.why.endswith((LETS_WAIT_AGAIN, NODE_FAILED)):
            break
        earlier.insert(0, shown(row))
    if not earlier:
        return []
    tries = [*earlier, job] if job["started_ms"] else earlier
    return [{**_running_or_last(each), "attempt": number} for number, each in enumerate(tries, start=1)]


def _try_view(row: TryRow) -> TryReply:
    return {
        "attempt": row.attempt,
        "started": time_text(row.started_ms),
        "started_ms": row.started_ms,
        "ended": time_text(row.ended_ms),
        "ended_ms": row.ended_ms or None,
        "nodes": list(row.nodes),
        "gpu_indices": [list(gpus) for gpus in row.gpu_indices],
        "outcome": row.outcome,
        "exit_code": row.exit_code,
        "why": row.why,
    }


def _running_or_last(job: ListedJob) -> TryReply:
    """The try that runs, or the one that ended the job."""
    ended = job["ended_ms"] is not None
    return {
        "attempt": job["attempts"],
        "started": job["started"],
        "started_ms": job["started_ms"] or 0,
        "ended": job["ended"],
        "ended_ms": job["ended_ms"],
        "nodes": job["nodes"],
        "gpu_indices": job["gpu_indices"],
        "outcome": job["state"] if ended else None,
        "exit_code": job["exit_code"],
        "why": job["reason"] if ended else "",
    }


def add_taken(used: UsedReply, job: OneJob, usage: Callable[[int], Usage]) -> None:
    """CPU time over all tries, and the most memory of any; None where a try is not known of."""
    ran = [each["attempt"] for each in job.get("tries") or () if each["started_ms"]]
    found = [usage(attempt) for attempt in (ran or range(1, job["attempts"] + 1))[-TRIES_MAX:]]
    image = found[-1].image if found else None
    if image is not None:
        used["image"] = _image_view(image)
    cpu_ms = _known([each.cpu_ms for each in found])
    memory_mib = _known([each.memory_mib for each in found])
    process_mib = _known([each.process_mib for each in found])
    used["cpu_s"] = None if cpu_ms is None else round(sum(cpu_ms) / SECOND_MS, 2)
    used["memory_mib"] = None if memory_mib is None else max(memory_mib)
    used["process_mib"] = None if process_mib is None else max(process_mib)


def _known(values: Sequence[int | None]) -> list[int] | None:
    """All of them; None: one of them is not known, or there are none."""
    known = [value for value in values if value is not None]
    return known if known and len(known) == len(values) else None


def _image_view(image: ImageUse) -> ImageUsedReply:
    return {
        "image": image.image,
        "digest": image.digest,
        "pull_ms": image.pull_ms,
        "start_ms": image.start_ms,
        "line_ms": image.line_ms,
    }


def total_use_view(job: ListedJob, owed_micro_usd: int | None) -> UsedReply:
    """What an ended job used, as the history has it: its tries together."""
    return _use_view(job["gpus"], job["ran_ms"], owed_micro_usd)


def use_view(job: OneJob, now_ms: int, owed_micro_usd: int | None) -> UsedReply:
    """What a job used over all its tries, as it is shown, and what it owes by the books, if they know that."""
    spans = [(each["started_ms"], each["ended_ms"]) for each in job.get("tries") or ()]
    spans = spans or [(job["started_ms"] or 0, job["ended_ms"])]
    run_ms = sum([max(0, (ended_ms or now_ms) - at_ms) for at_ms, ended_ms in spans if at_ms])
    return _use_view(job["gpus"], run_ms, owed_micro_usd)


def _use_view(gpus: float, run_ms: int, owed_micro_usd: int | None) -> UsedReply:
    if owed_micro_usd is None and not run_ms:
        owed_micro_usd = 0
    return {
        "run_s": run_ms // SECOND_MS,
        "gpu_hours": round(round(gpus * MILLI) * run_ms / (MILLI * HOUR_MS), 4),
        "cost_usd": None if owed_micro_usd is None else round(owed_micro_usd / MICRO_USD, 6),
    }
