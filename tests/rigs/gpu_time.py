"""A projection as anybody might write one: GPU time by tenant, and by how the attempts ended."""

from gpuyard.control.projections import Projection, Rows
from gpuyard.model import AttemptEnded, AttemptStarted, Event, JobCancelled, JobSubmitted


class GpuTime(Projection):
    name = "gpu-time"
    version = 1

    def fold(self, rows: Rows, seq: int, event: Event) -> None:
        if isinstance(event, JobSubmitted):
            rows[f"job/{event.job.id}"] = {"tenant": event.job.spec.tenant}
        elif isinstance(event, JobCancelled):
            del rows[f"job/{event.job_id}"]
        elif isinstance(event, AttemptStarted):
            job = rows.get(f"job/{event.job_id}", {"tenant": "?"})
            rows[f"job/{event.job_id}"] = {**job, "from": event.at_ms}
        elif isinstance(event, AttemptEnded):
            self._ended(rows, seq, event)

    def _ended(self, rows: Rows, seq: int, event: AttemptEnded) -> None:
        job = rows.get(f"job/{event.job_id}")
        if job is None or "from" not in job:
            return
        key = f"tenant/{job['tenant']}"
        total = rows.get(key, {"ms": 0, "ends": {}, "last": 0})
        total["ms"] += event.at_ms - job["from"]
        total["ends"][event.outcome.value] = total["ends"].get(event.outcome.value, 0) + 1
        rows[key] = {**total, "last": seq}
        del rows[f"job/{event.job_id}"]
