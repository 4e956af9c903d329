"""Points in time as people write them."""

import time
from collections.abc import Iterator

import pytest

from gpuyard.cli.commands.jobs.why import time_ms
from gpuyard.errors import BadInput
from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS

NOW_MS = 1_794_729_600_000


@pytest.fixture(autouse=True)
def somewhere() -> Iterator[None]:
    """A place two hours ahead of UTC, where it is 14:00; afterwards we are back, which the C library must be told."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "XXX-2")
        time.tzset()
        yield
    time.tzset()


def of(text: str) -> int:
    return time_ms("--at", text, NOW_MS)


def test_every_form_is_a_time() -> None:
    assert time.localtime(NOW_MS / 1000)[3:5] == (10, 0)
    assert [
        NOW_MS - 2 * HOUR_MS,
        NOW_MS - 90 * MINUTE_MS,
        NOW_MS,
        NOW_MS - 55 * MINUTE_MS,
        NOW_MS - 30 * MINUTE_MS - 15_000,
    ] == [of(text) for text in ("-2h", "-1h30m", str(NOW_MS), "9:05", "09:29:45")]
    assert (
        NOW_MS - HOUR_MS
        == of("2026-11-15T09:00")
        == of("2026-11-15 07:00Z")
        == of("2026-11-15T09:00:00+02:00")
    )


def test_a_time_of_day_that_has_not_come_is_that_of_yesterday() -> None:
    assert NOW_MS + 5 * MINUTE_MS - DAY_MS == of("10:05")


@pytest.mark.parametrize("text", ["", "bogus", "-", "-2x", "25:00", "12:60", "2026-13-01", "17"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        of(text)
    assert "--at" in refused.value.message
    assert "14:05" in (refused.value.hint or "")
