"""What a job has used: over all its tries, and what it owes by the books."""

from collections.abc import Callable
from typing import Any

from gpuyard.control.reading.plain_views import add_taken, total_use_view, use_view
from gpuyard.engines.contract import Usage

HOUR = 3_600_000


def job(**more: Any) -> Any:
    base = {"gpus": 2, "started_ms": HOUR, "ended_ms": 3 * HOUR, "nodes": ["a"], "tries": []}
    return base | more


def taken(view: Any, usage: Callable[[int], Usage]) -> dict[str, Any]:
    """What is added to the use of a job."""
    used: Any = {}
    add_taken(used, view, usage)
    found: dict[str, Any] = used
    return found


def test_one_try_that_has_ended_and_one_that_runs() -> None:
    assert {"run_s": 7200, "gpu_hours": 4.0, "cost_usd": 8.0} == use_view(job(), 9 * HOUR, 8_000_000)
    assert {"run_s": 3600, "gpu_hours": 2.0, "cost_usd": 4.0} == use_view(
        job(ended_ms=None), 2 * HOUR, 4_000_000
    )


def test_all_tries_count() -> None:
    tries = [{"started_ms": 4 * HOUR, "ended_ms": 5 * HOUR, "nodes": ["b"]}, job()]
    assert {"run_s": 10_800, "gpu_hours": 6.0, "cost_usd": 10.0} == use_view(
        job(tries=tries), 9 * HOUR, 10_000_000
    )


def test_no_gpus_no_price_and_nothing_yet() -> None:
    assert {"run_s": 7200, "gpu_hours": 0.0, "cost_usd": 0.0} == use_view(job(gpus=0), 9 * HOUR, 0)
    assert use_view(job(), 9 * HOUR, None)["cost_usd"] is None
    assert {"run_s": 0, "gpu_hours": 0.0, "cost_usd": 0.0} == use_view(
        job(started_ms=None, ended_ms=None), 9, None
    )


def test_cpu_time_is_that_of_all_tries_and_memory_that_of_the_largest() -> None:
    known = {1: Usage(1500, 300, 200), 2: Usage(500, 100, 90)}
    tries = [
        {"attempt": 1, "started_ms": 1},
        {"attempt": 2, "started_ms": 5},
        {"attempt": 3, "started_ms": 0},
    ]
    assert {"cpu_s": 2.0, "memory_mib": 300, "process_mib": 200} == taken(
        job(tries=tries, attempts=3), known.__getitem__
    )
    assert {"cpu_s": 1.5, "memory_mib": 300, "process_mib": 200} == taken(job(attempts=1), known.__getitem__)


def test_what_one_try_took_and_nobody_knows_is_unknown() -> None:
    unknown = {"cpu_s": None, "memory_mib": None, "process_mib": None}
    partly = {1: Usage(1500, None, 200), 2: Usage()}
    assert unknown == taken(job(attempts=2), partly.__getitem__)
    assert unknown == taken(job(attempts=0), partly.__getitem__)
    assert unknown | {"cpu_s": 1.5, "process_mib": 200} == taken(job(attempts=1), partly.__getitem__)


def test_an_ended_job_counts_all_that_it_ran() -> None:
    row: Any = {
        "gpus": 2,
        "ran_ms": 3 * HOUR,
        "nodes": ["a", "b"],
        "started_ms": 2 * HOUR,
        "ended_ms": 3 * HOUR,
    }
    assert {"run_s": 10_800, "gpu_hours": 6.0, "cost_usd": 12.0} == total_use_view(row, 12_000_000)
    never = row | {"ran_ms": 0, "nodes": []}
    assert {"run_s": 0, "gpu_hours": 0.0, "cost_usd": 0.0} == total_use_view(never, None)
