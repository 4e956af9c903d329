"""Rigs as fixtures."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.rigs import LocalRig, Rig, SimRig


@pytest.fixture(params=["sim", "local"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """Every engine, one after the other."""
    made: Rig = SimRig() if request.param == "sim" else LocalRig(tmp_path)
    yield made
    made.close()


@pytest.fixture(params=["cgroups", "bare"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalRig]:
    """The local engine with what cgroups the machine has, and without any."""
    made = LocalRig(tmp_path, use_cgroups=request.param == "cgroups")
    yield made
    made.close()
