"""Whose work a GPU does: exact where a source is exact, marked where it is not. The figures are of a real H200."""

from hypothesis import given
from hypothesis import strategies as st

from gpuyard.telemetry.attribution import Busy, OnGpu, average_gpus, divide_work, find_attempt, recent_busy

ATTEMPTS = st.lists(
    st.builds(OnGpu, st.uuids().map(str), st.integers(0, 9000), milli=st.integers(1, 1000)),
    min_size=2,
    max_size=9,
    unique_by=lambda each: each.attempt,
)


def test_an_attempt_alone_on_a_gpu_did_all_of_its_work() -> None:
    assert {"a": Busy(930, measured=True)} == divide_work(930, [OnGpu("a", 10)])


def test_accounts_of_time_slicing_are_measurements() -> None:
    """Three processes had 67 : 25 : 8 % of the operations; the driver's accounts said 57, 19 and 8 % of the time."""
    present = [OnGpu("a", 1, accounted=570), OnGpu("b", 1, accounted=190), OnGpu("c", 1, accounted=80)]
    found = divide_work(900, present)

    assert all([each.measured for each in found.values()])
    total = sum([each.permille for each in found.values()])
    for key, truth in (("a", 670), ("b", 250), ("c", 80)):
        assert abs(truth - 1000 * found[key].permille / total) < 50


def test_under_mps_accounts_are_not_believed_and_shares_only_estimate() -> None:
    present = [OnGpu("a", 1, accounted=0, milli=500), OnGpu("b", 1, accounted=0, milli=250)]

    assert {"a": Busy(607, measured=False), "b": Busy(303, measured=False)} == divide_work(
        910, present, mps=True
    )


def test_slices_are_measured_each_by_itself() -> None:
    present = [OnGpu("a", 1, slice_busy=981), OnGpu("b", 1, slice_busy=293)]

    assert {"a": Busy(981, measured=True), "b": Busy(293, measured=True)} == divide_work(None, present)


def test_nothing_is_made_up_where_strangers_compute_too_or_the_gpu_says_nothing() -> None:
    present = [OnGpu("a", 1), OnGpu("b", 1)]

    assert {} == divide_work(900, present, strangers=True)
    assert {} == divide_work(900, present[:1], strangers=True)
    assert {} == divide_work(None, present)
    assert {"a": Busy(300, measured=True)} == divide_work(900, [OnGpu("a", 1, accounted=300)], strangers=True)


@given(st.integers(0, 1000), ATTEMPTS)
def test_an_estimate_gives_away_no_more_and_no_less_than_was_done(busy: int, present: list[OnGpu]) -> None:
    found = divide_work(busy, present, mps=True)

    assert busy == sum([each.permille for each in found.values()])
    assert not any([each.measured for each in found.values()])
    for each in present:
        exact = busy * each.milli / sum([other.milli for other in present])
        assert abs(exact - found[each.attempt].permille) < 1


@given(st.lists(st.booleans(), min_size=30, max_size=400), st.integers(1, 60))
def test_what_was_done_lately_is_within_five_points(phases: list[bool], step_s: int) -> None:
    """A process that is busy or idle step by step, told in whole percents of its life."""
    history, done = [], 0
    for place, works in enumerate(phases):
        done += works * step_s
        life_s = (place + 1) * step_s
        history.append((life_s * 1000, round(100 * done / life_s)))
    found = recent_busy(history)
    assert found is not None
    # Some part of its life up to now has that load.
    assert any(
        [abs(found - 1000 * sum(phases[place:]) / len(phases[place:])) <= 60 for place in range(len(phases))]
    )


def test_too_early_to_say() -> None:
    assert None is recent_busy([])
    assert None is recent_busy([(0, 50)])
    assert 500 == recent_busy([(1000, 50)])


def test_several_gpus_are_as_sure_as_the_least_sure_of_them() -> None:
    assert Busy(500, measured=True) == average_gpus([Busy(900, measured=True), Busy(100, measured=True)])
    assert Busy(500, measured=False) == average_gpus([Busy(900, measured=True), Busy(100, measured=False)])
    assert None is average_gpus([Busy(900, measured=True), None])
    assert None is average_gpus([])


def test_a_process_is_its_groups_also_further_down() -> None:
    groups = {"/gpuyard-1/y-7-1": "y-7-1", "/gpuyard-1/y-7-11": "y-7-11"}

    assert "y-7-1" == find_attempt("/gpuyard-1/y-7-1/tasks/0", groups)
    assert "y-7-11" == find_attempt("/gpuyard-1/y-7-11", groups)
    assert "" == find_attempt("/user.slice", groups)
    assert "" == find_attempt("/", groups)
