"""Rigs as fixtures."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.rigs import SEVERAL_NODES, ApartRig, LocalRig, Rig, SimRig
from contract.slurm_rig import SlurmRig
from gpuyard.model import Capability
from rigs.slurm.cluster import SlurmCluster


def _made(kind: str, request: pytest.FixtureRequest, folder: Path) -> Rig:
    if kind == "sim":
        return SimRig()
    if kind == "least":
        return SimRig(able=frozenset({Capability.INDICES}))
    if kind == "local":
        return LocalRig(folder)
    if kind == "apart":
        return ApartRig(folder)
    if kind == "nodes":
        return LocalRig(folder, nodes=SEVERAL_NODES)
    return SlurmRig(folder, request.getfixturevalue("slurm_of_eight"))


@pytest.fixture(
    params=["sim", "least", "local", "apart", "nodes", pytest.param("slurm", marks=pytest.mark.slurm)]
)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """Every engine, one after the other; the simulated one also without what an engine may lack, the local one
    as one node, in a process of its own, and as several."""
    made = _made(request.param, request, tmp_path)
    yield made
    made.close()


@pytest.fixture
def slurm(slurm_of_eight: SlurmCluster, tmp_path: Path) -> Iterator[SlurmRig]:
    """The Slurm engine, for what only it promises."""
    made = SlurmRig(tmp_path, slurm_of_eight)
    yield made
    made.close()


@pytest.fixture(params=["cgroups", "bare"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalRig]:
    """The local engine with what cgroups the machine has, and without any."""
    made = LocalRig(tmp_path, use_cgroups=request.param == "cgroups")
    yield made
    made.close()


@pytest.fixture
def open_rig() -> Iterator[LocalRig]:
    """A rig whose folder every user may pass through."""
    if os.geteuid() != 0:
        pytest.skip("only root can run jobs as other users")
    folder = Path(tempfile.mkdtemp(prefix="yard-contract-"))
    folder.chmod(0o711)
    made = LocalRig(folder)
    yield made
    made.close()
    shutil.rmtree(folder)
