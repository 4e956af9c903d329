"""One job from `yard submit` to its end: how many files a reader has to open to follow it."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "walk.py"
MOST = 136
"""121 when this was written; a round of upkeep or of the projections may add some. Lower it with the walk."""


@pytest.mark.soak
def test_a_job_enters_few_files() -> None:
    entered, _idle = runpy.run_path(str(SCRIPT))["walk"]()
    met = {
        "cli/commands/submit/submit.py",
        "control/replica/committer.py",
        "engines/local/attempt/supervisor.py",
    }
    assert met <= set(entered), "every process is watched: the command, the server, the attempt"
    assert MOST >= len(entered), "\n".join(entered)
