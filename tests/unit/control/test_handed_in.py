"""What collectors elsewhere hand in: late, doubled, out of order, by a clock that is off, or made up."""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.control.upkeep.handed_in_samples import ELSEWHERE, QUIET_MS, Batch, HandedIn
from gpuyard.telemetry.samples import OUT_OF_BOUNDS, TOO_LATE
from gpuyard.telemetry.series import Series

NOW = 1_700_000_000_000
KEY = "yard-18b-7-1"


@pytest.fixture
def series(tmp_path: Path) -> Iterator[Series]:
    made = Series(str(tmp_path / "series.db"))
    yield made
    made.close()


class Clock:
    """The yard's clock."""

    def __init__(self, now_ms: int = NOW) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def batch(
    clock: Clock, at_ms: Sequence[int], series: Mapping[str, Sequence[int | None]], off_ms: int = 0
) -> Batch:
    """As a collector sends it whose clock is ahead by `off_ms`."""
    return Batch(clock.now_ms + off_ms, clock.now_ms - NOW, [each + off_ms for each in at_ms], series)


def busy(series: Series, clock: Clock) -> list[tuple[int, int | None]]:
    curve = series.curves("n1", "gpu/0", NOW - 3_600_000, clock.now_ms + 60_000, clock.now_ms)["busy"]
    return list(zip(curve.times_ms, curve.values, strict=True))


TIMES = [NOW + turn * 10_000 for turn in range(40)]
TRUTH = {
    "gpu/0/busy": [turn * 20 for turn in range(40)],
    "gpu/0/energy": [5_000 + turn * 300 for turn in range(40)],
}


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), off_ms=st.sampled_from([0, 60_000, -60_000, 1_500]))
def test_late_doubled_and_out_of_order_samples_make_the_same_curve(
    seed: int, off_ms: int, tmp_path_factory
) -> None:  # type: ignore[no-untyped-def]
    draw = random.Random(seed)
    made = Series(str(tmp_path_factory.mktemp("series") / "series.db"))
    clock = Clock(TIMES[-1] + 100)
    handed_in = HandedIn(clock)
    places = list(range(40)) + draw.choices(range(40), k=15)
    draw.shuffle(places)
    while places:
        some, places = places[:7], places[7:]
        told = {name: [column[place] for place in some] for name, column in TRUTH.items()}
        handed_in.take(made, "n1", batch(clock, [TIMES[place] for place in some], told, off_ms), ())
        made.work(clock.now_ms)
        clock.now_ms += draw.randrange(3) * 1000
    moved = -round(off_ms / 1000) * 1000 + off_ms if abs(off_ms) > 2000 else off_ms

    found = busy(made, clock)
    energy = made.curves("n1", "gpu/0", NOW - 3_600_000, clock.now_ms + 60_000, clock.now_ms)["energy"]
    made.close()

    assert [(at_ms + moved, value) for at_ms, value in zip(TIMES, TRUTH["gpu/0/busy"], strict=True)] == found
    assert 39 * 300 == sum([value or 0 for value in energy.values])


def test_a_clock_a_minute_ahead_is_compared_and_told(series: Series) -> None:
    clock = Clock()
    handed_in = HandedIn(clock)

    off_ms = handed_in.take(series, "n1", batch(clock, [NOW], {"gpu/0/busy": [500]}, 60_000), ())

    assert -60_000 == off_ms
    assert {"n1": -60_000} == handed_in.clocks_off_ms()
    assert [(NOW, 500)] == busy(series, clock)


def test_a_counter_that_begins_anew_is_no_negative_rise(series: Series) -> None:
    clock = Clock(NOW + 40_000)
    HandedIn(clock).take(series, "n1", batch(clock, TIMES[:4], {"gpu/0/energy": [900, 1000, 20, 50]}), ())

    curve = series.curves("n1", "gpu/0", NOW - 1000, clock.now_ms, clock.now_ms)["energy"]

    assert [0, 100, 20, 30] == curve.values


def test_what_cannot_be_is_left_out_and_counted(series: Series) -> None:
    clock = Clock()
    handed_in = HandedIn(clock)
    told = {"gpu/0/busy": [500, 2000, None], "gpu/0/charm": [1, 1, 1]}

    handed_in.take(series, "n1", batch(clock, [NOW, NOW + 1, NOW + 2], told), ())
    handed_in.take(series, "n1", batch(clock, [NOW - 3_700_000], {"gpu/0/busy": [1]}), ())

    assert [(NOW, 500)] == busy(series, clock)
    assert 1 == series.faults["n1", OUT_OF_BOUNDS]
    assert 1 == series.faults["n1", TOO_LATE]


def test_a_node_tells_nothing_of_attempts_that_run_elsewhere(series: Series) -> None:
    clock = Clock()
    told = {f"attempt/{KEY}/memory": [77], "attempt/yard-18b-8-1/memory": [5]}

    HandedIn(clock).take(series, "n1", batch(clock, [NOW], told), {KEY})

    assert {"attempt/yard-18b-8-1/memory": 5} == dict(series.latest()[0].values)
    assert 1 == series.faults["n1", ELSEWHERE]


def test_curves_of_an_attempt_that_nobody_tells_of_any_more_are_kept_and_late_ones_added(
    series: Series,
) -> None:
    clock = Clock(TIMES[9])
    handed_in = HandedIn(clock)
    name = f"attempt/{KEY}/memory"
    handed_in.take(series, "n1", batch(clock, TIMES[:5], {name: [1, 2, 3, 4, 5]}), ())
    clock.now_ms += QUIET_MS + 1
    handed_in.keep_ended(series)
    early = series.kept(KEY)["memory"].values
    handed_in.take(series, "n1", batch(clock, TIMES[5:7], {name: [6, 7]}), ())
    clock.now_ms += QUIET_MS + 1
    handed_in.keep_ended(series)

    assert [1, 2, 3, 4, 5] == early
    assert [1, 2, 3, 4, 5, 6, 7] == series.kept(KEY)["memory"].values
