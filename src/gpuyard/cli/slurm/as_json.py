"""`squeue --json`: the fields of Slurm's answer that a yard has, under their names."""

import json
from collections.abc import Sequence

from gpuyard.cli.slurm.jobs import SlurmJob
from gpuyard.cli.slurm.squeue_fields import group_of, uid_of

_PLUGIN = {"type": "openapi/v0.0.38", "name": "REST v0.0.38"}


def jobs_json(jobs: Sequence[SlurmJob]) -> str:
    """All of them."""
    from gpuyard import __version__

    meta = {
        "plugin": _PLUGIN,
        "Slurm": {"version": {"major": 22, "micro": 8, "minor": 5}, "release": "22.05.8"},
    }
    meta["gpuyard"] = {"version": __version__}
    return json.dumps({"meta": meta, "errors": [], "jobs": [_plain(job) for job in jobs]}, indent=2)


def _plain(job: SlurmJob) -> dict[str, object]:
    return {
        "account": job.tenant,
        "array_job_id": job.array_id,
        "array_max_tasks": job.array_limit,
        "array_task_id": job.array_index if job.array_id and not job.indices else None,
        "array_task_string": job.shown_indices if job.indices else "",
        "cpus": job.cpu_count,
        "dependency": job.waits_for,
        "eligible_time": max(job.submitted_ms, job.begin_ms) // 1000,
        "end_time": job.ended_ms // 1000,
        "exit_code": job.exit_code or 0,
        "group_id": group_of(job.user)[0],
        "job_id": job.array_id if job.indices else job.id,
        "job_state": job.state,
        "name": job.name,
        "node_count": job.node_count,
        "nodes": job.nodelist,
        "partition": job.partition,
        "qos": job.klass,
        "restart_cnt": job.restarts,
        "start_time": job.started_ms // 1000,
        "state_reason": job.reason,
        "submit_time": job.submitted_ms // 1000,
        "tasks": job.tasks,
        "time_limit": job.limit_s // 60 or None,
        "tres_alloc_str" if job.started_ms else "tres_req_str": job.tres(),
        "user_id": uid_of(job.user),
        "user_name": job.user,
    }
