"""Answers of slurmrestd as rows: of v0.0.38 recorded, of v0.0.40 written by hand after its documentation."""

import pytest

from gpuyard.engines.slurm.calls import rest_rows
from gpuyard.engines.slurm.words.queue import SlurmJob
from gpuyard.engines.slurm.words.rows import Partition, Reservation, read_partitions
from gpuyard.model.units import MINUTE_MS

OLD_JOB = {
    "comment": "y-1-1@ab",
    "job_id": 7,
    "job_state": "RUNNING",
    "nodes": "n[1-2]",
    "het_job_id": 0,
    "partition": "main",
    "state_reason": "None",
    "submit_time": 1794740732,
    "tres_alloc_str": "cpu=4,mem=500G,node=2,billing=1,gres/gpu=8,gres/gpu:a100=8",
    "user_id": 0,
}


def boxed(number: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": number}


NEW_JOB = OLD_JOB | {
    "job_state": ["RUNNING"],
    "het_job_id": boxed(0),
    "submit_time": boxed(1794740732),
    "user_id": 0,
}
OLD_NODE = {
    "active_features": "",
    "cpus": 64,
    "gres": "gpu:a100:8",
    "name": "n1",
    "address": "127.0.0.1",
    "state": "mixed",
    "state_flags": ["DRAIN"],
    "partitions": ["main"],
    "real_memory": 512000,
    "reason": "bad fan",
}
NEW_NODE = OLD_NODE | {"state": ["MIXED", "DRAIN"], "active_features": [], "effective_cpus": 64}
NEW_NODE.pop("state_flags")


@pytest.mark.parametrize("entry", [OLD_JOB, NEW_JOB], ids=["v0.0.38", "v0.0.40"])
def test_a_job(entry: dict[str, object]) -> None:
    row = SlurmJob(7, 0, "RUNNING", "None", 0, 1794740732, ("n1", "n2"), 8, 4, 512_000, "main", "y-1-1@ab")

    assert row == rest_rows.read_job(entry)


def test_that_it_clears_away_outweighs_how_it_ended() -> None:
    assert "COMPLETING" == rest_rows.read_job(NEW_JOB | {"job_state": ["FAILED", "COMPLETING"]}).state


@pytest.mark.parametrize("entry", [OLD_NODE, NEW_NODE], ids=["v0.0.38", "v0.0.40"])
def test_a_node(entry: dict[str, object]) -> None:
    node = rest_rows.read_node(entry)

    assert ("n1", 64, 512000, (8, "a100"), ()) == (
        node.name,
        node.cpus,
        node.memory_mib,
        node.gpus,
        node.features,
    )
    assert "drained in Slurm: bad fan" == node.trouble()


def test_partitions() -> None:
    old = {"flags": ["default"], "max_time_limit": -1, "name": "main", "nodes": "n[1-2]", "state": "UP"}
    new = {
        "name": "main",
        "nodes": {"configured": "n[1-2]"},
        "maximums": {"time": boxed(90)},
        "partition": {"state": ["DOWN"], "flags": ["DEFAULT"]},
    }

    assert Partition("main", ("n1", "n2"), True) == rest_rows.read_partition(old)
    assert Partition("main", ("n1", "n2"), True, "DOWN", 90 * MINUTE_MS) == rest_rows.read_partition(new)


@pytest.mark.parametrize(
    "entry",
    [
        {
            "name": "main",
            "nodes": "n[1-2]",
            "default_time_limit": 60,
            "allowed_accounts": "physics,chem",
            "qos": "gold",
            "priority_tier": 7,
            "default_memory_per_cpu": 4096,
            "billing_weights": "gres/gpu=4",
            "tres": "cpu=128,gres/gpu=16",
        },
        {
            "name": "main",
            "nodes": {"configured": "n[1-2]"},
            "defaults": {"time": boxed(60), "partition_memory_per_cpu": boxed(4096), "job": ""},
            "accounts": {"allowed": "physics,chem", "deny": ""},
            "qos": {"assigned": "gold", "allowed": ""},
            "priority": {"tier": 7, "job_factor": 1},
            "tres": {"configured": "cpu=128,gres/gpu=16", "billing_weights": "gres/gpu=4"},
        },
    ],
    ids=["v0.0.38", "v0.0.40"],
)
def test_all_that_scontrol_tells_of_a_partition(entry: dict[str, object]) -> None:
    (printed,) = read_partitions(
        "PartitionName=main Nodes=n[1-2] State=UP DefaultTime=01:00:00 AllowAccounts=physics,chem QoS=gold "
        "PriorityTier=7 DefMemPerCPU=4096 TRES=cpu=128,gres/gpu=16 TRESBillingWeights=gres/gpu=4"
    )
    assert printed == rest_rows.read_partition(entry)


def test_reservations() -> None:
    entry = {"name": "m", "node_list": "n7", "start_time": 5, "end_time": boxed(9), "flags": ["MAINT"]}

    assert Reservation("m", 5000, 9000, ("n7",), ("MAINT",)) == rest_rows.read_reservation(entry)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (5, 5),
        (-1, 0),
        (None, 0),
        (boxed(5), 5),
        ({"set": False, "number": 5}, 0),
        ({"infinite": True}, 0),
        ("5", 0),
    ],
)
def test_numbers(value: object, number: int) -> None:
    assert number == rest_rows.read_number(value)
