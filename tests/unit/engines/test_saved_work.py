"""When a job last saved its work is the time of a file, and the clock that it is by may have been set since."""

import pytest

from gpuyard.engines.machine.peeking import date_by_start
from gpuyard.model.units import HOUR_MS, MINUTE_MS

T = 1_800_000_000_000
BEGAN = 5_000_000
LATER = 10 * MINUTE_MS


def saved(file_ms: int, set_by_ms: int, before_ms: int = 0) -> int:
    """What is made of a file ten minutes after the start, the clock having been set meanwhile."""
    now = (T + LATER + set_by_ms, BEGAN + LATER)
    return date_by_start(file_ms and T + file_ms, (T, BEGAN), before_ms and T + before_ms, now)


@pytest.mark.parametrize("set_by_ms", [0, HOUR_MS, -HOUR_MS, 5 * MINUTE_MS, -5 * MINUTE_MS])
def test_no_work_saved_is_lost_by_a_clock_that_is_set(set_by_ms: int) -> None:
    before, after = 1 * MINUTE_MS, 9 * MINUTE_MS
    assert T + after == saved(after + set_by_ms, set_by_ms), "saved after the clock was set"
    if abs(set_by_ms) in (0, HOUR_MS):
        assert T + before == saved(before, set_by_ms), "and before"
    assert T <= saved(before, set_by_ms) <= T + LATER


def test_what_an_earlier_attempt_saved_is_none_of_this_ones() -> None:
    assert 0 == saved(0, 0)
    assert 0 == saved(-MINUTE_MS, 0, before_ms=-MINUTE_MS)
    assert 0 == saved(HOUR_MS, 0, before_ms=HOUR_MS), "the clock was set back between them"
    assert 0 == saved(-MINUTE_MS, -HOUR_MS, before_ms=-MINUTE_MS)


def test_the_time_of_a_file_stays_as_it_is_where_no_clock_was_set() -> None:
    assert [T - 4, T + 7, T + LATER] == [saved(ms, 900) for ms in (-4, 7, LATER + HOUR_MS)]
