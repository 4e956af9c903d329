"""Budgets and caps in the listings of tenants."""

from typing import Any

from gpuyard.reports.tenants import cap_columns

BARE: dict[str, Any] = {
    "running": 3, "budget": None, "max_running_jobs": None, "max_gpus_per_job": None, "max_gpus_per_user": None,
    "most_gpus_of_a_user": None,
}  # fmt: skip


def test_columns_that_nobody_has_are_shown_only_where_they_are_asked_for() -> None:
    assert [("BUDGET", True), ("WINDOW", True), ("CAPS", True)] == [
        (column.header, column.wide) for column in cap_columns([BARE])
    ]


def test_what_is_used_stands_beside_what_may_be() -> None:
    budget = {"gpu_hours": 100.0, "spent_gpu_hours": 12.5, "window_ms": 7 * 86_400_000}
    row = BARE | {"budget": budget, "max_running_jobs": 4, "max_gpus_per_user": 8, "most_gpus_of_a_user": 2.5}
    columns = cap_columns([BARE, row])
    assert [False, False, False] == [column.wide for column in columns]
    assert ["12.5/100 GPU-h", "7 d", "3/4 jobs, 2.5/8 GPUs a user"] == [
        column.cell(row) for column in columns
    ]
    assert ["-", "-", "-"] == [column.cell(BARE) for column in columns]
