"""Slurm loses its memory while the yard hands jobs in: every acknowledged job ends exactly once all the same."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.slurm_yard import SlurmYard
from harness.patience import Patience, until
from rigs.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.slurm

JOBS = int(os.environ.get("GPUYARD_SLURM_JOBS", "500"))


@pytest.fixture
def yard(slurm_of_eight: SlurmCluster, tmp_path: Path) -> Iterator[SlurmYard]:
    made = SlurmYard(tmp_path, slurm_of_eight, policy="")
    made.up()
    yield made
    made.close()
    made.heal()


@pytest.mark.soak
def test_the_controller_is_killed_while_jobs_are_handed_in(yard: SlurmYard) -> None:
    accepted: dict[str, int] = {}
    foreign = yard.effects.parent / "foreign"
    cluster = yard.cluster
    number = cluster.submit(
        f"#!/bin/sh\nfor i in $(seq 90); do sleep 1; done; echo well >>{foreign}\n",
        "--gres=gpu:1",
        "--no-requeue",
    )
    # Slurm writes its memory down now and then; what others run should be in it.
    time.sleep(8)

    def submits() -> None:
        with yard.box.client() as client:
            for i in range(JOBS):
                command = yard.script(f"j{i}", "sleep 0.2")
                accepted[f"j{i}"] = client.submit(command=command, name=f"j{i}", gpus=1)["id"]

    worker = threading.Thread(target=submits)
    worker.start()
    for at in (JOBS // 5, JOBS // 2):
        until(lambda at=at: len(list(yard.effects.iterdir())) > at // 2, 180)
        os.kill(cluster.pid("slurmctld"), signal.SIGKILL)
        cluster.end("slurmctld")
        time.sleep(1)
        cluster.start("slurmctld")
    worker.join(120)
    patience = Patience(400)
    while yard.waiting():
        assert patience, yard.box("queue").out[-3000:]
        yard.heal()
        time.sleep(2)
    ends = yard.ends()
    history = yard.history()

    print(f"{yard.handed_in_again()} of {JOBS} were handed in again after two crashes")
    assert JOBS == len(accepted)
    assert {} == {name: state for name, state in history.items() if state != "COMPLETED"}
    assert {f"j{i}": 1 for i in range(JOBS)} == dict(ends)
    assert set(accepted) == set(history)
    until(lambda: foreign.exists() and foreign.read_text() == "well\n", 120)
    assert str(number) not in cluster.command("squeue", "-h", "-o", "%A").split()
