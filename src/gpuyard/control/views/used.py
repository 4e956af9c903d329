"""What a job has used so far: time that it ran, GPU-hours, and what those cost at the price of the GPUs it had."""

from collections.abc import Callable
from typing import Any

from gpuyard.engines.contract import Usage
from gpuyard.model.units import HOUR_MS, MICRO_USD, MILLI, SECOND_MS

View = dict[str, Any]


TRIES_MAX = 100
"""How many of a job's last tries are asked about."""


def taken(job: View, usage: Callable[[int], Usage]) -> View:
    """CPU time over all tries, and the most memory of any; None where a try is not known of."""
    ran = [each["attempt"] for each in job.get("tries") or () if each["started_ms"]]
    found = [usage(attempt) for attempt in (ran or range(1, job["attempts"] + 1))[-TRIES_MAX:]]
    cpu, memory, process = (
        [getattr(each, name) for each in found] for name in ("cpu_ms", "memory_mib", "process_mib")
    )
    return {
        "cpu_s": None if None in cpu or not cpu else round(sum(cpu) / SECOND_MS, 2),
        "memory_mib": None if None in memory or not memory else max(memory),
        "process_mib": None if None in process or not process else max(process),
    }


def used_in_all(job: View, price_micro_usd_h: Callable[[str], int]) -> View:
    """The same of an ended job as the history has it: its tries together, at the price of the GPUs of the last."""
    nodes = job["nodes"]
    return used(
        {"gpus": job["gpus"], "started_ms": 1, "ended_ms": 1 + job["ran_ms"], "nodes": nodes},
        0,
        price_micro_usd_h,
    )


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
