"""One job from `yard submit` to its end: how many files a reader has to open to follow it."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "walk.py"
WALKS = 3
MOST = 122
"""Lower it with the walk: 121 or 122 are entered. Five of them run the duties of a yard, with a job or without."""


@pytest.mark.soak
def test_a_job_enters_few_files() -> None:
    """The shortest of a few walks counts: in each, rounds of telemetry or of upkeep may fall by chance."""
    walk = runpy.run_path(str(SCRIPT))["walk"]
    entered: list[str] = min([walk()[0] for _ in range(WALKS)], key=len)
    met = {
        "cli/commands/submit/submit.py",
        "control/replica/committer.py",
        "engines/local/attempt/supervisor.py",
    }
    assert met <= set(entered), "every process is watched: the command, the server, the attempt"
    assert MOST >= len(entered), "\n".join(entered)
