"""`yard demo` as people run it: both of its yards, all of its jobs, and the table at its end."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.patience import patient


@pytest.mark.rig
def test_three_jobs_that_asked_for_the_same_are_told_apart_at_the_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpuyard.cli", "demo"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=patient(180),
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert "All 28 jobs have ended, 28 of them COMPLETED" in done.stdout
    table = done.stdout.partition("$ yard efficiency")[2].splitlines()[2:5]
    busy = {}
    for line in table:
        found = re.fullmatch(r" +\d  (\S+) +(\d+) % of 1 +(\d+) GiB of 40 GiB  (\S.*?)  +(\S.*)", line)
        assert found is not None, line
        busy[found[1]] = int(found[2])
        smaller = ("--gpus 1g.5gb", "GPU-h") if found[1] == "small-model" else ("-", "-")
        assert smaller == (found[4].strip(), found[5].split()[-1]), line
        assert {"busy": "34", "half-idle": "31", "small-model": "3"}[found[1]] == found[3]
    assert (93, 11) == (busy["busy"], busy["small-model"])
    assert 35 < busy["half-idle"] < 65, "it was idle half of the time"
    assert {"yard-demo-report.html"} == {path.name for path in tmp_path.iterdir()}, "nothing else is left"
