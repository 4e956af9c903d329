"""Points in time as people write them."""

import time
from collections.abc import Iterator

import pytest

from gpuyard.cli.line.times import book_day, parse_coming_ms, parse_past_ms, parse_since_ms
from gpuyard.errors import BadInput
from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS

NOW_MS = 1_794_729_600_000


@pytest.fixture(autouse=True)
def somewhere() -> Iterator[None]:
    """A place two hours ahead of UTC, where it is 10:00; afterwards we are back, which the C library must be told."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "XXX-2")
        time.tzset()
        yield
    time.tzset()


def of(text: str) -> int:
    return parse_past_ms("--at", text, NOW_MS)


def test_every_form_is_a_time() -> None:
    assert time.localtime(NOW_MS / 1000)[3:5] == (10, 0)
    assert [
        NOW_MS - 2 * HOUR_MS,
        NOW_MS - 2 * HOUR_MS,
        NOW_MS - 90 * MINUTE_MS,
        NOW_MS,
        NOW_MS - 55 * MINUTE_MS,
        NOW_MS - 30 * MINUTE_MS - 15_000,
    ] == [of(text) for text in ("-2h", "2h", "-1h30m", str(NOW_MS), "9:05", "09:29:45")]
    assert (
        NOW_MS - HOUR_MS
        == of("2026-11-15T09:00")
        == of("2026-11-15 9:00")
        == of("2026-11-15 07:00Z")
        == of("2026-11-15T09:00:00+02:00")
    )


def test_a_day_begins_at_midnight_here() -> None:
    today = NOW_MS - 10 * HOUR_MS
    assert [today, today, today - DAY_MS, today - DAY_MS, today - DAY_MS + 14 * HOUR_MS] == [
        of(text) for text in ("today", "2026-11-15", "yesterday", "2026-11-14", "yesterday 14:00")
    ]


def test_a_day_in_summer_begins_at_midnight_of_summer_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    winter_ms, summer_ms = of("2026-11-01"), of("2026-07-01")
    assert (1_793_487_600_000, 1_782_856_800_000) == (winter_ms, summer_ms)
    assert summer_ms == parse_coming_ms("--begin", "2026-07-01", NOW_MS)


def test_a_time_of_day_that_has_not_come_is_that_of_yesterday() -> None:
    assert NOW_MS + 5 * MINUTE_MS - DAY_MS == of("10:05")


@pytest.mark.parametrize(
    "text", ["", "bogus", "-", "-2x", "25:00", "12:60", "2026-13-01", "17", "yesterdayish"]
)
def test_what_is_no_time_is_refused_with_the_forms_that_work(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        of(text)
    assert "--at" in refused.value.message
    typed = text if text == "-" else text.removeprefix("-")
    assert repr(typed) in refused.value.message, "what was typed, and not what was made of it"
    assert all(
        [form in refused.value.hint for form in ("-2h", "7d", "14:05", "yesterday", "2026-11-17T10:00")]
    )


def test_nothing_has_happened_since_a_time_to_come() -> None:
    assert NOW_MS - 7 * DAY_MS == parse_since_ms("--since", "7d", NOW_MS)
    with pytest.raises(BadInput, match="--since 2026-11-16: that time is still to come"):
        parse_since_ms("--since", "2026-11-16", NOW_MS)


def test_days_of_the_books_are_those_of_utc() -> None:
    late_ms = NOW_MS - 9 * HOUR_MS
    assert (2026, 11, 15, 1) == time.localtime(late_ms / 1000)[:4]
    assert ["2026-11-14", "2026-11-13", "2026-11-12", "2026-11-07", "2026-11-10"] == [
        book_day("--from", text, late_ms)
        for text in ("today", "yesterday", "2026-11-12", "7d", "2026-11-11T01:00")
    ]


def test_a_time_to_come_is_the_next_one() -> None:
    forms = ("+2h", "10:05", "9:00", "tomorrow", "now+1hour")
    assert [2 * HOUR_MS, 5 * MINUTE_MS, 23 * HOUR_MS, 14 * HOUR_MS, HOUR_MS] == [
        parse_coming_ms("--begin", text, NOW_MS) - NOW_MS for text in forms
    ]
