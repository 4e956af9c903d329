"""This machine as a node: what a pool of yard.yaml says about it, against what is found."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuyard.config.reading import loads
from gpuyard.control.fleet import choose_fleet
from gpuyard.control.options import Options
from gpuyard.control.serve import Yard
from gpuyard.engines.local.hosts import MachineReader, ThisMachine, emulated
from gpuyard.engines.local.translate import MachineReading
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.model import Node

POOL = """\
version: 1
clusters:
  box:
    pools:
      gpu: {nodes: 1, gpus: 2 x T4, cpus: CPUS, memory: MEMORY, features: [nvme]}
"""


GPUS = [GpuReading(f"GPU-{i}", "Tesla T4", 15_360) for i in range(2)]
BOX = MachineReader(lambda: "box1", lambda *_: GPUS, lambda name: MachineReading(name, 16_000, 65_536))


def found(text: str, emulate: str = "", reader: MachineReader = BOX) -> tuple[Node, tuple[str, ...]]:
    nodes = choose_fleet(loads(text, "yard.yaml"), emulate).clusters[0].keys.nodes
    if isinstance(nodes, ThisMachine):
        nodes = replace(nodes, reader=reader)
    (host,) = nodes.read()
    return host.node, nodes.notes([host])


def test_the_pool_of_one_machine_counts_as_far_as_the_machine_goes() -> None:
    node, notes = found(POOL.replace("CPUS", "8").replace("MEMORY", "32G"))

    assert ("box1", "gpu", ("nvme",)) == (node.name, node.pool, node.features)
    assert ("T4", 2, 8_000, 32_768) == (node.gpu_model, node.gpus, node.cpu_milli, node.memory_mib)
    assert () == notes


def test_what_the_machine_lacks_of_its_pool_is_said_and_not_handed_out() -> None:
    text = POOL.replace("CPUS", "96").replace("MEMORY", "1T").replace("2 x T4", "8 x H100")
    node, notes = found(text)

    assert ("T4", 2, 16_000, 65_536) == (node.gpu_model, node.gpus, node.cpu_milli, node.memory_mib)
    assert notes == (
        "pool gpu has 8 x H100 in yard.yaml, and this machine has 2 x T4: that is what counts",
        "pool gpu has 96 cores in yard.yaml, and this machine has 16: that is what counts",
        "pool gpu has 1024 GiB in yard.yaml, and this machine has 64 GiB: that is what counts",
    )


def test_one_emulated_node_is_as_the_file_has_it() -> None:
    node, (note,) = found(POOL.replace("CPUS", "96").replace("MEMORY", "1T, emulate: true"))

    assert ("gpu-0001", "gpu", 96_000, 1 << 20) == (node.name, node.pool, node.cpu_milli, node.memory_mib)
    assert note.startswith("1 node is emulated on this machine, with 2 GPUs")


def test_a_machine_without_pools_and_one_that_pretends() -> None:
    bare = "version: 1\nclusters: {box: {features: [nvme]}}\n"

    node, _notes = found(bare)
    assert ("local", 16_000, ("nvme",)) == (node.pool, node.cpu_milli, node.features)
    pretends = choose_fleet(loads(bare, "yard.yaml"), "4 x H100").clusters[0].keys.nodes
    assert ("4 x H100 emulated", ("the GPUs are emulated",)) == (
        pretends.words(),
        pretends.notes(pretends.read()),
    )


@pytest.mark.parametrize(
    ("text", "pretends"),
    [
        (
            "version: 1\nclusters: {box: {engine: local}}\n",
            "box: {engine: local, gpus: 8 x A100-80GB, emulate: true}",
        ),
        (
            POOL.replace("CPUS", "8").replace("MEMORY", "32G"),
            "box: {engine: local, pools: {gpu: {nodes: 1, gpus: 2 x T4, emulate: true}}}",
        ),
    ],
)
def test_a_file_on_a_machine_without_gpus_says_that_there_are_none_and_how_to_pretend(
    text: str, pretends: str
) -> None:
    bare = replace(BOX, gpus=lambda emulate, node: emulated(emulate, node) if emulate else [])

    def told(text: str, emulate: str = "", reader: MachineReader = bare) -> list[str]:
        return [note for note in found(text, emulate, reader)[1] if note.startswith("no GPUs were found")]

    assert [] == told(text, reader=BOX)
    (note,) = told(text)
    assert note.startswith("no GPUs were found: the yard has 0. ")
    assert pretends in note
    file = note.partition("`")[2].partition("`")[0]
    assert [] == told(f"version: 1\n{file}\n"), "the file that it shows"
    assert [] == told(text, "2 x T4")


@pytest.mark.parametrize("text", ["", "version: 1\nclusters: {box: {engine: local}}\n", POOL])
def test_a_gpu_that_cannot_be_asked_is_said_to_be_there_and_keeps_no_server_from_its_start(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NVMLError(Exception):
        """What the driver's library raises."""

    def lost() -> None:
        raise NVMLError("GPU is lost")

    driver = SimpleNamespace(NVMLError=NVMLError, nvmlInit=list, nvmlShutdown=list, nvmlDeviceGetCount=lost)
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    file = tmp_path / "yard.yaml"
    file.write_text(text := text.replace("CPUS", "8").replace("MEMORY", "32G"))
    here = Yard(Options(tmp_path / "data", config=file if text else None, port=0))
    try:
        (nodes,) = [cluster.keys.nodes for cluster in here.fleet.clusters]
        assert not nodes.emulated
        assert "the GPUs cannot be read: GPU is lost" in here.notes
        assert not [note for note in here.notes if note.startswith("no GPUs were found")]
        # Nor does a request for a file look at them.
        assert () == here.configs.proposal(text or "version: 1\nclusters: {local: {}}\n", "yard.yaml").fleet
    finally:
        here.close()
