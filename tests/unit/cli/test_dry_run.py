"""`yard submit --dry-run`: the words about when."""

from typing import Any

import pytest

from gpuyard.cli.commands.submit.dry_run import when
from gpuyard.model.units import DAY_MS
from gpuyard.reports.table import clock

FOUND: dict[str, Any] = {
    "state": "PENDING",
    "now_ms": 0,
    "starts_by_ms": None,
    "not_before_ms": None,
    "bound_ms": None,
    "left_out_ahead": 0,
    "runs": 0,
    "never_of_runs": 0,
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"bound_ms": 30 * DAY_MS}, f"by time limits alone by {clock(30 * DAY_MS)} (in 30 d)"),
        ({}, "cannot be told"),
        ({"runs": 50, "never_of_runs": 50}, "not within 14 days"),
        ({"runs": 50, "never_of_runs": 30}, "cannot be told"),
    ],
)
def test_where_no_chance_is_known_it_says_what_is(given: dict[str, Any], expected: str) -> None:
    assert expected == when(FOUND | given)
