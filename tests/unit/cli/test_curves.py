"""Curves in a terminal: holes stay holes, estimates are marked, and a picture is as wide as it may be."""

from typing import Any

import pytest

from gpuyard.api.connecting.calling import Refused
from gpuyard.cli.commands.jobs import show
from gpuyard.cli.terminal.curves import _cores, columns, draw_curves, drawn
from gpuyard.telemetry.spans import Spans, compute_mean, find_spans

BEGIN = 1_700_000_000_000
S = 1000


def curve(signal: str, points: dict[int, int], full: int | None = None, **more: Any) -> dict[str, Any]:
    """Points by the second after the start."""
    return {
        "signal": signal,
        "unit": "",
        "counts": False,
        "estimated": False,
        "full": full,
        "times_ms": [BEGIN + at * S for at in points],
        "values": list(points.values()),
        **more,
    }


def parts(each: dict[str, Any], started_ms: int) -> Spans:
    return find_spans(each["times_ms"], each["values"], started_ms, counts=each["counts"])


def told(*curves: dict[str, Any], ended_s: int = 100) -> dict[str, Any]:
    return {"started_ms": BEGIN, "ended_ms": BEGIN + ended_s * S, "curves": list(curves)}


def test_a_hole_is_a_hole_and_a_zero_is_a_line() -> None:
    busy = curve("gpu_busy", {10: 1000, 20: 1000, 30: 0, 80: 500, 90: 500, 100: 500}, 1000)
    found = columns(parts(busy, BEGIN), BEGIN, BEGIN + 100 * S, 10)

    assert [1000, 1000, 0, None, None, None, None, 500, 500, 500] == found
    assert ["██        ", "██▁    ███"] == drawn(found, 1000)


def test_a_counter_is_drawn_for_each_second_and_not_over_a_hole() -> None:
    cpu = curve("cpu", {10: 20_000, 20: 10_000, 30: 0, 80: 50_000, 90: 5000}, counts=True)

    found = columns(parts(cpu, BEGIN), BEGIN, BEGIN + 100 * S, 10)
    assert [2000, 1000, 0, None, None, None, None, None, 500, None] == found
    assert 875 == compute_mean(parts(cpu, BEGIN))


def test_an_estimate_is_marked_in_its_name_its_figures_and_its_picture() -> None:
    half = dict.fromkeys(range(10, 101, 10), 500)
    lines = draw_curves(
        told(curve("gpu_busy_estimated", half, 1000, estimated=True), curve("gpu_busy", half, 1000)), 80, 0
    )

    exact, about = "\n".join(lines[:2]), "\n".join(lines[2:4])
    assert exact.startswith("GPU   │")
    assert "mean 50 %, peak 50 %" in exact
    assert about.startswith("GPU ~ │")
    assert "mean ~50 %, peak ~50 %" in about
    assert "(estimated)" in about
    assert "█" not in about


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_picture_is_as_wide_as_the_terminal_and_has_one_axis(width: int) -> None:
    points = dict.fromkeys(range(10, 101, 10), 400)
    lines = draw_curves(told(curve("gpu_busy", points, 1000), curve("memory", points, 800)), width, 0)

    assert width - 8 <= max(map(len, lines)) <= width
    bars = {tuple(place for place, char in enumerate(line) if char in "│└┘") for line in lines[:-1]}
    assert 1 == len(bars)
    assert "800 MiB asked" in lines[2]


def test_without_a_terminal_there_are_figures_alone() -> None:
    lines = draw_curves(told(curve("gpu_memory", {10: 1024, 20: 3072}, 40_960)), 0, 0)

    assert ["GPU memory  mean 2 GiB, peak 3 GiB, of 40 GiB"] == lines
    lines = draw_curves(told(curve("gpu_memory", {10: 1024, 20: 3072}, None)), 0, 0)
    assert ["GPU memory  mean 2 GiB, peak 3 GiB"] == lines, "nobody knows of how much"


def test_a_job_that_uses_more_than_it_asked_for_stays_inside_the_picture() -> None:
    lines = draw_curves(told(curve("cpu", {10: 40_000, 20: 10_000}, 1000, counts=True)), 80, 0)

    assert "4 cores" in lines[0]
    assert "asked" not in lines[0]


def test_nothing_is_drawn_of_what_nobody_saw() -> None:
    assert [] == draw_curves(told(curve("cpu", {})), 80, 0)


def test_few_cores_are_not_none() -> None:
    assert ["0 cores", "under 0.01 cores", "0.01 cores", "1 core"] == [
        _cores(each) for each in (0, 2, 10, 1000)
    ]


def test_curves_without_totals_are_called_samples() -> None:
    """A running job without a cgroup: its engine counts nothing before the end, and the collector looks at it."""
    used = {"cpu_s": None, "memory_mib": None, "process_mib": None}
    ((_name, said),) = show._taken(used, sampled=True)
    assert "unknown" not in said
    assert "the curves below are samples" in said
    assert [("CPU time", "unknown, memory unknown")] == show._taken(used, sampled=False)
    counted = {**used, "cpu_s": 2.5}
    assert [("CPU time", "2.5 s, memory unknown")] == show._taken(counted, sampled=True)


@pytest.mark.parametrize("status", [404, 500])
def test_a_server_that_keeps_no_curves_shows_its_jobs_without_them(status: int) -> None:
    class Older:
        def curves(self, job: str) -> Any:
            raise Refused(status, {"detail": f"nothing there for {job}"})

    if status == 404:
        assert show._curves(Older(), "7") is None
    else:
        with pytest.raises(Refused):
            show._curves(Older(), "7")
