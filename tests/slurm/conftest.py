"""One real cluster for the tests of an admin's commands and of observing."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from harness.patience import patient
from rigs.components import Missing, skip_or_fail
from rigs.slurm.cluster import SlurmCluster


@dataclass(frozen=True)
class Said:
    """What a command of yard did."""

    code: int
    out: str
    err: str


def _cluster() -> SlurmCluster:
    """2 nodes of 8 GPUs, accounting on, no REST."""
    try:
        return SlurmCluster(nodes=2, gpus=8, rest=False)
    except Missing as refusal:
        skip_or_fail(str(refusal))
        raise


@pytest.fixture(scope="session")
def rig() -> Iterator[SlurmCluster]:
    """A cluster for all: a test leaves its accounting and its settings as they were."""
    with _cluster() as cluster:
        yield cluster


@pytest.fixture
def own_rig() -> Iterator[SlurmCluster]:
    """A cluster for one test that changes the policy of the whole site."""
    with _cluster() as cluster:
        yield cluster


@pytest.fixture
def yard(rig: SlurmCluster) -> Callable[..., Said]:
    """`yard` as a process of its own, on the machine of the cluster."""

    def call(*words: object, **more: str) -> Said:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "YARD"))}
        done = subprocess.run(
            [sys.executable, "-m", "gpuyard.cli", *map(str, words)],
            env={**kept, **more},
            cwd=rig.folder,
            capture_output=True,
            text=True,
            timeout=patient(120),
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return call
