"""An open page for five minutes, while a large yard changes all the time: its memory stays."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rigs.console.browser import chromium

pytestmark = [pytest.mark.soak, pytest.mark.rig]
BENCH = Path(__file__).resolve().parents[2] / "benchmarks" / "bench_console.py"
SECONDS = 300
GROWN_PERCENT_MAX = 10
CHANGES_PER_S_MIN = 50


def test_the_memory_of_a_page_does_not_grow() -> None:
    chromium()
    done = subprocess.run(
        [sys.executable, BENCH, "--heap", str(SECONDS)],
        capture_output=True,
        text=True,
        timeout=SECONDS + 600,
        check=False,
    )
    assert 0 == done.returncode, done.stderr[-2000:]
    found = json.loads(done.stdout)

    # A machine that is shared with others may not get to the hundred of the benchmark.
    assert found["changes_per_s"] > CHANGES_PER_S_MIN
    assert found["grown_percent"] < GROWN_PERCENT_MAX, found
