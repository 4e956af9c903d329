"""How GPUs are linked: what NVIDIA's driver says in the words of its own tool, and what the emulation has."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.control.views.topology import topology_view
from gpuyard.engines.contract import GpuPlace, NoMig, Transient
from gpuyard.engines.local import topology
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.model import Node
from gpuyard.reports.topology import REPORT
from harness.steered import Steered


class NVMLError(Exception):
    pass


class Driver:
    """Four GPUs: 0 and 1 with four links between them, 2 behind the same host bridge, 3 on the other socket."""

    NVMLError = NVMLError
    opened = 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.opened -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        return int(uuid)

    def nvmlDeviceGetPciInfo(self, gpu: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=f"bus {gpu}")

    def nvmlDeviceGetNvLinkState(self, gpu: int, link: int) -> int:  # noqa: N802
        if gpu > 1 or link > 5:
            raise NVMLError("Invalid Argument")
        return int(link < 4)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: int, _link: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=f"bus {1 - gpu}")

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:  # noqa: N802
        if {one, other} == {0, 3}:
            raise NVMLError("Unknown Error")
        return 50 if 3 in (one, other) else 30

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu: int) -> int:  # noqa: N802
        if gpu == 2:
            raise NVMLError("Not Supported")
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, _gpu: int) -> int:  # noqa: N802
        return 16


READINGS = [
    GpuReading(str(gpu), "NVIDIA H200", 143_771, numa=gpu // 3, linked=(1 - gpu,) if gpu < 2 else ())
    for gpu in range(4)
]


def test_the_matrix_is_that_of_nvidia_smi_and_what_the_driver_leaves_out_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    near = {0: frozenset(range(8)), 1: frozenset({8, 9, 12})}
    found = topology.read("here", READINGS, lambda: near)
    assert [
        ("X", "NV4", "PHB", ""),
        ("NV4", "X", "PHB", "SYS"),
        ("PHB", "PHB", "X", "SYS"),
        ("", "SYS", "SYS", "X"),
    ] == [each.links for each in found]
    assert ["5.0 x16", "5.0 x16", "", "5.0 x16"] == [each.pcie for each in found]
    assert [(0, "0-7"), (1, "8-9,12")] == [(each.numa, each.cores) for each in found[2:]]
    assert 0 == driver.opened

    def broken() -> None:
        raise NVMLError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", Steered(driver, nvmlInit=broken))
    with pytest.raises(Transient, match="Driver Not Loaded"):
        topology.read("here", READINGS)


def test_links_that_go_to_a_switch_count_for_every_gpu_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    switched = Steered(Driver(), nvmlDeviceGetNvLinkRemotePciInfo=lambda *_: SimpleNamespace(busId="switch"))
    monkeypatch.setitem(sys.modules, "pynvml", switched)
    assert "NV4" == topology.read("here", READINGS)[0].links[1]


def test_emulated_nodes_have_the_links_and_domains_of_the_file() -> None:
    node = Node("e1", "c", "p", "A100-80GB", 4, 8000, 64_000, nvlink_group_size=2, numa_domains=2)
    readings = [GpuReading(f"GPU-{gpu}", "A100-80GB", 81_920, numa=gpu // 2) for gpu in range(4)]
    found = topology.pretend_places(node, readings)
    assert [("X", "NV", "SYS", "SYS"), ("SYS", "SYS", "NV", "X")] == [found[0].links, found[3].links]
    assert ["0-3", "4-7"] == [found[0].cores, found[3].cores]
    apart = Node("e2", "c", "p", "L4", 4, 8000, 64_000, numa_domains=2)
    assert ("X", "NODE", "SYS", "SYS") == topology.pretend_places(apart, readings)[0].links


class Sees(NoMig):
    """An engine with one node that it sees."""

    def topology(self) -> tuple[GpuPlace, ...]:
        return (GpuPlace("n1", 0, 81_920, ("X", "NV4"), "5.0 x16", 0, "0-7"),)


def test_a_node_that_tells_nothing_says_so() -> None:
    nodes = [Node("n1", "c", "p", "H100", 1, 8000, 1), Node("n2", "c", "p", "H100", 1, 8000, 1)]
    state = SimpleNamespace(nodes=SimpleNamespace(node=nodes))
    replica: Any = SimpleNamespace(lock=nullcontext(), catch_up=lambda: None, state=state)
    reply: Any = topology_view(replica, {"c": Sees()})  # type: ignore[dict-item]
    told, silent = reply["gpus"]
    assert (["X", "NV4"], 0) == (told["links"], told["numa"])
    assert ([], None, "", 81_920) == tuple(
        [silent[name] for name in ("links", "numa", "cores", "memory_mib")]
    )
    assert ["n2", "0", "-", "H100", "80 GiB", "-", "-", "-"] == [
        column.cell(silent) for column in REPORT.columns(reply) if not column.wide
    ]
    assert [
        "two GPUs reach each other over: NV NVLink",
        "nobody tells how the GPUs of n2 are linked",
    ] == REPORT.notes(reply)
