"""The kernel: compiled and interpreted alike, cached keys as from nothing, no overbooking, no refusal in vain."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placing import kernel
from placing.board import POLICIES, Board
from placing.compiled import numba_is_here

from gpuyard.model.units import MILLI
from gpuyard.packing import prices, values
from gpuyard.packing.tasks import NodeShape, Task
from gpuyard.packing.values import Weighing

from .boards import scenes

ClusterSnapshot = tuple[list[NodeShape], list[Task], list[tuple[Task, int]], list[int]]

NAMES = st.sampled_from(sorted(POLICIES))


def test_what_is_written_twice_is_the_same() -> None:
    """The kernel is compiled from one file alone, so it repeats a few constants."""
    assert (values.NO_ROOM, values.KEY_BITS, values.CORE_BITS, values.QUANTUM, MILLI) == (
        kernel.NO_ROOM,
        kernel.KEY_BITS,
        kernel.CORE_BITS,
        kernel.QUANTUM,
        kernel.MILLI,
    )
    assert values.QUANTUM == prices.GPU // 1000


@settings(max_examples=60)
@given(scene=scenes(), policy=NAMES, draws=st.randoms(use_true_random=False))
def test_compiled_and_interpreted_are_the_same(scene: ClusterSnapshot, policy: str, draws) -> None:
    if not numba_is_here():
        pytest.skip("numba is not installed")
    nodes, tasks, expected, order = scene
    drawn = [draws.getrandbits(40) for _ in order]
    python = Board(nodes, tasks, expected, policy, compile_it=False)
    numba = Board(nodes, tasks, expected, policy, compile_it=True)

    assert python.run(order, drawn) == numba.run(order, drawn)
    assert python.refused_while_fitting == numba.refused_while_fitting == 0
    for column in (1, 2, 3, 10, 11):
        assert list(python.fleet[column]) == [int(x) for x in numba.fleet[column]]
    assert python.cache[0] == [int(x) for x in numba.cache[0]]


@settings(max_examples=100)
@given(scene=scenes(), policy=NAMES)
def test_nothing_is_overbooked_and_nothing_that_fits_is_refused(scene: ClusterSnapshot, policy: str) -> None:
    """By books kept here, apart from the kernel's: GPUs are known only in sum, so each is checked in the columns."""
    nodes, tasks, expected, order = scene
    board = Board(nodes, tasks, expected, policy, compile_it=False)
    went = board.run(order)

    cpu, memory = [n.cpu_milli for n in nodes], [n.memory_mib for n in nodes]
    gpu = [n.gpus * MILLI for n in nodes]
    for number, node in zip(order, went, strict=True):
        task = tasks[number]
        if node >= 0:
            assert nodes[node].could_run(task)
            cpu[node] -= task.cpu_milli
            memory[node] -= task.memory_mib
            gpu[node] -= task.asked_milli
    assert (cpu, memory) == (board.fleet[1], board.fleet[2])
    width = board.fleet[5]
    rows = [board.fleet[3][i * width : i * width + n.gpus] for i, n in enumerate(nodes)]
    assert gpu == [sum(row) for row in rows]
    assert min([*cpu, *memory]) >= 0
    assert all(0 <= left <= MILLI for row in rows for left in row)
    for number in {n for n, node in zip(order, went, strict=True) if node < 0}:
        first = next(i for i, node in enumerate(went) if node < 0 and order[i] == number)
        board.run(order[:first])
        assert [] == [i for i in range(len(nodes)) if _fits(board, nodes, i, tasks[number])]


def _fits(board: Board, nodes: list[NodeShape], node: int, task: Task) -> bool:
    """Whether there is room, asked apart from the kernel."""
    _kind, cpu, memory, gpu, _have, width, *_rest = board.fleet
    row = gpu[node * width : node * width + nodes[node].gpus]
    return (
        nodes[node].could_run(task)
        and cpu[node] >= task.cpu_milli
        and memory[node] >= task.memory_mib
        and sum(left >= task.gpu_milli for left in row) >= task.gpus
    )


@settings(max_examples=60)
@given(scene=scenes(), policy=st.sampled_from(["best-fit", "fgd", "pack"]))
def test_cached_keys_are_those_worked_out_from_nothing(scene: ClusterSnapshot, policy: str) -> None:
    nodes, tasks, expected, order = scene
    board = Board(nodes, tasks, expected, policy, compile_it=False)
    board.run(order)
    keys, blocks = board.cache[0], board.cache[1]
    per = -(-len(nodes) // kernel.BLOCK)
    for size in range(len(tasks)):
        kernel.refresh(board.policy, board.fleet, board._frag, board.cache, board._sizes, size, board._spare)
        anew = [board.key(size, node)[0] for node in range(len(nodes))]
        assert anew == keys[size * len(nodes) : (size + 1) * len(nodes)]
        least = [min(anew[i : i + kernel.BLOCK]) for i in range(0, len(nodes), kernel.BLOCK)]
        assert least == blocks[size * per : (size + 1) * per]
        best = kernel.best_node(board.cache, len(nodes), size)
        assert best == (anew.index(min(anew)) if min(anew) < kernel.NO_ROOM else -1)


def test_a_share_goes_beside_the_one_it_fills_up() -> None:
    nodes = [NodeShape("a", 2, 96_000, 65_536)] * 2
    tasks = [Task(1000, 0, 1, 300), Task(1000, 0, 1, 700), Task(1000, 0, 2, 1000)]
    board = Board(nodes, tasks, [(tasks[0], 5), (tasks[1], 5), (tasks[2], 1)], "pack", compile_it=False)

    assert [0, 0, 1] == board.run([0, 1, 2])
    assert [0, 1000, 0, 0] == board.fleet[3]


def test_cores_that_idle_gpus_need_are_left_to_them() -> None:
    """A task with many cores and no GPU goes where GPUs do not go short for it, though it is the larger node."""
    nodes = [NodeShape("a", 8, 96_000, 65_536), NodeShape("b", 2, 104_000, 65_536)]
    tasks = [Task(32_000, 0, 0, 0), Task(11_000, 0, 1, 1000)]
    board = Board(nodes, tasks, [(tasks[1], 1)], "pack", compile_it=False)

    assert [1] == board.run([0])


def test_a_model_that_is_asked_for_by_name_is_spared() -> None:
    nodes = [NodeShape("wanted", 1, 96_000, 65_536), NodeShape("other", 1, 96_000, 65_536)]
    tasks = [Task(1000, 0, 1, 1000), Task(1000, 0, 1, 1000, ("wanted",))]
    board = Board(nodes, tasks, [(tasks[0], 3), (tasks[1], 1)], "pack", compile_it=False)

    assert [1, 0] == board.run([0, 1])


def test_nodes_with_many_cores_are_left_to_who_needs_them() -> None:
    """Both would do for a task with few cores. If all that comes could be chosen, the first would be as good."""
    nodes = [NodeShape("a", 2, 96_000, 65_536), NodeShape("a", 2, 16_000, 65_536)]
    light, heavy = Task(3_000, 0, 1, 810), Task(12_000, 0, 1, 650)
    expected = [(light, 1), (heavy, 2)]

    assert [1] == Board(nodes, [light, heavy], expected, "pack", compile_it=False).run([0])
    no_chance = Board(nodes, [light, heavy], expected, "pack", compile_it=False, weighing=Weighing(chance=0))
    assert [0] == no_chance.run([0])


def test_random_goes_everywhere_and_best_fit_to_the_fullest() -> None:
    nodes = [NodeShape("a", 4, 96_000, 65_536), NodeShape("a", 2, 96_000, 65_536)]
    tasks = [Task(1000, 0, 1, 1000)]

    went = [
        Board(nodes, tasks, [(tasks[0], 1)], "random", compile_it=False).run([0], [draw])[0]
        for draw in range(4)
    ]
    assert [0, 1, 0, 1] == went
    assert [1, 1, 0] == Board(nodes, tasks, [(tasks[0], 1)], "best-fit", compile_it=False).run([0] * 3)
