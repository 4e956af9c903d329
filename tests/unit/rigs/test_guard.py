"""The guard of the hardware tests: what must be put back is put back however its starter ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hardware import settings
from harness.patience import until

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
    until((tmp_path / "mark").exists, 10)


def test_it_does_not_when_told_that_all_is_done(tmp_path: Path) -> None:
    process = started(tmp_path / "mark", "well")
    process.communicate()
    assert (0, False) == (process.returncode, (tmp_path / "mark").exists())


def test_without_the_owners_word_no_hardware_test_changes_settings_and_each_says_so(tmp_path: Path) -> None:
    (tmp_path / "a_gpu.py").write_text(
        "from gpuyard.engines.machine import nvml\nnvml.read_gpus = lambda: [object()]\n", encoding="utf-8"
    )
    kept = {name: value for name, value in os.environ.items() if name != settings.VARIABLE}
    words = [
        "-n",
        "0",
        "-p",
        "a_gpu",
        "-p",
        "no:cacheprovider",
        "-rs",
        "-m",
        "changes_settings",
        "tests/hardware",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=TESTS.parent, capture_output=True, text=True,
        env=kept | {"PYTHONPATH": str(tmp_path)}, check=False,
    )  # fmt: skip

    assert 0 == done.returncode, done.stdout
    assert " skipped" in done.stdout
    assert " passed" not in done.stdout
    said = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert {"SKIPPED"} == {line.split()[0] for line in said}
    assert all(settings.REASON in line for line in said)
    assert 10 == sum(int(line.split()[1].strip("[]")) for line in said)
