"""A yard whose starter is killed: its GPUs are as they were all the same. Comes before tests that share a yard."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hardware import settings

from .conftest import Hardware

PUT_BACK_S = 60
STARTER = """
import sys, time
from pathlib import Path
from hardware.conftest import Hardware
yard = Hardware(Path(sys.argv[1]))
yard.up()
yard("mig", "apply", sys.argv[2], "--gpu", 0)
print("cut", flush=True)
time.sleep(600)
"""


@pytest.mark.changes_settings
def test_settings_are_as_they_were_after_a_kill(tmp_path: Path) -> None:
    before = settings.read()
    here = Hardware(tmp_path)
    small = here.geometry.profiles[0]
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path), f"{small.count_max}x{small.name}"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "GPU_PYTHON": here.python},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert "cut\n" == process.stdout.readline()
    assert "Enabled" in here.mig_mode()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until = time.monotonic() + PUT_BACK_S
    while before != settings.read():
        assert time.monotonic() < until
        time.sleep(0.2)
