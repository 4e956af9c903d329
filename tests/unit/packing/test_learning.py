"""Demand that is learned from the jobs that came."""

import random

from hypothesis import given
from hypothesis import strategies as st

from gpuyard.core.state.dump import dump, load
from gpuyard.model import Ask, DemandLearned, Mig, Whole
from gpuyard.packing.learning import (
    ASKS_MAX,
    FIRST_JOBS,
    JOB,
    MEMORY_JOBS,
    Learner,
    differs,
    merged,
    typical,
)
from gpuyard.testing import ask, nodes, share
from harness.yard import Yard

ASKS = st.sampled_from(
    [ask(1), ask(8), share(250), share(500), ask(Mig(1, "1g.10gb")), Ask(Whole(0), cpu_milli=4000)]
)
ROWS = st.lists(st.tuples(ASKS, st.integers(1, 9_000)), max_size=8)


@given(known=ROWS, came=ROWS)
def test_no_more_is_remembered_than_fits_and_the_new_counts_in_full(known, came) -> None:
    before = merged((), known)
    after = merged(before, came)

    weights, fresh = dict(after), {}
    for each, count in came:
        fresh[typical(each)] = fresh.get(typical(each), 0) + count * JOB
    assert all(weights[each] >= count for each, count in fresh.items())
    assert sum(weights.values()) <= max(MEMORY_JOBS * JOB, sum(fresh.values()))
    assert after == merged(tuple(reversed(before)), list(reversed(came))), "in whatever order they are told"


def test_what_no_longer_comes_fades_and_is_forgotten() -> None:
    demand = merged((), [(share(500), 4000)])
    left = []
    for _ in range(100):
        demand = merged(demand, [(ask(1), 500)])
        left.append(dict(demand).get(typical(share(500)), 0))
    assert left == sorted(left, reverse=True)
    assert 2 * left[5] < 4000 * JOB < 2 * left[4]
    assert 0 == left[-1]


def test_asks_that_differ_only_in_memory_or_in_their_nodes_are_one_kind() -> None:
    many = [(Ask(Whole(1), memory_mib=m, on_nodes=(f"n{m}",)), 1) for m in range(300)]
    assert ((Ask(Whole(1)), 300 * JOB),) == merged((), many)
    cores = [(Ask(Whole(1), cpu_milli=m), 1 + m % 7) for m in range(300)]
    kept = merged((), cores)
    assert ASKS_MAX == len(kept)
    assert 5 * JOB <= kept[-1][1], "those that come most often"


def test_it_differs_if_gpus_are_asked_for_otherwise() -> None:
    mixed = ((ask(1), 90), (share(500), 20))
    assert not differs(mixed, ((ask(1), 180), (share(500), 40)))
    assert not differs(mixed, ((ask(1), 91), (share(500), 19), (Ask(Whole(0), cpu_milli=1), 5000)))
    assert differs(mixed, ((ask(1), 90), (share(250), 40)))
    assert differs((), mixed)
    assert not differs((), ((Ask(Whole(0), cpu_milli=1), 50),))


def test_a_learner_that_was_restarted_learns_the_same() -> None:
    """Whoever folds the log, from the beginning or from a dump, is told the same demand."""
    rng = random.Random(1)
    here = Yard("pack", nodes(4))
    learner, told = Learner(), 0
    for _ in range(12 * FIRST_JOBS):
        here.now_ms += 1000
        here.submit(rng.choice([ask(1), share(250), share(400)] if told < 3 else [ask(2), share(700)]))
        before = load(dump(here.state))
        found = learner.look(here.state)
        if found is not None:
            assert found == Learner().look(before)
            here.apply(DemandLearned(here.now_ms, found))
            told += 1
            assert (0, {}) == (here.state.arrivals, here.state.arrived)
    assert 4 <= told <= 10
    weights = dict(here.state.demand)
    assert weights[typical(share(700))] > weights[typical(share(400))]
