"""From the configuration of a Slurm cluster to its engine: what no waiting will mend is refused at once."""

from pathlib import Path

import pytest

from gpuyard.config.reading import loads
from gpuyard.config.values import Rest, SlurmCluster
from gpuyard.control.fleet import Fleet, chosen, client_of, slurm_engine
from gpuyard.engines.contract import Permanent
from gpuyard.engines.slurm.calls.client import CommandClient
from gpuyard.engines.slurm.calls.rest import RestClient
from gpuyard.errors import BadInput

FILE = "version: 1\nclusters: {{hpc: {{engine: slurm, {keys}}}}}\n"


def fleet_of(keys: str, emulate: str = "") -> Fleet:
    return chosen(loads(FILE.format(keys=keys), "yard.yaml"), emulate)


@pytest.mark.parametrize(
    ("keys", "emulate", "text"),
    [
        (
            "shared_folder: /s",
            "8 x H100",
            "--emulate is for this machine, and cluster 'hpc' has engine slurm",
        ),
        ("pools: {a: {nodes: 1, gpus: 8 x H100, cpus: 8, memory: 8G}}", "", "'hpc' has no 'shared_folder'"),
    ],
)
def test_what_cannot_be_driven(keys: str, emulate: str, text: str) -> None:
    with pytest.raises(BadInput, match=text):
        fleet_of(keys, emulate)


def test_what_can(tmp_path: Path) -> None:
    fleet = fleet_of(
        "shared_folder: /s, partitions: [gpu], handoff: 90s, gpu_types: {a100: A100-80GB}, names: {_x: x}"
    )

    assert (
        SlurmCluster(
            partitions=("gpu",),
            shared_folder="/s",
            handoff_ms=90_000,
            gpu_types={"a100": "A100-80GB"},
            names={"_x": "x"},
        )
        == fleet.clusters[0].slurm
    )


def test_a_file_or_programs_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match=r"there is no /nowhere/slurm\.conf"):
        slurm_engine("hpc", SlurmCluster(conf="/nowhere/slurm.conf"), tmp_path)
    with pytest.raises(Permanent, match="there is no program sbatch in /nowhere"):
        slurm_engine("hpc", SlurmCluster(programs="/nowhere"), tmp_path)


def test_the_way_to_speak() -> None:
    assert isinstance(client_of(SlurmCluster()), CommandClient)
    assert isinstance(client_of(SlurmCluster(rest=Rest("http://h:1", "/t", "root"))), RestClient)
