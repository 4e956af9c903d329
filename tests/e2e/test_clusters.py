"""This machine and a Slurm cluster in one yard: one queue, one set of quotas, and a Slurm that dies in the middle."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.slurm_yard import SlurmYard, until
from rigs.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.slurm

JOBS = int(os.environ.get("GPUYARD_CLUSTER_JOBS", "60"))
GONE_S = float(os.environ.get("GPUYARD_CLUSTER_GONE_S", "40"))
HERE = """  here: {gpus: 8 x A100-80GB, emulate: true, allow_root: true}
"""
TEAMS = """tenants:
  research: {weight: 2, guarantee: 16}
  product: {weight: 1, limit: 40}
  interns: {weight: 1}
"""


@pytest.fixture
def yard(slurm_of_eight: SlurmCluster, tmp_path: Path) -> Iterator[SlurmYard]:
    made = SlurmYard(tmp_path, slurm_of_eight, policy=HERE + TEAMS)
    made.box.up()
    made.until_nodes(len(slurm_of_eight.layout.nodes) + 1)
    yield made
    made.close()
    made.heal()


def start_s(yard: SlurmYard, name: str) -> float:
    """How long a job that may only run on this machine takes from its submission to its first line."""
    began_s = time.monotonic()
    with yard.box.client() as client:
        client.submit(command=yard.script(name), name=name, gpus=1, clusters=["here"], tenant="research")
    until(lambda: bool(yard.written(name)), 30)
    return time.monotonic() - began_s


def test_slurm_dies_and_comes_back_and_every_job_runs_once(yard: SlurmYard) -> None:
    cluster, tenants = yard.cluster, ("research", "product", "interns")
    before_s = sorted([start_s(yard, f"before{i}") for i in range(5)])
    with yard.box.client() as client:
        for i in range(JOBS):
            where = f"echo $SLURM_CLUSTER_NAME >>{yard.effects.parent}/where; sleep {1 + i % 3}"
            client.submit(
                command=yard.script(f"j{i}", where), name=f"j{i}", gpus=1 + i % 4, tenant=tenants[i % 3]
            )
    until(lambda: len(list(yard.effects.iterdir())) > JOBS // 3, 120)
    os.kill(cluster.pid("slurmctld"), signal.SIGKILL)
    cluster.end("slurmctld")
    gone_s = time.monotonic()
    while_s = []
    while time.monotonic() - gone_s < GONE_S:
        while_s.append(start_s(yard, f"while{len(while_s)}"))
        time.sleep(2)
    with yard.box.client() as client:
        told = {node["cluster"]: node["why"] for node in client.nodes()}
    cluster.start("slurmctld")
    until(lambda: not yard.waiting(), 300)
    names = {f"j{i}" for i in range(JOBS)} | {f"before{i}" for i in range(5)}
    names |= {f"while{i}" for i in range(len(while_s))}
    print(
        f"starts here: median {before_s[2]:.2f} s before, {sorted(while_s)[len(while_s) // 2]:.2f} s meanwhile"
    )

    assert dict.fromkeys(names, 1) == dict(yard.ends())
    assert {} == {name: state for name, state in yard.history().items() if state != "COMPLETED"}
    # Slurm calls itself something else than yard.yaml does.
    assert {"here", "yardrig"} == set((yard.effects.parent / "where").read_text().split())
    assert {"here": "", "hpc": "cluster hpc does not answer"} == told
    assert sorted(while_s)[len(while_s) // 2] < 2 * before_s[2] + 0.5
