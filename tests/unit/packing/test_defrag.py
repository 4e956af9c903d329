"""Defragmentation: what becomes free, what it destroys, and that a plan can be carried out in any order."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.core import State, apply
from gpuyard.core.state.dump import canonical, dump, load
from gpuyard.model import (
    Ask,
    AttemptConfirmed,
    AttemptStarted,
    ConfigSet,
    Grant,
    Job,
    JobClass,
    JobSpec,
    JobSubmitted,
    Milli,
    Node,
    NodeAdded,
    Settings,
    Whole,
)
from gpuyard.model.units import MILLI, MINUTE_MS
from gpuyard.packing.defrag import Emptied, empty_gpus, empty_nodes
from gpuyard.policies.placement import best_fit

CLASSES = (JobClass("batch", min_run_ms=0), JobClass("fixed", preemptible=False))
NOW_MS = 60 * MINUTE_MS


def yard(nodes: int, gpus: int = 2, cpu_milli: int = 16_000) -> State:
    state = State()
    apply(state, ConfigSet(0, Settings(classes=CLASSES)))
    for number in range(nodes):
        apply(state, NodeAdded(0, Node(f"n{number}", "c", "p", "a", gpus, cpu_milli, 65_536)))
    return state


def run(state: State, job_id: int, node: int, gpus: int, milli: int = MILLI, **fields) -> None:
    """A job that runs there since the beginning; it saves its work every 10 minutes unless told otherwise."""
    count = gpus.bit_count()
    request = Whole(count) if milli == MILLI else Milli(count, milli)
    spec = JobSpec("t", Ask(request, cpu_milli=1000), klass="batch", checkpoint_ms=10 * MINUTE_MS)
    spec = replace(spec, restart_cost_ms=MINUTE_MS, **fields)
    apply(state, JobSubmitted(0, Job(job_id, spec, 0)))
    apply(state, AttemptStarted(0, job_id, 1, (Grant(node, gpus, milli, 1000, 0, 1),)))
    apply(state, AttemptConfirmed(0, job_id, 1))


def test_a_node_is_emptied_into_one_that_is_in_use() -> None:
    state = yard(3)
    run(state, 1, 0, 0b01)
    run(state, 2, 1, 0b01)

    (emptied,) = empty_nodes(state, best_fit.place, NOW_MS, 10)

    (move,) = emptied.moves
    assert (0, 0b11, 1, 1) == (emptied.node, emptied.gpus, move.job_id, move.target.node)
    assert MINUTE_MS * MILLI == emptied.destroyed_milli_ms


@pytest.mark.parametrize("fields", [{"checkpoint_ms": 0}, {"klass": "fixed"}])
def test_who_would_lose_everything_or_may_not_be_stopped_stays(fields) -> None:
    state = yard(2)
    run(state, 1, 0, 0b01, **fields)
    run(state, 2, 1, 0b01, **fields)

    assert () == empty_nodes(state, best_fit.place, NOW_MS, 10)


def test_the_cheapest_node_is_emptied_and_the_limit_on_moves_holds() -> None:
    """The job on node 0 has worked 5 minutes since its checkpoint, the one on node 1 nothing."""
    state = yard(2)
    run(state, 1, 0, 0b01, checkpoint_ms=11 * MINUTE_MS)
    run(state, 2, 1, 0b01)

    assert [1] == [emptied.node for emptied in empty_nodes(state, best_fit.place, NOW_MS, 1)]
    assert () == empty_nodes(state, best_fit.place, NOW_MS, 0)


def test_no_node_is_emptied_for_half() -> None:
    """Of the two jobs on each node only one would find room on the other."""
    state = yard(2, gpus=4)
    run(state, 1, 0, 0b0001)
    run(state, 2, 0, 0b0110)
    run(state, 3, 1, 0b0001)
    run(state, 4, 1, 0b0110)

    assert () == empty_nodes(state, best_fit.place, NOW_MS, 10)


def test_what_is_kept_for_somebody_is_not_free() -> None:
    state = yard(2)
    run(state, 1, 0, 0b01)
    run(state, 2, 1, 0b01)
    state.nodes.set_foreign(0, 0b10, "a stranger")
    state.nodes.set_foreign(1, 0b10, "a stranger")

    assert () == empty_nodes(state, best_fit.place, NOW_MS, 10)


def test_a_shared_gpu_is_emptied_into_another() -> None:
    state = yard(2)
    run(state, 1, 0, 0b01, 300)
    run(state, 2, 0, 0b10, 500)
    run(state, 3, 1, 0b01, 600)

    found = empty_gpus(state, NOW_MS, 10)

    ((node, gpus, (move,)),) = found
    assert (0, 0b01, 1) == (node, gpus, move.job_id)
    # Where the least is left afterwards: 600 + 300, rather than 500 + 300 on its own node.
    assert (1, 0b01, 300) == (move.target.node, move.target.gpus, move.target.milli)


JOBS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 3),
        st.sampled_from([100, 250, 300, 500, 800, MILLI, MILLI]),
        st.sampled_from([0, 7, 10, 25]),
    ),
    max_size=24,
)


@settings(max_examples=150)
@given(jobs=JOBS, cores=st.sampled_from([3000, 16_000]), by_gpu=st.booleans(), backwards=st.booleans())
def test_a_plan_can_be_carried_out_in_any_order(jobs, cores: int, by_gpu: bool, backwards: bool) -> None:
    state = yard(6, gpus=4, cpu_milli=cores)
    for job_id, (node, gpu, milli, minutes) in enumerate(jobs, start=1):
        if state.nodes.fits((Grant(node, 1 << gpu, milli, 1000, 0, 1),)):
            run(state, job_id, node, 1 << gpu, milli, checkpoint_ms=minutes * MINUTE_MS)
        else:
            state.last_job_id = job_id
    before = canonical(state)
    idle = [n.bit_count() for n in state.nodes.free_mask]

    found = empty_gpus(state, NOW_MS, 8) if by_gpu else empty_nodes(state, best_fit.place, NOW_MS, 8)

    assert before == canonical(state)
    moves = [move for emptied in found for move in emptied.moves]
    assert len(moves) <= 8
    assert len(moves) == len({move.job_id for move in moves})
    _carry_out(load(dump(state)), found, moves[::-1] if backwards else moves)
    if found:
        assert by_gpu or all(idle[emptied.node] < 4 for emptied in found)


def _carry_out(state: State, found: tuple[Emptied, ...], moves) -> None:
    nodes = state.nodes
    for move in moves:
        record = state.jobs[move.job_id]
        assert record.grants == (move.source,)
        assert record.job.spec.checkpoint_ms > 0
        assert record.destroyed_gpu_ms(NOW_MS) == move.destroyed_milli_ms
        # It stops before it starts again, so its own room counts where it stays on its node.
        nodes.give((move.source,))
        assert nodes.fits((move.target,))
        nodes.take((move.target,))
    for emptied in found:
        assert emptied.gpus == emptied.gpus & nodes.free_mask[emptied.node]
