"""Where tasks go: nodes, switches, NVLink groups and shares of a GPU."""

from itertools import combinations

import pytest

from gpuyard.core.fleet.bits import choose_gpus, each, lowest_bit, positions
from gpuyard.model import Ask, Node, NodeCordoned, NodeDown, NodeUncordoned, PolicySpec, Start
from gpuyard.policies import registry
from gpuyard.testing import ask, node, nodes, share
from harness.machines.checked import CheckedYard
from harness.yard import Yard


def where(start: Start) -> dict[int, str]:
    return {grant.node: f"{grant.gpus:08b}" for grant in start.grants}


def one(here: Yard, wanted: Ask | int, **fields: int) -> dict[int, str]:
    """Start a job and say where."""
    job = here.submit(wanted, **fields)
    (start,) = [start for start in here.step().starts if start.job_id == job]
    return where(start)


def test_a_job_takes_only_the_nodes_it_allows() -> None:
    here = CheckedYard(
        "fifo", [node(f"n{n}", features=("odd",) if n % 2 else ("even", "nvme")) for n in range(4)]
    )
    assert {1} == set(one(here, ask(1, features=(("odd",),))))
    assert {3} == set(one(here, ask(1, on_nodes=("n3",))))
    assert {2} == set(one(here, ask(1, not_nodes=("n0",), features=(("even",), ("nvme",)))))
    assert {3, 1} == set(one(here, ask(6, tasks=2, features=(("odd", "none"),))))
    waits = here.submit(ask(1, features=(("none",),)))
    assert waits not in here.started(here.step())


@pytest.mark.parametrize(
    ("tasks", "nodes_min", "nodes_max", "counts"),
    [(4, 2, 2, [2, 2]), (4, 4, 4, [1, 1, 1, 1]), (3, 2, 2, [1, 2]), (2, 1, 0, [2]), (4, 3, 3, None)],
)
def test_tasks_are_spread_over_as_many_nodes_as_asked(
    tasks: int, nodes_min: int, nodes_max: int, counts: list[int] | None
) -> None:
    here = CheckedYard("fifo", nodes(4))
    job = here.submit(ask(1, tasks=tasks, nodes_min=nodes_min, nodes_max=nodes_max))
    starts = [start for start in here.step().starts if start.job_id == job]
    assert ([] if counts is None else [counts]) == [sorted(g.tasks for g in start.grants) for start in starts]


def groups_of(mask: int, size: int) -> set[int]:
    return {gpu // size for gpu in positions[mask]}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("count", range(1, 9))
def test_gpus_come_from_as_few_nvlink_groups_as_possible(size: int, count: int) -> None:
    """Compared with every choice there is, for every set of free GPUs of a node of eight."""
    for free in range(1 << 8):
        if free.bit_count() < count:
            continue
        chosen = choose_gpus(free, count, size, 8)
        assert chosen & ~free == 0
        assert count == chosen.bit_count()
        fewest = min(len({gpu // size for gpu in choice}) for choice in combinations(positions[free], count))
        assert fewest == len(groups_of(chosen, size)), f"{count} of {free:08b}: {chosen:08b}"


def test_a_whole_group_is_left_whole_where_a_broken_one_will_do() -> None:
    assert 0b0000_0110 == choose_gpus(0b1111_0110, 2, 4, 8)
    assert 0b1111_0000 == choose_gpus(0b1111_0111, 4, 4, 8)


def test_bits_count_from_the_lowest() -> None:
    assert (1, 4, 70) == positions[1 << 70 | 0b10010] == tuple(each(1 << 70 | 0b10010))
    assert 4 == lowest_bit(0b110000)


@pytest.mark.parametrize(
    ("placement", "wanted"),
    [("best-fit", 1), ("first-fit", 0)],
)
def test_one_task_goes_where_the_policy_likes_it(placement: str, wanted: int) -> None:
    """Node 0 has six GPUs left, node 1 has four."""
    here = CheckedYard(PolicySpec("p", placement=placement), nodes(3))
    for number, gpus in ((0, 2), (1, 4)):
        here.apply(NodeCordoned(0, 1 - number, "elsewhere"))
        here.apply(NodeCordoned(0, 2, "elsewhere"))
        one(here, gpus)
        for other in (1 - number, 2):
            here.apply(NodeUncordoned(0, other))
    assert [wanted] == list(one(here, 3))


@pytest.mark.parametrize("placement", registry.PLACEMENTS)
def test_a_gang_has_all_its_tasks_on_the_fewest_nodes(placement: str) -> None:
    here = CheckedYard(PolicySpec("p", placement=placement), nodes(4))
    assert {0: "11111111", 1: "11111111"} == one(here, ask(4, 4))
    assert 2 == len(one(here, ask(3, 3)))
    job = here.submit(ask(8, 2))
    assert [] == here.started(here.step())
    assert () == here.state.jobs[job].grants


def test_a_gang_keeps_to_one_switch_where_it_can() -> None:
    fleet = [node(f"n{i}", switch=f"s{i % 2}") for i in range(6)]
    here = CheckedYard("fifo", fleet)
    assert 1 == len({fleet[number].switch for number in one(here, ask(8, 3))})
    assert 1 == len({fleet[number].switch for number in one(here, ask(8, 2))})


def test_the_smallest_switch_that_is_enough_is_taken() -> None:
    fleet = [node(f"n{i}", switch="large" if i < 3 else "small") for i in range(5)]
    here = CheckedYard("fifo", fleet)
    assert {3, 4} == set(one(here, ask(8, 2)))


def test_a_gang_is_spread_only_as_far_as_it_allows() -> None:
    here = CheckedYard("fifo", nodes(3))
    for _ in range(3):
        here.submit(6, limit_ms=1000)
        here.step()
    narrow = here.submit(ask(1, 6, nodes_max=2))
    wide = here.submit(ask(1, 6, nodes_max=3))
    assert [wide] == here.started(here.step())
    assert 3 == len(here.state.jobs[wide].grants)
    assert () == here.state.jobs[narrow].grants


@pytest.mark.parametrize("closed", [NodeDown, NodeCordoned])
def test_nothing_goes_where_nothing_may_go(closed: type) -> None:
    here = CheckedYard("fifo", nodes(2))
    here.apply(closed(0, 0, "closed"))
    assert [1] == list(one(here, 1))
    job = here.submit(8)
    assert [] == here.started(here.step())
    assert job in here.state.jobs


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        (ask(1), 1),
        (ask(1, models=("H100",)), 0),
        (ask(1, models=("A100-80GB", "H100")), 1),
        (ask(1, pools=("spot",)), 2),
        (ask(1, memory_mib=1 << 21), 2),
        (ask(0), 3),
        (ask(0, cpu_milli=65_000), 2),
    ],
)
def test_models_pools_cores_and_memory_are_kept(wanted: Ask, number: int) -> None:
    """The cheapest model that will do, and no GPU node for who asks for none, unless it must be."""
    fleet: list[Node] = [
        node("h"),
        node("a", model="A100-80GB"),
        node("s", pool="spot", memory_mib=1 << 22, cpu_milli=128_000),
        node("c", gpus=0),
    ]
    assert [number] == list(one(CheckedYard("fifo", fleet), wanted))


def test_shares_of_one_gpu_add_up_to_it_and_no_further() -> None:
    here = CheckedYard("fifo", nodes(1, gpus=2))
    assert {0: "00000001"} == one(here, share(600))
    assert {0: "00000001"} == one(here, share(400))
    assert {0: "00000010"} == one(here, share(500))
    here.submit(share(501))
    assert [] == here.started(here.step())


def test_a_shared_gpu_is_filled_before_another_is_broken_into() -> None:
    here = CheckedYard("fifo", nodes(2, gpus=2))
    one(here, share(300))
    assert {0: "00000001"} == one(here, share(300))
    assert {0: "00000011"} == one(here, share(400, count=2))


def test_a_whole_gpu_is_never_one_that_is_shared() -> None:
    here = CheckedYard("fifo", nodes(1, gpus=2))
    one(here, share(1))
    assert {0: "00000010"} == one(here, 1)
    here.submit(1)
    assert [] == here.started(here.step())
