"""Jobs from a few lines, as most tests want them."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuyard.intake import Caller, Intake
from gpuyard.intake.kubernetes import read_kubernetes
from gpuyard.intake.sbatch import read_sbatch

NOW = datetime(2026, 3, 10, 14, 30, tzinfo=UTC)
"""A Tuesday afternoon."""

Take = Callable[..., Intake]


@pytest.fixture
def sbatch() -> Take:
    """Reads a script of these directives: `sbatch("-N 2", arguments=["-t", "5"])`."""

    def take(*directives: str, arguments: tuple[str, ...] = (), **more: Any) -> Intake:
        lines = ["#!/bin/bash", *[f"#SBATCH {each}" for each in directives], "hostname", ""]
        caller = Caller(now=NOW, cwd="/home/ana", arguments=tuple(arguments), **more)
        return read_sbatch("\n".join(lines), "job.sh", caller)

    return take


@pytest.fixture
def kubernetes() -> Take:
    """Reads a file of one manifest, its command as a process unless told otherwise."""

    def take(text: str, host_process: bool = True) -> Intake:
        (found,) = read_kubernetes(text, "job.yaml", Caller(now=NOW, host_process=host_process))
        return found

    return take


@pytest.fixture
def now() -> datetime:
    return NOW
