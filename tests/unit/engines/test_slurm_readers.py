"""Driving and observing read the same from what Slurm prints: recorded answers, and lines that sites have."""

from pathlib import Path

import pytest

from gpuyard.control.loop import slurm_events
from gpuyard.engines.slurm.site import accounting, site
from gpuyard.engines.slurm.words import forms, states, translate
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
    (drive,) = translate.read_nodes(line)
    (observe,) = site.read({"nodes.txt": line}, {}).nodes

    assert (drive.name, drive.cpus, drive.memory_mib) == (observe.name, observe.cpus, observe.memory_mib)
    assert (drive.states, drive.features) == (observe.states, observe.features)
    assert drive.reason == observe.reason or (drive.reason, observe.reason) == ("none", "")
    assert (not drive.trouble()) == observe.up
    counts: dict[str, int] = {}
    for each in observe.gres:
        if each.name == "gpu":
            counts[each.type] = counts.get(each.type, 0) + each.number
    assert dict(drive.gres) == counts


def test_partitions_and_reservations_are_the_same() -> None:
    read = {
        file: (RECORDED / file).read_text(encoding="utf-8") for file in ("partitions.txt", "reservations.txt")
    }
    observed = site.read(read, {})
    assert observed.partitions
    assert observed.reservations

    assert [(each.name, each.nodes, each.default, each.up, each.max_minutes) for each in
            translate.read_partitions(read["partitions.txt"])] == [
        (each.name, each.nodes, each.default, each.state == "UP", each.max_ms // 60_000)
        for each in observed.partitions
    ]  # fmt: skip
    assert [(each.name, each.nodes, each.start_s, each.end_s, each.flags) for each in
            translate.read_reservations(read["reservations.txt"])] == [
        (each.name, each.nodes, each.start_ms // 1000, each.end_ms // 1000, set(each.flags))
        for each in observed.reservations
    ]  # fmt: skip


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
    drive, observe = translate.read_tres(text), forms.tres(text)

    assert (drive.get("cpu", 0) * 1000, drive.get("mem", 0), drive.get("gres/gpu", 0)) == (
        observe.cpu_milli,
        observe.memory_mib,
        observe.gpus,
    )


@pytest.mark.parametrize("text", ["1-02:30:00", "30:00", "08:00:00", "2-00:00:00", "UNLIMITED", "NONE"])
def test_limits_are_the_same(text: str) -> None:
    assert translate.minutes(text) * 60_000 == forms.limit_ms(text, "MaxTime")


def test_there_is_one_table_of_states() -> None:
    assert not states.WAITS & states.LIVES
    assert not (states.WAITS | states.LIVES) & states.OUTCOMES.keys()
    assert accounting.LIVE == states.LIVES | {"PENDING"}
    # A job whose nodes are being powered up has not failed, for either.
    assert None is states.outcome_of("POWER_UP_NODE")
    assert "POWER_UP_NODE" in accounting.LIVE
    waits_again = {"PREEMPTED": Outcome.CANCELLED, "REQUEUED": Outcome.CANCELLED}
    assert {**states.OUTCOMES, **waits_again} == slurm_events._OUTCOMES
