"""The guard of the hardware tests: what must be put back is put back however its starter ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
STARTER = """
import sys, time
from hardware import guard
watch = guard.start("touch", sys.argv[1])
print("up", flush=True)
if sys.argv[2] == "well":
    watch.communicate(guard.DONE)
else:
    time.sleep(60)
"""


def started(mark: Path, how: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(mark), how],
        env=os.environ | {"PYTHONPATH": str(TESTS)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert "up\n" == process.stdout.readline()
    return process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_command_runs_when_its_starter_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    process = started(tmp_path / "mark", "long")
    process.send_signal(number)
    process.communicate()
    until = time.monotonic() + 10
    while not (tmp_path / "mark").exists():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_it_does_not_when_told_that_all_is_done(tmp_path: Path) -> None:
    process = started(tmp_path / "mark", "well")
    process.communicate()
    assert (0, False) == (process.returncode, (tmp_path / "mark").exists())
