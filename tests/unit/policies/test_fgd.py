"""`fgd`: the measure against its definition in fractions, the sets against scores worked out anew, and the rules."""

from bisect import bisect_right
from fractions import Fraction
from math import exp, log

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuyard.core import State, apply, decide
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.core.fleet.placing import gang
from gpuyard.core.state.dump import canonical, dump, load
from gpuyard.model import (
    Ask,
    AttemptEnded,
    AttemptStarted,
    DemandLearned,
    Grant,
    Job,
    JobSpec,
    JobSubmitted,
    Milli,
    Node,
    NodeAdded,
    NodeCordoned,
    NodeDown,
    NodeUp,
    Outcome,
    PolicySpec,
    Whole,
)
from gpuyard.model.units import HOUR_MS
from gpuyard.packing.fgd.measure import compute_thresholds
from gpuyard.policies.placement import best_fit, fgd
from gpuyard.policies.registry import build

Mix = tuple[tuple[Ask, int], ...]


def node(number: int, gpus: int = 4, model: str = "A", cpu: int = 32_000, memory: int = 1000) -> Node:
    return Node(f"n{number:02}", "c", "p", model, gpus, cpu, memory)


def yard(nodes: list[Node], mix: Mix) -> State:
    state = State()
    for each in nodes:
        apply(state, NodeAdded(0, each))
    apply(state, DemandLearned(0, mix))
    return state


def choose(state: State, ask: Ask, place=fgd.place, rank=fgd.rank) -> tuple[Grant, ...] | None:
    """As `decide` does it: way by way, in the policy's order."""
    shape = state.shape_of(ask)
    for way in rank(state.nodes, shape):
        grants = place(state.nodes, shape, way, way.pools)
        if grants is not None:
            return grants
    return None


def anew(state: State, ask: Ask) -> tuple[Grant, ...] | None:
    """The same from nothing remembered."""
    kept = state.nodes.demand
    state.demand = state.demand
    grants = choose(state, ask)
    state.nodes.expect(kept)
    return grants


# -- the definition, in fractions ----------------------------------------------------------------------------


def milli_of(ask: Ask) -> int:
    return ask.gpus.milli if isinstance(ask.gpus, Milli) else 1000


def fragmented(mix: Mix, at: Node, left: list[int], cpu_free: int) -> Fraction:
    total, weights = Fraction(0), sum(weight for _ask, weight in mix)
    left = [max(0, milli) for milli in left]
    for ask, weight in mix:
        size = milli_of(ask)
        fitting = [milli for milli in left if milli >= size]
        runs = (
            ask.gpus.count > 0
            and (not ask.models or (at.gpus and at.gpu_model in ask.models))
            and ask.cpu_milli <= cpu_free
            and len(fitting) >= ask.gpus.count
        )
        total += Fraction(weight, weights) * (sum(left) - sum(fitting) if runs else sum(left))
    return total


def scored(gain: Fraction) -> int:
    exact = 100 / (1 + exp(-float(gain) / 1000))
    return int(exact + 1e-9)


def options(state: State, mix: Mix, number: int, ask: Ask) -> list[tuple[int, int]]:
    """(score, GPU) of every way to put the task on a node, GPUs in order."""
    nodes = state.nodes
    at, left, cpu = nodes.node[number], nodes.gpu_free[number], nodes.cpu_free[number]
    models = not ask.models or (at.gpus > 0 and at.gpu_model in ask.models)
    if (
        not models
        or nodes.closed[number]
        or ask.cpu_milli > cpu
        or ask.memory_mib > nodes.memory_free[number]
    ):
        return []
    before = fragmented(mix, at, left, cpu)
    size = milli_of(ask)
    fitting = [gpu for gpu, milli in enumerate(left) if milli >= size]
    if len(fitting) < ask.gpus.count:
        return []
    takes = [[gpu] for gpu in fitting] if isinstance(ask.gpus, Milli) else [fitting[: ask.gpus.count]]
    found = []
    for gpus in takes:
        after = [milli - size * (gpu in gpus) for gpu, milli in enumerate(left)]
        score = scored(before - fragmented(mix, at, after, cpu - ask.cpu_milli))
        found.append((score, gpus[0] if gpus else -1))
    return found


def expected(state: State, mix: Mix, ask: Ask) -> tuple[int, int] | None:
    """(node, GPU) by the definition: 1. for tasks without GPUs nodes without any; 2. score; 3. node; 4. GPU."""
    best: tuple[tuple[bool, int, int, int], int] | None = None
    for number, at in enumerate(state.nodes.node):
        for score, gpu in options(state, mix, number, ask):
            key = (ask.gpus.count == 0 and at.gpus > 0, -score, number, gpu)
            if best is None or key < best[0]:
                best = (key, gpu)
    return None if best is None else (best[0][2], best[1] if isinstance(ask.gpus, Milli) else -1)


def where(grants: tuple[Grant, ...] | None, ask: Ask) -> tuple[int, int] | None:
    """(node, GPU) of a grant; whole GPUs are all alike."""
    if grants is None:
        return None
    return grants[0].node, grants[0].gpus.bit_length() - 1 if isinstance(ask.gpus, Milli) else -1


# -- random yards --------------------------------------------------------------------------------------------

CORES = st.sampled_from([0, 1000, 3000, 4000, 8000, 16_000])
REQUESTS = st.one_of(
    st.builds(Whole, st.integers(0, 5)),
    st.builds(Milli, st.just(1), st.sampled_from([100, 250, 300, 500, 700, 999])),
)
MODELS = st.sampled_from([(), (), ("A",), ("B",), ("A", "B")])
ASKS = st.builds(Ask, REQUESTS, cpu_milli=CORES, models=MODELS)
MIXES = st.lists(st.tuples(ASKS, st.integers(1, 50)), min_size=1, max_size=6).map(tuple)
NODES = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from("AB"), st.sampled_from([4000, 16_000, 20_000])),
    min_size=1,
    max_size=6,
).map(lambda rows: [node(i, gpus, model, cpu) for i, (gpus, model, cpu) in enumerate(rows)])


@given(NODES, MIXES, st.lists(ASKS, max_size=12))
@example(
    # No GPUs anywhere, two kinds of node, and the first node is full: the next is of the other kind.
    [node(0, 0, "A", 4000), node(1, 0, "A", 16_000), node(2, 0, "A", 4000)],
    ((Ask(Whole(1)), 1),),
    [Ask(Whole(0), cpu_milli=4000), Ask(Whole(0), cpu_milli=1000)],
)
def test_fragmentation_and_choice_follow_the_definition(nodes, mix, asks) -> None:
    state = yard(nodes, mix)
    weights = sum(weight for _ask, weight in mix)
    for ask in asks:
        demand = fgd.index_of(state.nodes)
        assert [
            weights * fragmented(mix, at, state.nodes.gpu_free[number], state.nodes.cpu_free[number])
            for number, at in enumerate(nodes)
        ] == [demand.fragmented(state.nodes, number) for number in range(len(nodes))]
        grants = choose(state, ask)
        assert expected(state, mix, ask) == where(grants, ask)
        if grants is not None:
            assert state.nodes.fits(grants)
            state.nodes.take(grants)


STEPS = st.tuples(
    st.sampled_from(["take", "give", "down", "cordon", "shift", "reach"]), st.integers(0, 99), ASKS
)


@given(NODES, MIXES, st.lists(STEPS, max_size=25))
def test_what_is_remembered_never_shows(nodes, mix, steps) -> None:
    """After every step, under a shift and after it, the answer is that of a table made anew."""
    state = yard(nodes, mix)
    held: list[tuple[Grant, ...]] = []
    for step, index, ask in steps:
        number = index % len(nodes)
        if step == "give" and held:
            state.nodes.give(held.pop(index % len(held)))
        elif step == "down":
            apply(state, NodeUp(0, number) if state.nodes.down[number] else NodeDown(0, number, "test"))
        elif step == "cordon":
            state.nodes.set_cordoned(number, "" if state.nodes.cordoned[number] else "test")
        elif step == "shift":
            # What a promise keeps free is moved out of the books, and victims are drafted away meanwhile.
            holds = (Grant(number, state.nodes.free_mask[number] & 5, 1000, 1000, 0, 0),)
            state.nodes.shift(holds, -1)
            assert anew(state, ask) == choose(state, ask)
            assert expected(state, mix, ask) == where(choose(state, ask), ask)
            if held:
                victim = held[index % len(held)]
                state.nodes.give(victim)
                assert anew(state, ask) == choose(state, ask)
                state.nodes.take(victim)
                assert anew(state, ask) == choose(state, ask)
            state.nodes.shift(holds, 1)
        elif step == "reach":
            # The log of changes starts over.
            state.nodes.touched.clear()
            state.nodes.epoch += 1
        grants = choose(state, ask)
        assert anew(state, ask) == grants
        if step == "take" and grants is not None:
            state.nodes.take(grants)
            held.append(grants)


@given(NODES, MIXES, st.lists(st.tuples(ASKS, st.integers(1, 9)), min_size=1, max_size=12))
def test_deciding_changes_nothing_and_needs_no_memory(nodes, mix, jobs) -> None:
    """Arrivals and departures under backfill; a state loaded from its dump decides the same at every step."""
    state = yard(nodes, mix)
    policy = build(PolicySpec("fgd", order=("fifo",), placement="fgd"))
    for at_ms, (ask, hours) in enumerate(jobs, start=1):
        spec = JobSpec("t", ask)
        if impossible_reason(state, spec) is not None:
            continue
        apply(state, JobSubmitted(at_ms, Job(at_ms, spec, at_ms, limit_ms=hours * HOUR_MS)))
        before = canonical(state)
        books = [list(row) for row in state.nodes.gpu_free], list(state.nodes.cpu_free)

        plan = decide(state, policy, at_ms)

        assert before == canonical(state)
        assert books == ([list(row) for row in state.nodes.gpu_free], list(state.nodes.cpu_free))
        again = decide(load(dump(state)), policy, at_ms)
        assert (plan.starts, plan.reservations) == (again.starts, again.reservations)
        for start in plan.starts:
            apply(state, AttemptStarted(at_ms, start.job_id, start.attempt, start.grants))
        if hours > 5 and state.running:
            first = min(state.running)
            apply(state, AttemptEnded(at_ms, first, 1, Outcome.COMPLETED))


@given(NODES, MIXES, ASKS, st.integers(1, 4))
def test_a_node_that_joins_is_seen(nodes, mix, ask, gpus) -> None:
    state = yard(nodes, mix)
    choose(state, ask)

    apply(state, NodeAdded(0, node(90, gpus, "B", 20_000)))

    assert anew(state, ask) == choose(state, ask)


@given(st.integers(1, 100_000), st.integers(-16_000, 16_000), st.integers(0, 1000))
def test_scores_are_those_of_the_sigmoid(weight, milli, part) -> None:
    gain = milli * weight + part * weight // 1000
    exact = 100 / (1 + exp(-gain / weight / 1000))
    if abs(exact - round(exact)) > 1e-9 or gain == 0:
        assert int(exact) == bisect_right(compute_thresholds(weight), gain)


def test_thresholds_are_where_the_sigmoid_reaches_a_score() -> None:
    assert [log(s / (100 - s)) for s in range(1, 100)] == pytest.approx(
        [x / 10**12 for x in compute_thresholds(10**9)], abs=1e-12
    )


def test_a_score_is_reached_and_not_nearly_reached() -> None:
    assert [50, 51] == [bisect_right(compute_thresholds(1), gain) for gain in (40, 41)]
    assert [48, 49, 49, 50] == [bisect_right(compute_thresholds(1), gain) for gain in (-41, -40, -1, 0)]


# -- the rules, one by one -----------------------------------------------------------------------------------

ONE = Ask(Whole(1), cpu_milli=4000)
HALF = Ask(Milli(1, 500), cpu_milli=1000)
FOUR = Ask(Whole(4), cpu_milli=4000)


def test_ties_go_to_the_lowest_node() -> None:
    state = yard([node(0, model="B"), node(1, model="A"), node(2, model="B")], ((ONE, 1),))

    assert [0, 0, 0, 0, 1] == [take(state, ONE).node for _ in range(5)]


def take(state: State, ask: Ask) -> Grant:
    grants = choose(state, ask)
    assert grants is not None
    state.nodes.take(grants)
    return grants[0]


def test_a_broken_node_goes_first_when_whole_ones_are_in_demand() -> None:
    state = yard([node(0), node(1), node(2, gpus=1)], ((FOUR, 9), (ONE, 1)))
    state.nodes.take((Grant(1, 1, 1000, 0, 0, 1),))

    assert [1, 1, 1, 2, 0] == [take(state, ONE).node for _ in range(5)]


def test_models_asked_for_are_kept() -> None:
    state = yard([node(0, model="A"), node(1, model="B")], ((ONE, 1),))

    assert [1] * 4 == [take(state, Ask(Whole(1), models=("B",))).node for _ in range(4)]
    assert choose(state, Ask(Whole(1), models=("B",))) is None
    assert choose(state, Ask(Whole(1))) is not None


def test_demand_for_a_model_keeps_its_nodes_for_it() -> None:
    """Tasks that go anywhere take the model nobody asks for by name, wherever it stands in the list."""
    picky = Ask(Whole(1), models=("A",))
    state = yard([node(0, model="A"), node(1, model="B")], ((picky, 1),))

    assert [1, 1, 1, 1, 0] == [take(state, Ask(Whole(1))).node for _ in range(5)]


def test_gpus_without_cores_are_lost_and_taken_first() -> None:
    """Both nodes have four idle GPUs; those of the second can no longer be used by what is expected."""
    state = yard([node(0), node(1)], ((ONE, 1),))
    state.nodes.take((Grant(1, 0, 1000, 30_000, 0, 1),))

    assert 1 == take(state, Ask(Whole(1), cpu_milli=1000)).node
    assert 0 == take(state, ONE).node


def test_the_cores_that_are_left_make_the_difference() -> None:
    """Both nodes have cores for either expected task now; only the second has some for the smaller one afterwards."""
    state = yard([node(0, cpu=8900), node(1, cpu=9000)], ((ONE, 1), (Ask(Whole(1), cpu_milli=8000), 1)))

    assert 1 == take(state, Ask(Whole(1), cpu_milli=5000)).node


def test_a_task_without_gpus_leaves_the_cores_that_gpus_need() -> None:
    state = yard([node(0, cpu=16_000), node(1, cpu=32_000), node(2, gpus=0)], ((FOUR, 1), (ONE, 1)))
    cores = Ask(Whole(0), cpu_milli=14_000)

    assert [2, 2, 1, 1, 0] == [take(state, cores).node for _ in range(5)]


def test_memory_is_looked_at_only_where_a_task_goes() -> None:
    state = yard([node(0), node(1)], ((Ask(Whole(1), memory_mib=600), 1),))
    state.nodes.take((Grant(0, 0, 1000, 0, 500, 1),))

    assert [0, 0] == [fgd.index_of(state.nodes).fragmented(state.nodes, number) for number in range(2)]
    assert [0, 1] == [take(state, Ask(Whole(1), memory_mib=mib)).node for mib in (300, 300)]


def test_a_share_goes_to_the_gpu_that_it_completes() -> None:
    state = yard([node(0)], ((ONE, 1), (HALF, 1)))
    state.nodes.take((Grant(0, 0b0100, 500, 0, 0, 1),))
    state.nodes.take((Grant(0, 0b0010, 300, 0, 0, 1),))

    assert [0b0100, 0b0010, 0b0001, 0b0001] == [take(state, HALF).gpus for _ in range(4)]


def test_several_shares_of_one_node() -> None:
    state = yard([node(0)], ((ONE, 1), (HALF, 1)))
    state.nodes.take((Grant(0, 0b1000, 500, 0, 0, 1),))

    assert 0b1001 == take(state, Ask(Milli(2, 500))).gpus


def test_an_overdrawn_gpu_counts_as_taken() -> None:
    state = yard([node(0), node(1)], ((ONE, 1),))
    state.nodes.take((Grant(0, 0b11, 1000, 0, 0, 1),))
    state.nodes.take((Grant(0, 0b01, 1000, 0, 0, 1),))

    assert [0b0100, 0b1000] == [take(state, ONE).gpus for _ in range(2)]
    assert 1 == take(state, ONE).node
    assert 0 == fgd.index_of(state.nodes).fragmented(state.nodes, 0)


def test_of_a_gang_a_nodes_worth_counts() -> None:
    """Eight tasks go as four to a node, so a node with three free GPUs is of no use to them."""
    many = Ask(Whole(1), tasks=8)
    state = yard([node(0), node(1), node(2)], ((many, 1),))
    state.nodes.take((Grant(1, 1, 1000, 0, 0, 1),))

    assert [0, 3000, 0] == [fgd.index_of(state.nodes).fragmented(state.nodes, number) for number in range(3)]
    assert 1 == take(state, ONE).node


def test_gangs_are_placed_by_the_common_rule() -> None:
    state = yard([node(0), node(1), node(2)], ((ONE, 1),))
    shape = state.shape_of(Ask(Whole(1), tasks=6))

    assert gang(state.nodes, shape, shape.ways[0], -1) == choose(state, shape.ask)


def test_pools_asked_for_in_the_demand() -> None:
    inside, outside = node(0), Node("n01", "c", "q", "A", 4, 32_000, 1000)
    state = yard([inside, outside], ((Ask(Whole(1), pools=("p",)), 1),))

    assert [0, 4000] == [fgd.index_of(state.nodes).fragmented(state.nodes, number) for number in range(2)]
    assert 1 == take(state, ONE).node
    assert 0 == take(state, Ask(Whole(1), pools=("p",))).node


@pytest.mark.parametrize("mix", [(), ((ONE, 0),)])
@pytest.mark.parametrize("ask", [ONE, HALF, FOUR, Ask(Whole(0), cpu_milli=1)])
def test_without_demand_it_is_best_fit(mix: Mix, ask: Ask) -> None:
    state = yard([node(0), node(1), node(2, model="B")], mix)
    state.nodes.take((Grant(1, 1, 500, 0, 0, 1),))

    assert state.nodes.demand is None
    assert choose(state, ask, best_fit.place, lambda _nodes, shape: shape.ways) == choose(state, ask)


def test_ways_come_best_first_and_all_of_them() -> None:
    state = yard(
        [node(0, model="A"), node(1, model="B"), node(2, model="C")], ((Ask(Whole(1), models=("B",)), 1),)
    )
    apply(state, NodeCordoned(0, 0, "test"))
    shape = state.shape_of(ONE)

    ranked = list(fgd.rank(state.nodes, shape))

    assert ["C", "B", "A"] == [state.nodes.node[way.kind].gpu_model for way in ranked]


def test_only_nodes_that_are_asked_about() -> None:
    state = yard([node(0), node(1)], ((ONE, 1),))
    shape = state.shape_of(ONE)

    assert 1 == fgd.place(state.nodes, shape, shape.ways[0], 0b10)[0].node
    assert fgd.place(state.nodes, shape, shape.ways[0], 0b100) is None


def test_new_demand_replaces_the_old() -> None:
    state = yard([node(0, model="A"), node(1, model="B")], ((Ask(Whole(1), models=("A",)), 1),))
    assert 1 == take(state, ONE).node

    apply(state, DemandLearned(0, ((Ask(Whole(1), models=("B",)), 1),)))

    assert state.nodes.demand is not None
    assert 0 == take(state, ONE).node
