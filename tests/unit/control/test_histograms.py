"""Histograms in Prometheus' text."""

from gpuyard.control.replica.tally import Histogram, histogram_lines


def test_a_value_counts_in_every_bucket_that_holds_it() -> None:
    taken = Histogram((1, 5))
    for value in (0.5, 1, 1.5, 7):
        taken.add(value)

    assert [
        "# HELP gpuyard_wait_seconds Waits.",
        "# TYPE gpuyard_wait_seconds histogram",
        'gpuyard_wait_seconds_bucket{class="batch",le="1.0"} 2',
        'gpuyard_wait_seconds_bucket{class="batch",le="5.0"} 3',
        'gpuyard_wait_seconds_bucket{class="batch",le="+Inf"} 4',
        'gpuyard_wait_seconds_sum{class="batch"} 10.0',
        'gpuyard_wait_seconds_count{class="batch"} 4',
    ] == histogram_lines("gpuyard_wait_seconds", "Waits.", [({"class": "batch"}, taken)])
    assert "x_count 4" in histogram_lines("x", "X.", [({}, taken)])
    assert [] == histogram_lines("x", "X.", [])
