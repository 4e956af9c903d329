"""What was understood of a text with jobs, as the API tells it. It is read as `yard submit` reads a file."""

import json
from datetime import UTC, datetime

from gpuyard.errors import BadInput

JOBS_MAX = 100
"""Jobs of one text; of more nobody reads what was understood."""


def understand(text: str, name: str, cwd: str, host_process: bool, now_ms: int) -> bytes:
    """The jobs of a text as JSON, with nothing of the surroundings of the process that reads them."""
    # Importing YAML takes a moment, and a server only names this function: another process reads.
    from gpuyard.intake import Caller, decode  # noqa: PLC0415
    from gpuyard.intake.forms import read  # noqa: PLC0415
    from gpuyard.intake.native import write_native  # noqa: PLC0415

    # What cannot be a job is refused as it is in a file.
    text = decode(text.encode("utf-8", "replace"), name)
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    found = read(text, name, Caller(now=now, cwd=cwd, host_process=host_process))
    if len(found) > JOBS_MAX:
        raise BadInput(
            f"{name}: it has {len(found):,} jobs, and {JOBS_MAX} are read at once",
            "Split the file, or give it to `yard submit`.",
        )
    folder = {"cwd": cwd} if cwd else {}
    jobs = [
        {
            "form": each.form.value,
            "line": each.line,
            "yaml": write_native([each.job]),
            "request": folder | each.request() | {"env": each.environment({})},
            "warnings": [warning.located(name) for warning in each.warnings],
            "test_only": each.options.test_only,
        }
        for each in found
    ]
    return json.dumps({"jobs": jobs}, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
