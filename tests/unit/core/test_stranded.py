"""GPUs that are free where no waiting job fits."""

from gpuyard.core.fleet.stranded import stranded_milli
from gpuyard.model import NodeCordoned
from gpuyard.testing import ask, node, share
from harness.yard import Yard


def stranded(here: Yard) -> dict[str, int]:
    found = stranded_milli(here.state.nodes, here.state.queue.shapes())
    return {here.state.nodes.node[number].name: milli for number, milli in found.items()}


def test_free_gpus_are_stranded_where_no_waiting_job_has_room() -> None:
    here = Yard("fifo", [node("a"), node("b"), node("c", gpus=4, cpu_milli=8_000)])
    for _ in range(2):
        here.submit(6)
    here.step()
    assert {} == stranded(here), "nothing waits"
    here.submit(ask(4, cpu_milli=9_000))
    here.submit(ask(3, tasks=4, nodes_min=4))
    here.step()
    assert {"a": 2000, "b": 2000, "c": 4000} == stranded(here), "two free GPUs, and too few cores"
    here.submit(ask(2, on_nodes=("b",)))
    assert {"a": 2000, "c": 4000} == stranded(here)
    here.apply(NodeCordoned(0, 0, "work"))
    assert {"c": 4000} == stranded(here), "a node that takes no jobs has nothing free"


def test_parts_of_a_gpu_are_of_use_to_a_share_that_fits() -> None:
    here = Yard("fifo", [node("a", gpus=1)])
    here.submit(share(600))
    here.step()
    here.submit(share(500))
    here.step()
    assert {"a": 400} == stranded(here)
    here.submit(share(400))
    assert {} == stranded(here)
