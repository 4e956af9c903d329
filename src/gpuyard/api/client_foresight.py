"""The client's calls about what lies ahead."""

import json
from collections.abc import Mapping
from typing import Any

from gpuyard.api.calling import API, Caller
from gpuyard.api.quoting import part


class ForesightCalls(Caller):
    """When a job starts, and what would become of one."""

    def eta(self, job_id: int | str) -> dict[str, Any]:
        """By when a job starts: `starts_by_ms` has p50 and p90, or is None where that cannot be told."""
        found: dict[str, Any] = self._call("GET", f"{API}/jobs/{part(job_id)}/eta")
        return found

    def dry_run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What would become of a job: the fields of a submission, of which nothing is written."""
        found: dict[str, Any] = self._call("POST", f"{API}/jobs/dry-run", json.dumps(request).encode())
        return found
