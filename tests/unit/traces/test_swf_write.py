"""Traces written as Standard Workload Format: what is read back is the same to the second."""

from pathlib import Path

import pytest

from gpuyard.errors import BadInput
from gpuyard.sim.generate import poisson, teams_week
from gpuyard.sim.traces import load
from gpuyard.sim.traces.swf_write import save_swf


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    trace = poisson(500, 256, 0.9, 3, tenants=(("a", "", 2), ("b/u", "", 1)))
    save_swf(trace, tmp_path / "t.swf")
    back = load(tmp_path / "t.swf", strict=True)

    assert (500, 0) == (len(back), back.skipped)
    assert [s.ask for s in trace.specs] == [s.ask for s in back.specs]
    assert trace.spec == back.spec
    for mine, theirs in ((trace.run_ms, back.run_ms), (trace.limit_ms, back.limit_ms)):
        assert all(0 <= b - a < 1000 for a, b in zip(mine, theirs, strict=True))
    assert all(0 <= a - b < 1000 for a, b in zip(trace.submit_ms, back.submit_ms, strict=True))
    assert all(run <= limit for run, limit in zip(back.run_ms, back.limit_ms, strict=True))


def test_every_line_has_eighteen_whole_numbers(tmp_path: Path) -> None:
    save_swf(poisson(50, 64, 0.9, 0), tmp_path / "t.swf")
    lines = [line for line in (tmp_path / "t.swf").read_text().splitlines() if not line.startswith(";")]

    assert 50 == len(lines)
    assert {18} == {len([int(cell) for cell in line.split()]) for line in lines}


def test_what_the_format_cannot_say_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="whole processors"):
        save_swf(teams_week(0), tmp_path / "t.swf")
    assert [] == list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written: No such file"):
        save_swf(poisson(5, 8, 0.9, 0), tmp_path / "no" / "t.swf")
