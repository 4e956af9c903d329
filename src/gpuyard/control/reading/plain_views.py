"""Jobs and nodes as plain values, ready to be shown: one form for live jobs and for ended ones."""

from collections.abc import Sequence
from typing import Any

from gpuyard.control.clock import time_text
from gpuyard.control.replica.labels import row_label
from gpuyard.core import State
from gpuyard.core.explain.caps import Caps
from gpuyard.core.fleet.bits import positions
from gpuyard.core.fleet.claims import pinned_mask
from gpuyard.core.jobs.records import JobRecord, waited_ms
from gpuyard.model import Ask, Node
from gpuyard.model.requests import request_text
from gpuyard.model.serialise import from_plain
from gpuyard.model.units import HOUR_MS, MILLI, NO_LIMIT_MS, SECOND_MS
from gpuyard.store import HistoryRow
from gpuyard.wire.replies.fleet import NodeReply
from gpuyard.wire.replies.tenants import BudgetReply, CapsReply

View = dict[str, Any]


def gpus_number(milli: int) -> int | float:
    """Milli-GPU as a number of GPUs, whole where it is."""
    return milli // MILLI if milli % MILLI == 0 else milli / MILLI


def _times(submitted_ms: int, started_ms: int, ended_ms: int) -> View:
    return {
        "submitted": time_text(submitted_ms),
        "submitted_ms": submitted_ms,
        "started": time_text(started_ms),
        "started_ms": started_ms or None,
        "ended": time_text(ended_ms),
        "ended_ms": ended_ms or None,
    }


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
    }


def _gpu_hours(milli_ms: int) -> float:
    """To a thousandth of a GPU-hour."""
    return round(milli_ms / (MILLI * HOUR_MS), 3)


def limit_s(limit_ms: int) -> int | None:
    """A time limit in seconds; None: there is none."""
    return None if limit_ms >= NO_LIMIT_MS else limit_ms // SECOND_MS


def live_job(nodes: Sequence[Node], record: JobRecord, reason: str, waits_for: str) -> View:
    """A job that has not ended."""
    job, spec = record.job, record.job.spec
    return {
        "id": job.id,
        "label": job.label,
        "name": spec.name,
        "tenant": spec.tenant,
        "user": spec.user,
        "class": record.klass.name,
        "state": record.state.value,
        "attempt_state": record.phase.value if record.phase else None,
        "gpus": gpus_number(record.shape.gpu_milli),
        "gpus_per_task": request_text(spec.ask.gpus),
        "gpu_models": list(spec.ask.models),
        "pools": list(spec.ask.pools),
        "clusters": list(spec.ask.clusters),
        "partition": spec.partition,
        "tasks": spec.ask.tasks,
        "nodes_min": spec.ask.nodes_min,
        "cpus": spec.ask.cpu_milli / MILLI,
        "memory_mib": spec.ask.memory_mib,
        "nodes": [nodes[grant.node].name for grant in record.grants],
        "gpu_indices": [list(positions[grant.gpus]) for grant in record.grants],
        **_times(job.submitted_ms, record.started_ms, 0),
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


def live_task(nodes: Sequence[Node], record: JobRecord) -> View:
    """A live task in a list of all tasks of its array: only the fields that differ from task to task."""
    return {
        "id": record.id,
        "label": record.job.label,
        "state": record.state.value,
        "exit_code": None,
        "nodes": [nodes[grant.node].name for grant in record.grants],
        "reason": "",
        "array_index": record.job.array_index,
    }


def ended_job(nodes: Sequence[Node], row: HistoryRow) -> View:
    """A job that has ended."""
    spec = row.detail.get("spec", {})
    ask = spec.get("ask", {})
    grants = row.detail.get("grants", [])
    array = row.array_id > 0
    ran_ms = row.detail.get("ran_ms", 0) + (row.ended_ms - row.started_ms if row.started_ms else 0)
    return {
        "id": row.id,
        "label": row_label(row),
        "name": row.name,
        "tenant": row.tenant,
        "user": row.user,
        "class": row.klass,
        "state": row.state,
        "attempt_state": None,
        "gpus": gpus_number(row.gpus_milli),
        "gpus_per_task": request_text(from_plain(Ask, ask).gpus) if ask else "",
        "gpu_models": list(ask.get("models", ())),
        "pools": list(ask.get("pools", ())),
        "clusters": list(ask.get("clusters", ())),
        "partition": spec.get("partition", ""),
        "tasks": ask.get("tasks", 1),
        "nodes_min": ask.get("nodes_min", 0),
        "cpus": ask.get("cpu_milli", 0) / MILLI,
        "memory_mib": ask.get("memory_mib", 0),
        "nodes": [nodes[g["node"]].name for g in grants if g["node"] < len(nodes)],
        "gpu_indices": [list(positions[g["gpus"]]) for g in grants],
        **_times(row.submitted_ms, row.started_ms, row.ended_ms),
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
        "array_index": row.array_index if array else None,
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
        "jobs": [
            state.jobs[job_id].job.label
            for job_id in sorted(nodes.attempts_on[number])
            if job_id in state.jobs
        ],
        "slices": _slices(state, number),
    }


def _slices(state: State, number: int) -> list[list[Any]]:
    """MIG slices in use: GPU, profile, first slot and job."""
    return sorted(
        [
            [*piece, state.jobs[job_id].job.label]
            for job_id, (_end_ms, grant) in state.nodes.attempts_on[number].items()
            if job_id in state.jobs
            for piece in grant.slices
        ],
        key=lambda row: (row[0], row[2]),
    )
