"""From the configuration of a Slurm cluster to its engine: what no waiting will mend is refused at once."""

from pathlib import Path

import pytest

from gpuyard.config.reading import loads
from gpuyard.control.commands.configs import fleet_differences
from gpuyard.control.fleet import Fleet, choose_fleet
from gpuyard.engines.contract import Permanent
from gpuyard.engines.registry import runnable
from gpuyard.engines.slurm.calls.client import CommandClient
from gpuyard.engines.slurm.calls.rest import RestClient
from gpuyard.engines.slurm.cluster import Rest, SlurmCluster
from gpuyard.engines.slurm.making import client_of, driven
from gpuyard.errors import BadInput

FILE = "version: 1\nclusters: {{hpc: {{engine: slurm, {keys}}}}}\n"


def fleet_of(keys: str, emulate: str = "") -> Fleet:
    return choose_fleet(loads(FILE.format(keys=keys), "yard.yaml"), emulate)


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
        == fleet.clusters[0].keys
    )


def test_a_file_or_programs_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match=r"there is no /nowhere/slurm\.conf"):
        driven("hpc", SlurmCluster(conf="/nowhere/slurm.conf"), tmp_path)
    with pytest.raises(Permanent, match="there is no program sbatch in /nowhere"):
        driven("hpc", SlurmCluster(programs="/nowhere"), tmp_path)


def test_the_way_to_speak() -> None:
    assert isinstance(client_of(SlurmCluster()), CommandClient)
    assert isinstance(client_of(SlurmCluster(rest=Rest("http://h:1", "/t", "root"))), RestClient)


def test_other_keys_in_the_file_take_a_restart() -> None:
    """The engine has read its keys when the yard started: a file with others is not in force by `yard apply`."""
    here, same = fleet_of("slurm: {shared_folder: /s}"), fleet_of("shared_folder: /s")
    other = fleet_of("slurm: {shared_folder: /s, partitions: [gpu]}")
    watched = fleet_of("slurm: {mode: observe}")
    assert [] == fleet_differences(here, same)
    told = "the keys of its engine are others in the file: that takes a restart, `yard up --config FILE`"
    assert [told] == fleet_differences(here, other) == fleet_differences(here, watched)
    machine = choose_fleet(loads("version: 1\nclusters: {hpc: {}}\n", "yard.yaml"), "")
    assert "its engine is slurm here and local in the file" in fleet_differences(here, machine)[0]


def test_the_engines_of_gpuyard_are_of_the_registry_like_any_other() -> None:
    assert ["local", "slurm"] == [getattr(runnable(name), "name", "") for name in ("local", "slurm")]
    assert [None, None] == [runnable(name) for name in ("kubernetes", "sim")]
    assert "jobs are handed to Slurm" == fleet_of("shared_folder: /s").words()
    assert "Slurm decides, and the yard looks on" == fleet_of("mode: observe").words()
