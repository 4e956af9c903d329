"""An hour's changes of a large yard go by under an open page in some five minutes: its memory stays."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rigs.console.browser import chromium

pytestmark = [pytest.mark.soak, pytest.mark.rig]
BENCH = Path(__file__).resolve().parents[2] / "benchmarks" / "bench_console.py"
SECONDS = 300
SECONDS_MAX = 3600
"""On a machine that is shared with others, as long as it takes for the changes to come."""
GROWN_PERCENT_MAX = 10


def test_the_memory_of_a_page_does_not_grow() -> None:
    chromium()
    done = subprocess.run(
        [sys.executable, BENCH, "--heap", str(SECONDS)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert 0 == done.returncode, done.stderr[-2000:]
    found = json.loads(done.stdout)

    assert found["grown_percent"] < GROWN_PERCENT_MAX, found
