"""What a job has used so far: time that it ran, GPU-hours, and what those cost at the price of the GPUs it had."""

from collections.abc import Callable
from typing import Any

from gpuyard.model.units import HOUR_MS, MICRO_USD, MILLI, SECOND_MS

View = dict[str, Any]


def used(job: View, now_ms: int, price_micro_usd_h: Callable[[str], int]) -> View:
    """Over all tries of a job as it is shown; the price is that of a GPU of a node. No cost: no price is known."""
    tries = job.get("tries") or [job]
    gpu_milli = round(job["gpus"] * MILLI)
    run_ms = micro_usd = 0
    priced = True
    for each in tries:
        if not each["started_ms"]:
            continue
        ran_ms = max(0, (each["ended_ms"] or now_ms) - each["started_ms"])
        run_ms += ran_ms
        price = price_micro_usd_h(each["nodes"][0]) if each["nodes"] else 0
        priced = priced and bool(price)
        micro_usd += price * gpu_milli * ran_ms // (MILLI * HOUR_MS)
    return {
        "run_s": run_ms // SECOND_MS,
        "gpu_hours": round(gpu_milli * run_ms / (MILLI * HOUR_MS), 4),
        "cost_usd": round(micro_usd / MICRO_USD, 4) if priced or not gpu_milli else None,
    }
