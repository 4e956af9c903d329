"""Slurm's nodes and jobs in the plain values of an observer: states, names and columns stay below its folder."""

from dataclasses import replace

import pytest

from gpuyard.engines.observer import ForeignState
from gpuyard.engines.slurm.foreign import foreign_job, report_nodes
from gpuyard.engines.slurm.observed import key_of
from gpuyard.engines.slurm.site.gpu_types import GpuTypes
from gpuyard.engines.slurm.site.site import read
from gpuyard.model import Outcome, WaitCause
from rigs.slurm.world import attempt

NODES = """\
NodeName=n1 CPUTot=64 RealMemory=512000 Gres=gpu:a100:8 State=IDLE Partitions=main Reason=none [root@5]
NodeName=n2 CPUTot=64 RealMemory=512000 Gres=gpu:a100:8 State=MIXED+DRAIN Partitions=main Reason=bad fan [root@5]
NodeName=n3 CPUTot=64 RealMemory=512000 Gres=gpu:a100:8 State=DOWN* Partitions=main Reason=dead [root@5]
NodeName=n4 CPUTot=64 RealMemory=512000 Gres=gpu:a100:8 State=IDLE Partitions=(null) Reason=none [root@5]
"""


def test_nodes_that_are_drained_down_or_out_of_reach() -> None:
    site = read({"nodes.txt": NODES, "partitions.txt": "PartitionName=main Nodes=n[1-3]\n"}, {})
    told = report_nodes(site, "rig", GpuTypes({"a100": "A100-80GB"}))

    assert [("n1", "main", True, "", ""), ("n2", "main", True, "", "bad fan"),
            ("n3", "main", False, "down*: dead", ""), ("n4", "", True, "", "")] == [
        (each.node.name, each.node.pool, each.up, each.why, each.drained) for each in told
    ]  # fmt: skip
    assert {(8, "A100-80GB", "rig")} == {
        (each.node.gpus, each.node.gpu_model, each.node.cluster) for each in told
    }


def test_keys_are_those_of_the_log() -> None:
    for row in (attempt("7", 1), attempt("12_3", 1)):
        told = foreign_job(row, {})
        assert (row.label, key_of(row)) == (told.label, told.key)


def test_states_times_and_reasons() -> None:
    waits = foreign_job(replace(attempt("7", 1), state="PENDING", reason="QOSMaxGRESPerUser"), {})
    assert (ForeignState.WAITING, 0, WaitCause.QUOTA) == (waits.state, waits.started_ms, waits.cause)
    runs = foreign_job(attempt("7", 1, 2, None, "SUSPENDED"), {})
    assert (ForeignState.SUSPENDED, True) == (runs.state, runs.started_ms > 0)
    # Slurm gives a job that was cancelled in the queue a start, and no nodes.
    never = foreign_job(replace(attempt("7", 1, None, 5, "CANCELLED"), start_ms=5), {})
    assert (ForeignState.ENDED, 0, Outcome.CANCELLED) == (never.state, never.started_ms, never.outcome)


@pytest.mark.parametrize(
    ("state", "outcome", "again", "why"),
    [
        ("COMPLETED", Outcome.COMPLETED, False, ""),
        ("PREEMPTED", Outcome.CANCELLED, True, "preempted"),
        ("REQUEUED", Outcome.CANCELLED, True, "requeued"),
        ("NODE_FAIL", Outcome.NODE_FAIL, True, "node_fail"),
        ("BOOT_FAIL", Outcome.NODE_FAIL, False, ""),
    ],
)
def test_ends(state: str, outcome: Outcome, again: bool, why: str) -> None:
    told = foreign_job(attempt("7", 1, 2, 9, state), {})
    assert (outcome, again, why) == (told.outcome, told.again, told.why)


def test_accounts_and_users_by_their_names_in_the_tree() -> None:
    told = foreign_job(attempt("7", 1, account="_x"), {"_x": "nlp", "ann": "ann-2"})
    assert ("nlp", "ann", "ann-2") == (told.account, told.user, told.member)
    assert "" == foreign_job(attempt("7", 1, account="root"), {}).account
