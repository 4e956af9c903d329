"""Moments: every form that --begin takes, seen from a Tuesday afternoon."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from gpuyard.intake.sbatch.moments import parse_moment


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", "2026-03-10T14:30:00"),
        ("now+60", "2026-03-10T14:31:00"),
        ("now+1hour", "2026-03-10T15:30:00"),
        ("NOW + 2 hours", "2026-03-10T16:30:00"),
        ("now+90minutes", "2026-03-10T16:00:00"),
        ("now+3days", "2026-03-13T14:30:00"),
        ("now+1week", "2026-03-17T14:30:00"),
        ("now-1hour", "2026-03-10T13:30:00"),
        ("16:00", "2026-03-10T16:00:00"),
        ("16:00:30", "2026-03-10T16:00:30"),
        ("04:00", "2026-03-11T04:00:00"),
        ("4:30pm", "2026-03-10T16:30:00"),
        ("11:15AM", "2026-03-11T11:15:00"),
        ("12:00am", "2026-03-11T00:00:00"),
        ("12:30 pm", "2026-03-11T12:30:00"),
        ("midnight", "2026-03-11T00:00:00"),
        ("noon", "2026-03-11T12:00:00"),
        ("fika", "2026-03-10T15:00:00"),
        ("teatime", "2026-03-10T16:00:00"),
        ("today", "2026-03-10T00:00:00"),
        ("today 23:59", "2026-03-10T23:59:00"),
        ("tomorrow", "2026-03-11T00:00:00"),
        ("tomorrow 10:00", "2026-03-11T10:00:00"),
        ("tomorrowT10:00", "2026-03-11T10:00:00"),
        ("10:00 tomorrow", "2026-03-11T10:00:00"),
        ("noon tomorrow", "2026-03-11T12:00:00"),
        ("2027-01-20", "2027-01-20T00:00:00"),
        ("2027-01-20T12:34", "2027-01-20T12:34:00"),
        ("2027-01-20T12:34:56", "2027-01-20T12:34:56"),
        ("2027-01-20-12:34", "2027-01-20T12:34:00"),
        ("2020-01-01", "2020-01-01T00:00:00"),
        ("012027", "2027-01-20T00:00:00"),
        ("0420", "2026-04-20T00:00:00"),
        ("0120", "2027-01-20T00:00:00"),
        ("01/20/27", "2027-01-20T00:00:00"),
        ("01.20.2027", "2027-01-20T00:00:00"),
        ("12/25-10:00", "2026-12-25T10:00:00"),
        ("03/10", "2027-03-10T00:00:00"),
    ],
)
def test_a_moment_is_understood(text: str, meant: str, now: datetime) -> None:
    assert meant == parse_moment(text, now).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "4PM",
            "now+1h",
            "now+1min",
            "25:00",
            "10:75",
            "elevenses",
            "2027-13-01",
            "02/30/27",
            "1PM 01/20",
        ),
        *(
            "16:00 17:00",
            "today tomorrow",
            "13:00pm",
            "now+999999999weeks",
            "16:00!",
            "12345",
            "- 16:00",
            "noonish",
        ),
    ],
)
def test_anything_else_is_refused(text: str, now: datetime) -> None:
    with pytest.raises(ValueError, match="must be a time such as"):
        parse_moment(text, now)


def test_a_time_of_day_is_one_of_the_place_where_it_is_said() -> None:
    there = timezone(timedelta(hours=9))
    now = datetime(2026, 3, 10, 14, 30, tzinfo=UTC).astimezone(there)

    assert datetime(2026, 3, 11, 7, 0, tzinfo=UTC) == parse_moment("16:00", now)
