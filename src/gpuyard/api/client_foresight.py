"""The client's calls about what lies ahead."""

import json
from collections.abc import Mapping
from typing import Any

_API = "/api/v1"


class ForesightCalls:
    """When a job starts, and what would become of one."""

    def eta(self, job_id: int | str) -> dict[str, Any]:
        """By when a job starts: `starts_by_ms` has p50 and p90, or is None where that cannot be told."""
        # Whatever is not a label goes over the wire as it is, for the server to say so.
        plain = [
            f"{byte:c}" if chr(byte).isalnum() and byte < 128 else f"%{byte:02X}"
            for byte in str(job_id).encode()
        ]
        found: dict[str, Any] = self._call("GET", f"{_API}/jobs/{''.join(plain)}/eta")
        return found

    def dry_run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What would become of a job: the fields of a submission, of which nothing is written."""
        found: dict[str, Any] = self._call("POST", f"{_API}/jobs/dry-run", json.dumps(request).encode())
        return found

    def _call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        raise NotImplementedError
