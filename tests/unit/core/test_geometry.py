"""MIG geometry: what fits, where it goes best, and all ways to cut a GPU, against a judge of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.core.fleet.mig_geometry import (
    Held,
    PlacedSlice,
    count_harm,
    find_best_start,
    find_flaw,
    find_starts,
    fit,
    gpu_milli,
    layouts,
    worth,
)
from gpuyard.model import CATALOGUE
from gpuyard.model.mig import MIG_MODELS, MigGeometry

H200 = MIG_MODELS["H200"]
PLAIN = {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}


def lawful(geometry: MigGeometry, held: Held) -> bool:
    """By the rule alone: memory intervals disjoint, compute within the GPU's, no more of a profile than allowed."""
    spans = []
    compute = 0
    for place in held:
        (profile,) = [each for each in geometry.profiles if each.name == place.profile]
        if place.start not in profile.starts:
            return False
        spans.append(range(place.start, place.start + profile.memory))
        compute += profile.compute
        if sum(other.profile == place.profile for other in held) > profile.count_max:
            return False
    slots = [slot for span in spans for slot in span]
    return (
        len(slots) == len(set(slots))
        and max(slots, default=0) < geometry.slots
        and compute <= geometry.compute
    )


@st.composite
def cut(draw: st.DrawFn) -> tuple[MigGeometry, Held]:
    """A GPU with some slices on it, put there one by one wherever they fit."""
    geometry = draw(st.sampled_from(sorted(MIG_MODELS.values(), key=lambda each: each.model)))
    held: Held = ()
    for _ in range(draw(st.integers(0, 5))):
        name = draw(st.sampled_from([profile.name for profile in geometry.profiles]))
        able = find_starts(geometry, held, name)
        if able:
            held = tuple(
                sorted(
                    (*held, PlacedSlice(name, draw(st.sampled_from(able)))),
                    key=lambda p: (p.start, p.profile),
                )
            )
    return geometry, held


def test_every_model_that_has_mig_has_a_geometry() -> None:
    assert {model.name for model in CATALOGUE.values() if model.mig} == MIG_MODELS.keys()


def test_an_a100_is_cut_in_298_ways_of_which_19_are_full() -> None:
    geometry = MIG_MODELS["A100-40GB"]
    found = list(layouts(geometry))

    assert 298 == len(found) == len(set(found))
    assert 19 == sum(not any(find_starts(geometry, held, name) for name in PLAIN) for held in found)
    assert all(lawful(geometry, held) and {place.profile for place in held} <= PLAIN for held in found)


@pytest.mark.parametrize("model", sorted(MIG_MODELS))
def test_layouts_are_all_there_are(model: str) -> None:
    geometry = MIG_MODELS[model]
    everything = set(layouts(geometry))
    for held in everything:
        assert lawful(geometry, held)
        for place in held:
            assert tuple(each for each in held if each is not place) in everything


@given(cut())
def test_what_fits_is_what_the_rule_allows(found: tuple[MigGeometry, Held]) -> None:
    geometry, held = found
    assert lawful(geometry, held)
    assert "" == find_flaw(geometry, held)
    for profile in geometry.profiles:
        for start in range(geometry.slots):
            more = (*held, PlacedSlice(profile.name, start))
            assert lawful(geometry, more) == (start in find_starts(geometry, held, profile.name))
            assert lawful(geometry, more) == (find_flaw(geometry, more) == "")


@given(cut())
def test_the_best_place_leaves_no_less_than_any_other(found: tuple[MigGeometry, Held]) -> None:
    geometry, held = found
    for profile in geometry.profiles:
        able = find_starts(geometry, held, profile.name)
        best = find_best_start(geometry, held, profile.name)
        assert (best is None) == (not able)
        if best is not None:
            least = count_harm(geometry, held, PlacedSlice(profile.name, best))
            assert all(
                least <= count_harm(geometry, held, PlacedSlice(profile.name, start)) for start in able
            )


@given(cut(), st.data())
def test_a_fitted_layout_moves_nothing_and_takes_the_most(
    found: tuple[MigGeometry, Held], data: st.DataObject
) -> None:
    geometry, held = found
    names = [profile.name for profile in geometry.profiles]
    wanted = data.draw(st.lists(st.sampled_from(names), max_size=4))
    fitted = fit(geometry, held, wanted)

    assert lawful(geometry, fitted.held)
    assert sorted(fitted.held) == sorted((*held, *fitted.new))
    assert sorted(wanted) == sorted([*[place.profile for place in fitted.new], *fitted.left_out])
    # One by one in any order never comes to more.
    size = sum(
        gpu_milli(geometry, profile)
        for place in fitted.new
        for profile in [geometry.profile(place.profile)]
        if profile
    )
    there, greedy = held, 0
    for name in data.draw(st.permutations(wanted)):
        start = find_best_start(geometry, there, name)
        profile = geometry.profile(name)
        if start is not None and profile is not None:
            there = (*there, PlacedSlice(name, start))
            greedy += gpu_milli(geometry, profile)
    assert greedy <= size


def test_small_slices_leave_room_for_large_ones() -> None:
    held: Held = ()
    for _ in range(3):
        start = find_best_start(H200, held, "1g.18gb")
        assert start is not None
        held = (*held, PlacedSlice("1g.18gb", start))
    # Three small ones lie together at the end: a large one still fits before them.
    assert (0,) == find_starts(H200, held, "4g.71gb")
    assert {4, 5, 6} == {place.start for place in held}


def test_a_layout_is_explained() -> None:
    assert "H200 has no profile 9g.999gb; it has 1g.18gb, 1g.18gb+me" in find_flaw(
        H200, [PlacedSlice("9g.999gb", 0)]
    )
    assert "4g.71gb cannot begin at slot 4, only at 0" == find_flaw(H200, [PlacedSlice("4g.71gb", 4)])
    assert "2g.35gb at slot 0 does not fit beside 3g.71gb at 0" == find_flaw(
        H200, [PlacedSlice("3g.71gb", 0), PlacedSlice("2g.35gb", 0)]
    )
    fitted = fit(H200, [PlacedSlice("3g.71gb", 4)], ["2g.35gb", "1g.18gb", "7g.141gb", "2g.35gb"])
    assert {"7g.141gb", "1g.18gb"} == set(fitted.left_out)
    assert 2 == len(fitted.new)


@pytest.mark.parametrize(
    ("name", "milli"),
    [
        ("1g.18gb", 143),
        ("1g.35gb", 250),
        ("2g.35gb", 286),
        ("3g.71gb", 500),
        ("4g.71gb", 572),
        ("7g.141gb", 1000),
    ],
)
def test_a_slice_counts_as_the_larger_of_its_parts(name: str, milli: int) -> None:
    profile = H200.profile(name)
    assert profile is not None
    assert milli == gpu_milli(H200, profile)
    assert worth(H200, (PlacedSlice("7g.141gb", 0),)) == 0
