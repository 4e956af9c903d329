"""`yard` in this process, for most tests, and as a process of its own where that is what is tested."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuyard.cli import run
from harness.patience import patient

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "yard.yaml"

JOBS = """\
submit_s,run_s,limit_s,tenant,gpus
0,600,1200,research/ana,8
10,600,1200,product/eli,8
20,60,120,product/eli,1
30,60,120,interns/ivo,0.5
"""


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str


Yard = Callable[..., Done]


@pytest.fixture
def yard(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Yard:
    """Runs `yard` in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: object) -> Done:
        capfd.readouterr()
        words = [str(argument) for argument in arguments]
        monkeypatch.setattr(sys, "argv", ["yard", *words])
        code = run(words)
        written = capfd.readouterr()
        return Done(code, written.out, written.err)

    return call


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A trace of four jobs."""
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS, encoding="utf-8")
    return path


def environment(**more: str) -> dict[str, str]:
    """For a process of its own: nothing that asks for colour or refuses it."""
    kept = {k: v for k, v in os.environ.items() if k not in {"FORCE_COLOR", "NO_COLOR", "COLUMNS"}}
    return kept | more


def command(*arguments: object) -> list[str]:
    """The command line of `yard` as a process of its own."""
    return [sys.executable, "-m", "gpuyard.cli", *map(str, arguments)]


@pytest.fixture
def process(tmp_path: Path) -> Yard:
    """Runs `yard` as a process of its own."""

    def call(*arguments: object, **more: str) -> Done:
        done = subprocess.run(
            command(*arguments),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=environment(**more),
            timeout=patient(120),
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return call
