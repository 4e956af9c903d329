"""A yard that drives a real Slurm: teams, gangs, arrays, preemption, lost nodes; counted by what jobs wrote down."""

import json
import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from e2e.slurm_yard import SlurmYard
from harness.patience import Patience, until
from rigs.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.slurm

CHECKPOINTED = (
    'n=$(cat "$YARD_CHECKPOINT_FILE" 2>/dev/null || echo 0); echo from $n >>{path}; '
    'while [ $n -lt {steps} ]; do sleep 0.2; n=$((n+1)); echo $n >"$YARD_CHECKPOINT_FILE".new; '
    'mv "$YARD_CHECKPOINT_FILE".new "$YARD_CHECKPOINT_FILE"; done'
)


@pytest.fixture
def yard(slurm_of_eight: SlurmCluster, tmp_path: Path) -> Iterator[SlurmYard]:
    made = SlurmYard(tmp_path, slurm_of_eight)
    made.up()
    yield made
    made.close()
    made.heal()


def test_a_gang_over_four_nodes_a_preemption_with_checkpoint_and_a_foreign_job(yard: SlurmYard) -> None:
    foreign = yard.effects.parent / "foreign"
    number = yard.cluster.submit(
        f"#!/bin/sh\nsleep 12; echo well >>{foreign}\n", "--gres=gpu:2", "--nodelist=n8", "--mem=100"
    )
    with yard.box.client() as client:
        until(lambda: any(node["gpus_foreign"] == 2 for node in client.nodes()))
        # Everything is taken, and just enough by jobs that may be stopped; one of them saves its work.
        body = CHECKPOINTED.format(path=yard.effects / "saver", steps=25)
        saver = client.submit(
            command=yard.script("saver", body), name="saver", tenant="research", gpus=8, checkpoint_s=1
        )["id"]
        fill = [
            client.submit(command=["sleep", "600"], name=klass, tenant="interns", gpus=8, klass=klass)["id"]
            for klass in ("batch", "batch", "batch", "urgent", "urgent", "urgent")
        ]
        until(lambda: yard.written("saver"))
        time.sleep(2)
        # A gang over four nodes has to push some of them aside, and the saver goes on where it was.
        gang = client.submit(
            command=["/bin/sh", "-c", f"echo $RANK $YARD_NODE >>{yard.effects}/gang; sleep 1"],
            name="gang", tenant="research", klass="urgent", gpus=8, tasks=4,
        )["id"]  # fmt: skip
        yard.box.wait(gang, "COMPLETED", s=90)
        for job in fill:
            client.cancel(job)
        yard.box.wait(saver, "COMPLETED", s=90)
    lines = sorted(yard.written("gang"))
    begun = [int(line.split()[1]) for line in yard.written("saver") if line.startswith("from")]

    assert ["0", "1", "2", "3"] == [line.split()[0] for line in lines]
    assert 4 == len({line.split()[1] for line in lines})
    assert (0, 2) == (begun[0], len(begun))
    assert all(earlier < later for earlier, later in pairwise(begun))
    assert 1 == yard.written("saver").count("end")
    until(lambda: foreign.exists() and foreign.read_text() == "well\n", 60)
    assert str(number) not in yard.cluster.command("squeue", "-h", "-o", "%A").split()


QUOTAS = """tenants:
  research: {weight: 2}
  product: {weight: 1, limit: 16}
  interns: {weight: 1}
classes:
  # Nobody is stopped for others here, so that every job reaches its end exactly once.
  batch: {preemptible: false}
"""


@pytest.mark.soak
def test_three_teams_with_quotas_and_an_array_of_two_hundred(
    slurm_of_eight: SlurmCluster, tmp_path: Path
) -> None:
    yard = SlurmYard(tmp_path, slurm_of_eight, policy=QUOTAS)
    yard.up()
    try:
        _teams_and_array(yard)
    finally:
        yard.close()


def _teams_and_array(yard: SlurmYard) -> None:
    with yard.box.client() as client:
        array = client.submit(
            command=["/bin/sh", "-c", f"echo end >>{yard.effects}/a$SLURM_ARRAY_TASK_ID"],
            name="array", tenant="interns", gpus=1, array="0-199",
        )["id"]  # fmt: skip
        for tenant, count in (("research", 40), ("product", 40)):
            for i in range(count):
                command = yard.script(f"{tenant}{i}", "sleep 1")
                client.submit(command=command, name=f"{tenant}{i}", tenant=tenant, gpus=4)
        most = {"research": 0.0, "product": 0.0, "interns": 0.0}
        patience = Patience(400)
        while yard.waiting():
            for row in client.overview()["tenants"]:
                if row["tenant"] in most:
                    most[row["tenant"]] = max(most[row["tenant"]], row["gpus"])
            assert patience, yard.box("queue").out[-2000:]
            time.sleep(0.2)
    done = json.loads(yard.box("show", array, "-o", "json").out)
    ends = yard.ends()

    assert {"COMPLETED": 200} == done["states"]
    assert {1} == set(ends.values())
    assert 280 == len(ends)
    # The limit of 16 held at every moment that was looked at, and was used.
    assert 16 == most["product"]
    assert 32 <= most["research"] + most["interns"]


@pytest.mark.soak
@pytest.mark.parametrize("rank", [0, 2])
def test_a_node_goes_down_under_a_gang_which_waits_again_and_finishes(yard: SlurmYard, rank: int) -> None:
    """The first node, which leads the others, or another one."""
    with yard.box.client() as client:
        words = f"exec >>{yard.effects}/gang; echo $YARD_ATTEMPT $RANK $YARD_NODE; sleep 6; echo end $YARD_ATTEMPT"
        command = ["/bin/sh", "-c", words]
        gang = client.submit(command=command, name="gang", tenant="research", gpus=8, tasks=4)["id"]
        until(lambda: len(yard.written("gang")) >= 4)
        (lost,) = [line.split()[2] for line in yard.written("gang") if line.startswith(f"1 {rank} ")]
        # Its slurmd is killed as well, so that it does not come back by itself.
        yard.cluster.end(lost, 9)
        try:
            yard.cluster.command("scontrol", "update", f"nodename={lost}", "state=down", "reason=pulled")
            job = yard.box.wait(gang, "COMPLETED", s=120)
            why = {node["name"]: node["why"] for node in client.nodes()}[lost]
        finally:
            yard.cluster.start(lost)
    written = yard.written("gang")

    assert 2 == job["attempts"]
    assert "Slurm calls it down" in why
    again = [line for line in written if line.startswith("2 ")]
    assert lost not in {line.split()[2] for line in again}
    assert 4 == written.count("end 2")
    # A task on the lost node may live until Slurm has given the job up, but not beside the second attempt.
    assert "end 1" not in written[written.index(again[0]) :]


@pytest.mark.soak
def test_the_yard_is_killed_and_finds_its_jobs_in_slurm(yard: SlurmYard) -> None:
    with yard.box.client() as client:
        for i in range(20):
            client.submit(command=yard.script(f"j{i}", "sleep 3"), name=f"j{i}", tenant="research", gpus=2)
    until(lambda: len(list(yard.effects.iterdir())) > 5)
    os.kill(yard.box.note()["pid"], signal.SIGKILL)
    yard.up()
    until(lambda: not yard.waiting(), 120)

    assert {f"j{i}": 1 for i in range(20)} == dict(yard.ends())
    assert all(
        len([line for line in yard.written(f"j{i}") if line.startswith("start")]) == 1 for i in range(20)
    )


FAIR = """tenants:
  heavy: {weight: 3}
  light: {weight: 1}
fairness: {period: 1s, half_life: 1h}
"""


@pytest.mark.soak
def test_two_teams_with_a_backlog_get_what_their_weights_say(
    slurm_of_eight: SlurmCluster, tmp_path: Path
) -> None:
    yard = SlurmYard(tmp_path, slurm_of_eight, policy=FAIR)
    yard.up()
    try:
        with yard.box.client() as client:
            for i in range(60):
                for tenant in ("light", "heavy"):
                    command = ["/bin/sh", "-c", f"sleep 1; echo {tenant} >>{yard.effects}/order"]
                    client.submit(command=command, name=f"{tenant}{i}", tenant=tenant, gpus=8)
        until(lambda: len(yard.written("order")) >= 64, 200)
        first = yard.written("order")[:64]
    finally:
        yard.close()

    # Three of four, less what was started before anybody had used anything.
    assert 0.62 <= first.count("heavy") / len(first) <= 0.85
