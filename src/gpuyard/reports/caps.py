"""Columns for a tenant's budget and caps, with what is used of them, as both listings of tenants show them."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpuyard.reports.table import Column, number, span_words


def cap_columns(rows: Iterable[Mapping[str, Any]]) -> list[Column]:
    """Shown where any tenant has some; otherwise only where they are asked for."""
    rows = list(rows)
    budgets = any(row["budget"] for row in rows)
    caps = any(_caps(row) != "-" for row in rows)
    return [
        Column("BUDGET", _budget, right=True, wide=not budgets),
        Column("WINDOW", _window, right=True, wide=not budgets),
        Column("CAPS", _caps, wide=not caps),
    ]


def _budget(row: Mapping[str, Any]) -> str:
    """`12.5/100 GPU-h`: spent, of all."""
    budget = row["budget"]
    return f"{budget['spent_gpu_hours']:g}/{budget['gpu_hours']:g} GPU-h" if budget else "-"


def _window(row: Mapping[str, Any]) -> str:
    return span_words(row["budget"]["window_ms"]) if row["budget"] else "-"


def _caps(row: Mapping[str, Any]) -> str:
    """`3/4 jobs, 2/8 GPUs a user, 4 GPUs a job`."""
    found = []
    if row["max_running_jobs"] is not None:
        found.append(f"{row['running']}/{row['max_running_jobs']} jobs")
    if row["max_gpus_per_user"] is not None:
        found.append(f"{number(row['most_gpus_of_a_user'])}/{number(row['max_gpus_per_user'])} GPUs a user")
    if row["max_gpus_per_job"] is not None:
        found.append(f"{number(row['max_gpus_per_job'])} GPUs a job")
    return ", ".join(found) or "-"
