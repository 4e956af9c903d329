"""A yard over the real GPUs of this machine. Skipped where there are none; its settings are the same before and after.

A test that changes settings of a GPU is marked `changes_settings` and runs only where the owner of the machine says so;
without that word the yard runs with `card_settings: leave`.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines.machine import nvml
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.model.gpu_names import recognise_model
from gpuyard.model.mig import MIG_MODELS
from hardware import guard, put_back, settings

PYTHONS = (
    "python3",
    "/usr/bin/python3",
    "/opt/*/bin/python3",
    "/opt/*/.venv/bin/python3",
    "/opt/*/envs/*/bin/python3",
)
"""Where an image keeps PyTorch, as far as is known; GPU_PYTHON comes before them."""
CONFIG = "version: 1\nclusters: {here: {engine: local, allow_root: true, card_settings: SETTINGS}}\n"
COMMAND_S = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One reason for all of them."""
    ours = [item for item in items if Path(__file__).parent in Path(str(item.fspath)).parents]
    if ours and not nvml.read_gpus():
        for item in ours:
            item.add_marker(pytest.mark.skip(reason="there is no NVIDIA GPU on this machine"))
    elif not settings.may_change():
        for item in ours:
            if item.get_closest_marker("changes_settings"):
                item.add_marker(pytest.mark.skip(reason=settings.REASON))


class Hardware:
    """The yard, and what the machine itself says."""

    _guard: "subprocess.Popen[str] | None" = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "yard"
        self.gpus: list[GpuReading] = nvml.read_gpus()
        if not self.gpus:
            raise LookupError("there is no NVIDIA GPU on this machine")
        self.geometry = MIG_MODELS[recognise_model(self.gpus[0].name, self.gpus[0].memory_mib)]
        self.python = os.environ.get("GPU_PYTHON") or python_with_torch()

    def command(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "gpuyard.cli", *map(str, words)]

    def __call__(self, *words: object, code: int | None = 0, user: str = "") -> str:
        command, environment = self.command(*words), os.environ | {"YARD_DATA": str(self.data)}
        if user:
            kept = {k: environment[k] for k in ("YARD_DATA", "PATH", "PYTHONPATH") if k in environment}
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "env", "-C", "/tmp",
                       *[f"{k}={v}" for k, v in kept.items()], *command]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_S, check=False, env=environment
        )
        if code is not None:
            assert code == done.returncode, done.stdout + done.stderr
        return done.stdout

    def up(self) -> None:
        config = self.folder / "yard.yaml"
        word = "change" if settings.may_change() else "leave"
        config.write_text(CONFIG.replace("SETTINGS", word), encoding="utf-8")
        self._guard = guard.start(sys.executable, put_back.__file__, str(self.data), self.geometry.model)
        self("up", "-d", "--port", 0, "--config", config)

    def wait(self, *jobs: str, s: float = 300.0) -> list[dict[str, Any]]:
        """The jobs, once they have ended."""
        until, ended = time.monotonic() + s, []
        for job in jobs:
            while True:
                view = json.loads(self("show", job, "-o", "json"))
                if view["ended_ms"] is not None:
                    ended.append(view)
                    break
                assert time.monotonic() < until, view
                time.sleep(0.1)
        return ended

    def mig_mode(self) -> list[str]:
        """As NVIDIA's own tool says."""
        told = subprocess.run(
            ["nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return told.stdout.split()

    def put_back(self) -> None:
        """Everything as it was."""
        put_back.put_back(self.data, self.geometry.model)
        if self._guard is not None:
            self._guard.communicate(guard.DONE)
            self._guard = None


def python_with_torch() -> str:
    """A Python that has PyTorch."""
    found = [path for each in PYTHONS for path in (sorted(glob(each)) if "/" in each else [each])]
    for python in found:
        try_it = [python, "-c", "import torch"]
        if (
            shutil.which(python)
            and not subprocess.run(try_it, stderr=subprocess.DEVNULL, check=False).returncode
        ):
            return python
    raise LookupError(f"no Python with PyTorch among {', '.join(found)}: say which in GPU_PYTHON")


@pytest.fixture(scope="session")
def hardware(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hardware]:
    folder = tmp_path_factory.mktemp("hardware")
    folder.chmod(0o755)
    for parent in (folder.parent, folder.parent.parent):
        if parent.stat().st_mode & 0o005 != 0o005:
            parent.chmod(0o755)
    before = settings.read()
    found = Hardware(folder)
    found.up()
    try:
        yield found
        found("down", "--jobs")
    finally:
        found.put_back()
    assert before == settings.read()
