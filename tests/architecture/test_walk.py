"""One job from `yard submit` to its end: how many files a reader has to open to follow it."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "walk.py"
WALKS = 3
MOST = 128
"""Lower it with the walk: 127 are entered, 42 of them by a yard without a job too."""


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
