"""The packing protocol: lists as they are read and refused, typical pods, orders of arrival, and the bound."""

from itertools import product
from pathlib import Path

import pytest
from placing.bound import Bound, bound_pct
from placing.lists import read_nodes, read_pods
from placing.protocol import Comparison, arrivals, typical

from gpuyard.errors import BadInput
from gpuyard.packing.tasks import NodeShape, Task

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"


def test_lists_are_read_and_sorted_by_name(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(NODES + "b,96000,393216,8,G2\na,64000,262144,2,P100\n")
    pods.write_text(PODS + "y,4000,1024,1,320,P100|T4\nx,8000,2048,0,0,\n")

    assert [NodeShape("P100", 2, 64000, 262144), NodeShape("G2", 8, 96000, 393216)] == read_nodes(nodes)
    assert [Task(8000, 2048, 0, 0), Task(4000, 1024, 1, 320, ("P100", "T4"))] == read_pods(pods)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NODES + "a,64000,262144,2,P100\nb,many,1,1,T4\n", ":3: cpu_milli is 'many', not a number"),
        (NODES + "a,64000,262144,-2,P100\n", ":2: gpu is '-2', which is negative"),
        (NODES + "a,64000,262144,2\n", ":2: has 4 columns where the header has 5"),
        ("sn,cpu_milli,gpu,model\na,1,1,T4\n", ":1: there is no column memory_mib"),
        (NODES + "a,64000,262144,0,\n", ": no node in it has a GPU"),
        (NODES, ": no node in it has a GPU"),
        ("", ": is empty"),
    ],
)
def test_a_node_list_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(text)

    with pytest.raises(BadInput) as refused:
        read_nodes(path)
    assert refused.value.message.startswith(f"{path}{message}")
    assert refused.value.hint


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("x,1000,1,1,0,", ":2: gpu_milli is '0' for 1 GPUs"),
        ("x,1000,1,1,1001,", ":2: gpu_milli is '1001', which is absurdly large"),
        ("x,1000,1,0,0,", ": no pod in it asks for a GPU"),
    ],
)
def test_a_pod_list_is_refused_by_line(tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(f"{PODS}{row}\n")

    with pytest.raises(BadInput) as refused:
        read_pods(path)
    assert refused.value.message.startswith(f"{path}{message}")


def test_typical_pods_are_the_most_frequent_until_nearly_all_are_covered() -> None:
    often, seldom, rare = Task(1, 5, 1, 500), Task(2, 5, 1, 500), Task(3, 5, 0, 0)
    other_memory = often._replace(memory_mib=9)

    found = typical([often] * 60 + [other_memory] * 20 + [seldom] * 16 + [rare] * 4)

    assert [(Task(1, 0, 1, 500), 80), (Task(2, 0, 1, 500), 16)] == found


def test_orders_are_inflated_or_thinned_and_repeat_by_seed() -> None:
    pods = [Task(1, 1, 1, 500)] * 4 + [Task(1, 1, 2, 1000)]

    order = arrivals(pods, 10_000, 42)
    assert order == arrivals(pods, 10_000, 42) != arrivals(pods, 10_000, 43)
    assert 12_000 < sum(pod.asked_milli for pod in order) <= 14_000
    assert sum(pod.asked_milli for pod in arrivals(pods * 100, 10_000, 42)) <= 14_000


def test_an_endless_list_is_refused() -> None:
    with pytest.raises(BadInput, match="takes more than 50 pods"):
        arrivals([Task(1, 1, 1, 1), Task(1, 1, 0, 0)], 1_000_000, 42, pods_max=50)


def test_a_run_counts_what_arrived_and_what_found_room() -> None:
    """Two GPUs, tasks of 600: two fit, 600 of 2,000 each, and nothing else does."""
    lists = Comparison([NodeShape("a", 2, 96_000, 65_536)], [Task(1000, 0, 1, 600)])
    outcome = lists.run(lists.board("pack", compile_it=False), 42)

    assert {90: 60.0, 100: 60.0, 130: 60.0} == outcome.allocation_pct
    assert (0, {((), 1): 2}) == (outcome.refused_while_fitting, outcome.first_refused)


def test_the_bound_is_what_trying_everything_finds() -> None:
    """Two GPUs of one node and 10 cores; the best subset of a few tasks, by trying them all."""
    pytest.importorskip("scipy")
    node = NodeShape("a", 2, 10_000, 65_536)
    tasks = [Task(3000, 0, 1, 400), Task(3000, 0, 1, 600), Task(1000, 0, 1, 1000), Task(5000, 0, 0, 0)]
    bound = Bound([node], tasks)

    for counts in product(range(3), repeat=4):
        most = bound.most_milli(counts)
        assert most is not None
        assert _tried(counts) <= most + 1e-6
        assert most <= 2000 + 1e-6
    # Where nothing is fractional the bound is reached.
    assert 2000 == pytest.approx(bound.most_milli([1, 1, 1, 0]) or 0)
    assert 1400 == pytest.approx(bound.most_milli([1, 0, 1, 2]) or 0)


def _tried(counts: tuple[int, ...]) -> int:
    best = 0
    for small, large, whole in product(*(range(count + 1) for count in counts[:3])):
        on_two = whole <= 2 and small + large <= [4, 2, 0][whole] and large <= 2 - whole
        halves = small <= 2 * (2 - whole) - large if large else small <= 2 * (2 - whole)
        if on_two and halves and 3000 * (small + large) + 1000 * whole <= 10_000:
            best = max(best, 400 * small + 600 * large + 1000 * whole)
    return best


def test_the_bound_with_tasks_that_must_be_taken() -> None:
    """One GPU: of 810 and 1000, leaving out the first is best, and taking it costs 190. Both cannot be taken."""
    pytest.importorskip("scipy")
    bound = Bound([NodeShape("a", 1, 10_000, 65_536)], [Task(1000, 0, 1, 810), Task(1000, 0, 1, 1000)])

    assert 1000 == pytest.approx(bound.most_milli([1, 1]) or 0)
    assert 810 == pytest.approx(bound.most_milli([1, 1], [1, 0]) or 0)
    assert bound.most_milli([1, 1], [1, 1]) is None


def test_a_bound_that_has_to_take_too_much_is_none_however_much_else_is_taken() -> None:
    """Three hundred GPUs are filled, and one task too many must be taken: what is short is not lost in the rest."""
    pytest.importorskip("scipy")
    bound = Bound([NodeShape("a", 4, 10_000, 65_536)] * 75, [Task(1000, 0, 1, 1000)])

    assert 300_000 == pytest.approx(bound.most_milli([301], [300]) or 0)
    assert bound.most_milli([301], [301]) is None


def test_a_kind_that_is_refused_early_does_not_let_the_bound_leave_out_the_others() -> None:
    """Who names `b` was refused at once. An 800 that came before the first refusal of its own kind is taken still."""
    pytest.importorskip("scipy")
    nodes = [NodeShape("a", 1, 96_000, 65_536), NodeShape("b", 1, 96_000, 65_536)]
    small, large = Task(1, 0, 1, 800, ("a",)), Task(1, 0, 1, 1000, ("a",))
    lists = Comparison(nodes, [small, large])
    limit = Bound(nodes, lists.tasks)
    number = {task: i for i, task in enumerate(lists.tasks)}
    lists.order = lambda _seed: [number[each] for each in (small, large)]  # type: ignore[method-assign]

    assert 50 == pytest.approx(bound_pct(lists, limit, 42) or 0)
    assert 40 == pytest.approx(bound_pct(lists, limit, 42, {(("b",), 1): 0, (("a",), 1): 1}) or 0)
    assert 50 == pytest.approx(bound_pct(lists, limit, 42, {(("a",), 1): 0}) or 0)
