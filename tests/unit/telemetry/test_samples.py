"""What of a sample is believed, and clocks that are off."""

import math

from gpuyard.telemetry.samples import (
    AHEAD,
    NO_NUMBER,
    NO_SIGNAL,
    OUT_OF_BOUNDS,
    SERIES_MAX,
    TOO_LATE,
    TOO_MANY,
    Clocks,
    check_sample,
)

NOW = 1_000_000_000


def test_values_that_cannot_be_are_left_out_and_counted() -> None:
    told = {
        "gpu/0/busy": 500,
        "gpu/0/power": 71.6,
        "gpu/0/memory_temperature": None,
        "gpu/1/busy": 1001,
        "gpu/1/power": math.nan,
        "gpu/1/temperature": -3,
        "gpu/2/power": math.inf,
        "gpu/2/busy": "90",
        "gpu/2/row_remap_failed": True,
        "gpu/0/charm": 1,
        "gpu/0\n/busy": 1,
    }
    found = check_sample("n1", NOW, told, NOW)

    assert {"gpu/0/busy": 500, "gpu/0/power": 72} == found.values
    assert {OUT_OF_BOUNDS: 2, NO_NUMBER: 4, NO_SIGNAL: 2} == found.faults


def test_samples_too_old_or_ahead_of_the_clock_are_left_out_whole() -> None:
    assert {TOO_LATE: 1} == check_sample("n1", NOW - 3_600_001, {"gpu/0/busy": 1}, NOW).faults
    assert {AHEAD: 1} == check_sample("n1", NOW + 60_001, {"gpu/0/busy": 1}, NOW).faults
    assert {"gpu/0/busy": 1} == check_sample("n1", NOW - 3_600_000, {"gpu/0/busy": 1}, NOW).values


def test_a_collector_cannot_make_up_series_without_end() -> None:
    told = {f"gpu/{gpu}/busy": 1 for gpu in range(SERIES_MAX + 7)}
    found = check_sample("n1", NOW, told, NOW)

    assert SERIES_MAX == len(found.values)
    assert {TOO_MANY: 7} == found.faults


def test_a_clock_a_minute_ahead_is_told_and_its_samples_are_moved() -> None:
    clocks = Clocks()
    for turn, way_ms in enumerate((900, 30, 4000)):
        sent = NOW + turn * 10_000
        clocks.heard("n1", sent + 60_000, sent, sent + way_ms)

    assert -59_970 == clocks.off_ms("n1")
    assert 0 == clocks.off_ms("n2")


def test_a_slow_network_is_no_clock_that_is_off() -> None:
    clocks = Clocks()
    clocks.heard("n1", NOW, 0, NOW + 20)

    assert 0 == clocks.heard("n1", NOW + 10_000, 10_000, NOW + 19_000)


def test_a_clock_that_was_set_is_believed_at_once() -> None:
    clocks = Clocks()
    clocks.heard("n1", NOW - 60_000, 0, NOW + 20)

    assert 0 == clocks.heard("n1", NOW + 10_000, 10_000, NOW + 10_020)
