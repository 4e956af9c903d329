"""Driving and observing read the same from what Slurm prints: recorded answers, and lines that sites have."""

from pathlib import Path

import pytest

from gpuyard.engines.slurm import fleet, foreign
from gpuyard.engines.slurm.site import accounting, site
from gpuyard.engines.slurm.site.gpu_types import GpuTypes
from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.engines.slurm.site.pools import read_gpus
from gpuyard.engines.slurm.words import forms, queue, rows, states
from gpuyard.model import Outcome

RECORDED = Path(__file__).parent / "slurm_22_05"
LINE = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=32 CPUAlloc=0 {cpus} CPULoad=3.12 AvailableFeatures={features} "
    "ActiveFeatures={features} Gres={gres} NodeAddr=10.0.0.1 RealMemory=1000000 {memory} Sockets=2 State={state} "
    "Partitions=main BootTime=1794705443 AllocTRES= Reason={reason} [root@1794738623]"
)
PLAIN = {
    "cpus": "CPUEfctv=128 CPUTot=128",
    "features": "(null)",
    "gres": "gpu:a100:8",
    "memory": "",
    "state": "IDLE",
    "reason": "none",
}
VARIANTS = [
    {},
    {"cpus": "CPUEfctv=126 CPUTot=128", "memory": "MemSpecLimit=20000"},
    {"cpus": "CPUTot=128"},
    {"features": "ib,nvme"},
    {"gres": "(null)"},
    {"gres": "gpu:8"},
    {"gres": "gpu"},
    {"gres": "gpu:nvidia_a100-sxm4-80gb:8(S:0-1),shard:32"},
    {"gres": "gpu:a100:4,gpu:a100:4"},
    {"gres": "gpu:a100:4,gpu:v100:4"},
    {"gres": "gpu:v100:6,gpu:a100:2"},
    {"gres": "gpu:a100:4,gpu:1g.10gb:7"},
    {"gres": "craynetwork:4,gpu:h100:2(IDX:0-1)"},
    # A reason may hold what looks like another field.
    {"reason": "bad State=IDLE CPUTot=1 Gres=gpu:t4:99"},
    *[
        {"state": each}
        for each in (
            "MIXED", "ALLOCATED", "DOWN", "DOWN*", "DOWN*+DRAIN", "IDLE*", "IDLE*+CLOUD", "IDLE+DRAIN", "MIXED+DRAIN",
            "ERROR", "UNKNOWN", "FUTURE", "INVAL", "IDLE+FAIL", "IDLE+MAINT", "IDLE+NOT_RESPONDING",
            "IDLE+REBOOT_ISSUED", "MIXED+REBOOT_REQUESTED", "IDLE+POWERING_DOWN", "IDLE+CLOUD", "MIXED+PLANNED",
        )
    ],
]  # fmt: skip


def texts() -> list[str]:
    recorded = (RECORDED / "nodes.txt").read_text(encoding="utf-8").splitlines()
    return [*recorded, *[LINE.format(**{**PLAIN, **each}) for each in VARIANTS]]


@pytest.mark.parametrize("line", texts())
def test_a_node_is_the_same_node(line: str) -> None:
    (drive,) = rows.read_nodes(line)
    (observe,) = site.read({"nodes.txt": line}, {}).nodes

    assert drive == observe
    assert (not drive.trouble()) == observe.up
    driven = fleet.node_of(drive, "c", "p", {})
    assert (driven.gpus, driven.gpu_model, driven.nvlink_group_size) == read_gpus(
        observe, GpuTypes({}), Notes()
    )


def test_partitions_and_reservations_are_the_same() -> None:
    read = {
        file: (RECORDED / file).read_text(encoding="utf-8") for file in ("partitions.txt", "reservations.txt")
    }
    observed = site.read(read, {})
    assert observed.partitions == rows.read_partitions(read["partitions.txt"])
    assert observed.reservations == rows.read_reservations(read["reservations.txt"])
    assert observed.partitions
    assert observed.reservations


@pytest.mark.parametrize(
    "text",
    [
        "cpu=2,mem=128M,node=2,billing=2,gres/gpu=4,gres/gpu:a100=4",
        "cpu=16,mem=1.5T,node=1,gres/gpu=8",
        "cpu=1,mem=500G,node=1",
        "cpu=4,mem=0,node=1",
        "",
    ],
)
def test_resources_are_the_same(text: str) -> None:
    drive, observe = queue.read_held(text), forms.parse_tres(text)

    assert (drive.cpus * 1000, drive.memory_mib, drive.gpus) == (
        observe.cpu_milli,
        observe.memory_mib,
        observe.gpus,
    )


def test_a_job_of_unreadable_resources_is_in_the_queue_all_the_same() -> None:
    assert (4, 0, 0) == queue.read_held("gres/gpu=4,cpu=many,mem=?")
    assert (0, 0, 0) == queue.read_held("rubbish")


def test_there_is_one_table_of_states() -> None:
    assert not states.WAITS & states.LIVES
    assert not (states.WAITS | states.LIVES) & states.OUTCOMES.keys()
    assert accounting.LIVE == states.LIVES | {"PENDING"}
    # A job whose nodes are being powered up has not failed, for either.
    assert None is states.find_outcome("POWER_UP_NODE")
    assert "POWER_UP_NODE" in accounting.LIVE
    waits_again = {"PREEMPTED": Outcome.CANCELLED, "REQUEUED": Outcome.CANCELLED}
    assert {**states.OUTCOMES, **waits_again} == foreign.ENDS
