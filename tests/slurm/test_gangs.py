"""A job over several nodes, waiting and running: `squeue` counts its nodes and GPUs as the real one does."""

import os
from collections.abc import Iterator

import pytest

from e2e.conftest import Box
from harness.patience import until
from rigs.slurm.cluster import SlurmCluster
from slurm.test_commands import Side, wait_for

TWO_NODES = """\
version: 1
clusters:
  box:
    pools: {main: {nodes: 2, gpus: 8 x A100-80GB, cpus: 16, memory: 64G, emulate: true}}
    allow_root: true
"""
ASKED = ("-N2 --gpus-per-node=8", "-N2 -n2 --gpus-per-task=8", "-N2 --gres=gpu:2")
SPREAD = "-n16 --gpus-per-task=1"
"""Slurm counts one node while it waits, and a yard the fewest that can have so many GPUs."""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    box = Box(tmp_path_factory.mktemp("yard") / "data", TWO_NODES)
    box.up()
    links = box.data.parent / "links"
    assert 0 == box("slurm", "--install-links", links).code
    clean = {k: v for k, v in box.environment.items() if not k.startswith(("SLURM", "SBATCH"))}
    yield Side(links, clean | {"PATH": f"{links}:{os.environ['PATH']}"}, "main-0001")
    assert 0 == box("down", "--jobs").code


def counts(side: Side, options: str, *, running: bool) -> list[object]:
    """How many nodes a job has, and which partitions show it."""
    hold = "" if running else "-H "
    sent = side(f"sbatch --parsable {hold}--mem-per-cpu=10 -t 5 {options} -o /dev/null --wrap 'sleep 600'")
    label = sent.out.strip()
    assert label.isdigit(), sent
    wait_for(side, f"squeue -h -j {label} -o %T", "RUNNING" if running else "PENDING", 60)
    nodes = side(f"squeue -h -j {label} -o %D").out.strip()
    shown = [label in side(f"squeue -h -p {name} -o %i").out.split() for name in ("main", "nosuch")]
    told = side(f"scontrol show job {label}").out.split() if running else []
    side(f"scancel {label}")
    until(lambda: not side("squeue -h -o %i").out.strip(), say=lambda: side("squeue"))
    return [nodes, *shown, *[each for each in told if each.startswith("NumNodes=")]]


@pytest.mark.parametrize(
    ("options", "running"),
    [*[(each, True) for each in (*ASKED, SPREAD)], *[(each, False) for each in ASKED]],
)
def test_nodes_are_counted_as_slurm_counts_them(
    rig: SlurmCluster, yard: Side, options: str, running: bool
) -> None:
    slurm = Side(rig.folder, rig.environment, "n1")
    assert counts(slurm, options, running=running) == counts(yard, options, running=running)
