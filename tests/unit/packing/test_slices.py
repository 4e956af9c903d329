"""Where a slice goes by value: the ways to cut a GPU, what they are worth, and the node that is found."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.core.fleet.mig_geometry import PlacedSlice
from gpuyard.core.fleet.mig_placing import count_whole_free, find_sliceable, find_slices, place_slices
from gpuyard.core.state.dump import canonical, derived
from gpuyard.model import DemandLearned, JobCancelled, Mig, Settings
from gpuyard.model.mig import MIG_MODELS
from gpuyard.packing.slices.value_index import SliceValueIndex
from gpuyard.packing.slices.worth import _ways, add_place, list_profiles, value_sets
from gpuyard.testing import ask, nodes, share
from harness.yard import Yard
from unit.core.test_geometry import lawful
from unit.core.test_pins import pin

H100 = MIG_MODELS["H100"]
MIX = {"1g.10gb": 30, "1g.20gb": 10, "2g.20gb": 25, "3g.40gb": 20, "4g.40gb": 10, "7g.80gb": 5}


@pytest.mark.parametrize("geometry", MIG_MODELS.values(), ids=lambda geometry: geometry.model)
def test_a_gpu_is_worth_less_with_every_slice_on_it(geometry) -> None:
    sizes = list_profiles(geometry)
    worth = value_sets(geometry, {size.name: 10 for size in sizes})
    for held, value in worth.items():
        for index in range(len(held)):
            assert value < worth[held[:index] + held[index + 1 :]], held
    assert worth == value_sets(geometry, {size.name: 70 for size in sizes}), "only proportions count"
    assert max(worth.values()) == worth[()]


def test_the_odd_ones_go_to_the_end_of_the_row() -> None:
    """Eight slots of memory for seven compute slices: a 3g or a two-slot 1g wastes nothing only at the end."""
    worth = value_sets(H100, MIX)
    for name, starts in (("3g.40gb", (0, 4)), ("1g.20gb", (0, 2, 4, 6))):
        assert starts[-1] == max(starts, key=lambda start, name=name: worth[(PlacedSlice(name, start),)])


def test_whole_gpus_are_kept_where_they_are_wanted() -> None:
    """With large asks about, a small slice goes beside others; the emptier GPU costs more."""
    crowded = (PlacedSlice("1g.10gb", 0), PlacedSlice("2g.20gb", 2))
    costs = {}
    for sevens in (0, 50):
        worth = value_sets(H100, {"1g.10gb": 50, "2g.20gb": 10, "7g.80gb": sevens})
        empty = worth[()] - worth[(PlacedSlice("1g.10gb", 6),)]
        costs[sevens] = empty - (worth[crowded] - worth[add_place(crowded, PlacedSlice("1g.10gb", 6))])
    assert costs[50] > max(0, costs[0])


def test_an_h100_can_be_cut_in_so_many_ways() -> None:
    assert 723 == len(_ways(H100).number)


def expecting(here: Yard, *mix: tuple[object, int]) -> None:
    here.apply(DemandLearned(here.now_ms, tuple(mix)))  # type: ignore[arg-type]


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), reserve=st.integers(0, 3))
def test_what_is_found_is_the_cheapest_of_all_and_nothing_that_fits_is_refused(
    seed: int, reserve: int
) -> None:
    rng = random.Random(seed)
    here = Yard("pack", nodes(3, gpus=2, model="H100"), settings=Settings(whole_gpus=reserve))
    expecting(here, *[(ask(Mig(1, name)), weight) for name, weight in MIX.items()], (ask(1), 3))
    names = sorted([profile.name for profile in H100.profiles])
    index = SliceValueIndex([(here.state.shape_of(each), weight) for each, weight in here.state.demand])
    for _ in range(40):
        here.now_ms += 1000
        wanted = ask(Mig(rng.choice([1, 1, 1, 2]), rng.choice(names))) if rng.random() < 0.8 else share(400)
        shape, books = here.state.shape_of(wanted), here.state.nodes
        spare = count_whole_free(books) - reserve
        if shape.profile:
            found = [
                (on[0], number, on)
                for number in range(3)
                if (
                    on := find_slices(
                        books, shape, number, find_sliceable(books, number, spare), index.cheapest
                    )
                )
            ]
            job = here.submit(wanted)
            started = here.started(here.step())
            assert ([job] if found else []) == started
            if found:
                _cost, number, (_lost, pieces, _milli) = min(found)
                (grant,) = here.state.jobs[job].grants
                assert (number, pieces) == (grant.node, grant.slices)
                assert count_whole_free(books) >= min(reserve, count_whole_free(books) + spare)
        else:
            job = here.submit(wanted)
            here.step()
        for waiting in [each.id for each in here.state.jobs.values() if not each.grants]:
            here.apply(JobCancelled(here.now_ms, waiting))
        for job_id in sorted(here.state.running):
            if rng.random() < 0.15:
                here.end(job_id)


@pytest.mark.parametrize("policy", ["pack", "fgd"])
def test_a_share_does_not_go_on_a_gpu_that_is_cut(policy: str) -> None:
    here = Yard(policy, nodes(1, gpus=2, model="H100"))
    expecting(here, (share(400), 5), (ask(Mig(1, "1g.10gb")), 5))
    sliced = here.submit(ask(Mig(1, "1g.10gb")))
    here.step()
    shares = [here.submit(share(400)) for _ in range(3)]
    here.step()
    cut = here.state.jobs[sliced].grants[0].gpus
    assert shares[:2] == [job for job in shares if here.state.jobs[job].grants]
    assert all(not here.state.jobs[job].grants[0].gpus & cut for job in shares[:2])


def test_without_slices_in_the_demand_geometry_decides() -> None:
    here = Yard("pack", nodes(2, gpus=2, model="H100"))
    expecting(here, (share(400), 5))
    shape = here.state.shape_of(ask(Mig(1, "2g.20gb")))
    expected = place_slices(here.state.nodes, shape, shape.ways[0], -1)
    job = here.submit(ask(Mig(1, "2g.20gb")))
    here.step()
    assert expected == here.state.jobs[job].grants


def test_a_slice_that_no_gpu_has_is_expected_in_vain() -> None:
    """Counted as a task that takes nothing of a GPU, it would fit for ever."""
    here = Yard("pack", nodes(1, gpus=2, model="H100"))
    expecting(here, (ask(Mig(1, "9g.999gb")), 5), (share(500), 1), (ask(Mig(1, "2g.20gb")), 1))
    for wanted in (share(500), ask(Mig(1, "2g.20gb")), ask(1)):
        here.submit(wanted)
    assert 2 == len(here.step().starts)


def expecting_slices() -> Yard:
    here = Yard("default", nodes(1, gpus=1, model="H100"))
    expecting(here, (ask(Mig(1, "1g.10gb")), 5), (ask(Mig(1, "2g.20gb")), 5))
    return here


def test_a_gpu_where_a_slice_is_kept_that_another_still_lies_on_is_not_valued() -> None:
    here = expecting_slices()
    there = [here.submit(ask(Mig(1, name))) for name in ("2g.20gb", "2g.20gb", "2g.20gb", "1g.10gb")]
    assert there == here.started(here.step())
    # The second job looks at the GPU in the same pass, with victims of its own drafted away.
    urgent = [here.submit(ask(Mig(1, "2g.20gb")), klass="urgent") for _ in range(2)]
    was = canonical(here.state), derived(here.state)
    plan = here.decide()
    assert was == (canonical(here.state), derived(here.state))
    assert plan == here.step()
    for job in urgent:
        (stop,), (earmark,) = plan.stops, plan.earmarks
        assert (job, job) == (stop.for_job, earmark.job_id)
        assert here.state.jobs[stop.job_id].grants == earmark.grants
        here.stop_confirmed(stop.job_id)
        plan = here.step()
        assert [job] == here.started(plan)
    assert lawful(H100, here.state.nodes.slices_used[0][0])


def test_a_slice_of_value_does_not_go_beside_a_share_that_is_still_being_stopped() -> None:
    here = expecting_slices()
    part = here.submit(share(250))
    here.step()
    first = here.submit(ask(Mig(1, "1g.10gb")), klass="urgent")
    assert [part] == [stop.job_id for stop in here.step().stops]
    second = here.submit(ask(Mig(1, "1g.10gb")))
    assert [] == here.started(here.step())
    here.stop_confirmed(part)
    assert [first, second] == sorted(here.started(here.step()))


def test_a_pinned_gpu_takes_no_slice_while_one_is_kept_that_another_still_lies_on() -> None:
    here = expecting_slices()
    pin(here, "7x1g.10gb")
    there = [here.submit(ask(Mig(1, "1g.10gb"))) for _ in range(7)]
    assert there == here.started(here.step())
    kept = here.submit(ask(Mig(1, "1g.10gb")), klass="urgent")
    (stop,) = here.step().stops
    for job in [job for job in there if job != stop.job_id][:2]:
        here.end(job)
    other = here.submit(ask(Mig(1, "1g.10gb")))
    assert [] == here.started(here.step())
    here.stop_confirmed(stop.job_id)
    assert {kept, other} <= set(here.started(here.step()))
