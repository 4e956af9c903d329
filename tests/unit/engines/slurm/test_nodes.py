"""Which nodes may be used, which are left out, and how many GPUs others have."""

from dataclasses import replace

from gpuyard.engines.machine.backoff import NodeBackoff
from gpuyard.engines.slurm.fleet import (
    ForeignUse,
    SlurmSettings,
    find_window,
    list_notes,
    report_nodes,
    take_snapshot,
)
from gpuyard.engines.slurm.words.forms import Gres
from gpuyard.engines.slurm.words.queue import SlurmJob
from gpuyard.engines.slurm.words.rows import Partition, Reservation, SlurmNode

SITE = SlurmSettings("hpc", gpu_types={"a100": "A100-80GB"})


def node(name: str, *states: str) -> SlurmNode:
    state = "+".join(states or ("IDLE",))
    return SlurmNode(name, state, 64, 512_000, (Gres("gpu", "a100", 8),), (), ("gpu",), name)


def other(gpus: int, cpus: int = 1, memory_mib: int = 1, nodes: tuple[str, ...] = ("n1",)) -> SlurmJob:
    return SlurmJob(9, 0, "RUNNING", "None", 0, 1, nodes, gpus, cpus, memory_mib, "gpu", "")


GPU = Partition("gpu", ("n1", "n2"), True)


def up(
    site: SlurmSettings, *partitions: Partition, reservations: tuple[Reservation, ...] = ()
) -> dict[str, str]:
    scene = take_snapshot(site, [node("n1"), node("n2", "IDLE", "DRAIN")], partitions, reservations)
    return {
        each.node.name: each.why
        for each in report_nodes(site, scene, NodeBackoff(30, 600, lambda: 0), ForeignUse(), {}, {}, 100)
    }


def test_the_default_partition_is_ours_unless_others_are_named() -> None:
    other_one = Partition("cpu", ("n2",))

    assert {"n1": "", "n2": "drained in Slurm"} == up(SITE, GPU, other_one)
    assert {"n2": "drained in Slurm"} == up(replace(SITE, partitions=("cpu",)), GPU, other_one)


def test_a_partition_that_is_down_or_gone() -> None:
    assert "partition gpu is not up" == up(SITE, replace(GPU, state="DOWN"))["n1"]
    site = replace(SITE, partitions=("gpu", "gone"))
    assert "Slurm has no partition gone" == up(site, GPU)["n1"]
    assert ("Slurm has no partition gone: nothing can start there",) == list_notes(
        site, take_snapshot(site, [node("n1")], [GPU], [])
    )


def test_only_the_reservation_is_ours_where_there_is_one() -> None:
    site = replace(SITE, reservation="yard")
    mine = Reservation("yard", 0, 1000, ("n2",))

    assert "not in reservation yard" == up(site, GPU, reservations=(mine,))["n1"]
    assert "Slurm has no reservation yard" == up(site, GPU)["n1"]


def test_what_would_run_into_a_maintenance() -> None:
    later = Reservation("fix", 1000, 2000, ("n1",), ("MAINT",))
    scene = take_snapshot(SITE, [node("n1")], [GPU], [later])

    assert "" == find_window(SITE, scene, "n1", 100, 899)
    assert "maintenance fix of Slurm begins before it would end" == find_window(SITE, scene, "n1", 100, 900)
    assert "" != find_window(SITE, scene, "n1", 100, None)
    assert "" == find_window(SITE, scene, "n2", 100, None)
    assert "" == find_window(SITE, scene, "n1", 2000, None)


def test_gpus_of_others_are_those_that_we_do_not_hold_and_stay_the_same() -> None:
    others = ForeignUse()

    assert [4, 5, 6] == [busy.gpu for busy in others.busy(node("n1"), {7}, [other(3)])]
    assert [4, 5, 6] == [busy.gpu for busy in others.busy(node("n1"), set(), [other(3)])]
    assert [3, 5, 6] == [busy.gpu for busy in others.busy(node("n1"), {4, 7}, [other(3)])]
    assert [] == list(others.busy(node("n1"), set(), []))


def test_a_node_without_cores_or_memory_left_has_no_gpus_to_give() -> None:
    assert 7 == len(ForeignUse().busy(node("n1"), {0}, [other(0, cpus=64)]))
    assert 8 == len(ForeignUse().busy(node("n1"), set(), [other(0, memory_mib=512_000)]))
    assert 0 == len(ForeignUse().busy(node("n1"), set(), [other(0, cpus=64, nodes=("n1", "n2"))]))
