"""The live placement `pack`: the kernel's choices in the core's own books, and what it does where they know more."""

from hypothesis import given, settings
from hypothesis import strategies as st
from placing.board import Board

from gpuyard.core import State, apply, decide
from gpuyard.core.state.dump import dump, load
from gpuyard.model import (
    Ask,
    AttemptEnded,
    AttemptStarted,
    DemandLearned,
    Grant,
    Job,
    JobCancelled,
    JobSpec,
    JobSubmitted,
    Milli,
    Node,
    NodeAdded,
    NodeCordoned,
    Outcome,
    PolicySpec,
    Whole,
)
from gpuyard.packing.tasks import NodeShape, Task
from gpuyard.packing.value_index import ValueIndex
from gpuyard.policies.placement import pack
from gpuyard.policies.registry import build

from .boards import scenes

POLICY = build(PolicySpec("pack", order=("fifo",), placement="pack", backfill="none"))


def ask_of(task: Task) -> Ask:
    gpus = Whole(task.gpus) if task.gpu_milli in (0, 1000) else Milli(task.gpus, task.gpu_milli)
    return Ask(gpus, cpu_milli=task.cpu_milli, memory_mib=task.memory_mib, models=task.models)


def yard(nodes: list[NodeShape], expected: list[tuple[Task, int]]) -> State:
    state = State()
    for number, node in enumerate(nodes):
        apply(state, NodeAdded(0, Node(f"n{number:03d}", "c", "p", node.model, *node[1:])))
    apply(state, DemandLearned(0, tuple((ask_of(task), weight) for task, weight in expected)))
    return state


def with_shares(expected: list[tuple[Task, int]]) -> list[tuple[Task, int]]:
    """Without anybody who wants parts of GPUs, `pack` is `best-fit`."""
    return [*expected, (Task(1_000, 0, 1, 400), 1)]


def arrive(state: State, at_ms: int, task: Task) -> tuple[Grant, ...]:
    """Submit a job and carry out what is decided; one that does not start at once is cancelled."""
    apply(state, JobSubmitted(at_ms, Job(at_ms, JobSpec("t", ask_of(task)), at_ms)))
    plan = decide(state, POLICY, at_ms)
    if plan.starts:
        apply(state, AttemptStarted(at_ms, at_ms, 1, plan.starts[0].grants))
        return plan.starts[0].grants
    if at_ms in state.jobs:
        apply(state, JobCancelled(at_ms, at_ms))
    return ()


@settings(max_examples=60)
@given(scene=scenes())
def test_it_goes_where_the_kernel_goes(scene) -> None:
    nodes, tasks, expected, order = scene
    expected = with_shares(expected)
    # The core puts tasks without GPUs on nodes without first, whatever the placement.
    nodes = [node for node in nodes if node.gpus] or [NodeShape("a", 1, 8_000, 8_192)]
    state = yard(nodes, expected)
    board = Board(nodes, tasks, expected, "pack", compile_it=False)
    went = board.run(order)

    found = [arrive(state, at_ms, tasks[number]) for at_ms, number in enumerate(order, start=1)]

    assert went == [grants[0].node if grants else -1 for grants in found]
    width = board.fleet[5]
    for number, node in enumerate(nodes):
        assert (
            list(state.nodes.gpu_free[number]) == board.fleet[3][number * width : number * width + node.gpus]
        )


@settings(max_examples=40)
@given(scene=scenes(), ends=st.lists(st.integers(0, 200), max_size=40))
def test_a_state_rebuilt_from_its_dump_has_the_same_best_nodes(scene, ends: list[int]) -> None:
    """Also after jobs have ended and a node was closed: keys kept node by node are those worked out anew."""
    nodes, tasks, expected, order = scene
    state = yard(nodes, with_shares(expected))
    running = [at_ms for at_ms, number in enumerate(order, start=1) if arrive(state, at_ms, tasks[number])]
    for end in dict.fromkeys(end % len(running) for end in ends if running):
        apply(state, AttemptEnded(1000, running[end], 1, Outcome.COMPLETED))
    apply(state, NodeCordoned(1001, 0, "test"))
    again = load(dump(state))

    for task in tasks:
        best = []
        for each in (state, again):
            shape = each.shape_of(ask_of(task))
            index = pack._value_index(each.nodes)
            assert isinstance(index, ValueIndex)
            everywhere = (1 << len(nodes)) - 1
            best.append(
                (
                    index.best(each.nodes, shape, everywhere),
                    [way.kind for way in pack.rank(each.nodes, shape)],
                )
            )
        assert best[0] == best[1]
        assert best[0][0] != 0


def test_without_demand_it_is_best_fit() -> None:
    state = State()
    for name, gpus in (("n0", 8), ("n1", 2)):
        apply(state, NodeAdded(0, Node(name, "c", "p", "a", gpus, 64_000, 65_536)))

    assert 1 == arrive(state, 1, Task(1000, 0, 1, 1000))[0].node
    assert 1 == arrive(state, 2, Task(1000, 0, 1, 300))[0].node
