"""One policy on one fleet under several seeds, taken together: percentiles over all jobs of all of them.

One seed has few large jobs, and the 95th percentile of twelve is the longest of them. Taken together they say more.
"""

from array import array
from collections.abc import Sequence
from typing import Any

from gpuyard.job_sizes import SIZES, SizeRanges
from gpuyard.sim.result import Result
from gpuyard.sim.summary import align_columns, summarise

_OVER_TIME = ("utilisation", "fragmentation", "fairness")
_COUNTS = (
    "jobs", "finished", "rejected", "timeouts", "unfinished", "preemptions", "node_failures", "destroyed_gpu_ms",
    "used_gpu_ms", "cost_micro_usd",
)  # fmt: skip


def summarise_together(
    results: Sequence[Result], summaries: Sequence[dict[str, Any]], sizes: SizeRanges = SIZES
) -> dict[str, Any]:
    """The figures of `summarise` over the jobs of all results, which are of one policy and one fleet.

    Counts and GPU time are sums. Figures over time (utilisation, fragmentation, fairness) are means over the windows,
    each weighted with its length; `window_s` is the sum of them, `makespan_s` the mean. Shares are None.
    """
    summary = summarise(_together(results), sizes=sizes)
    for name in _OVER_TIME:
        known = [(each["window_s"], each[name]) for each in summaries if each[name] is not None]
        length = sum([window for window, _ in known])
        summary[name] = (
            round(sum([window * value for window, value in known]) / length, 6) if length else None
        )
    spans = [each["makespan_s"] for each in summaries if each["makespan_s"] is not None]
    summary["makespan_s"] = round(sum(spans) / len(spans), 3) if spans else None
    summary["window_s"] = sum([each["window_s"] for each in summaries])
    return summary


def _together(results: Sequence[Result]) -> Result:
    """The jobs of all results as those of one, with ids that follow each other; there are no samples."""
    made = Result(results[0].policy, results[0].capacity_milli)
    made.interrupted = any([result.interrupted for result in results])
    made.price_micro_usd_h = results[0].price_micro_usd_h
    for name in _COUNTS:
        setattr(made, name, sum([getattr(result, name) for result in results]))
    number: dict[str, int] = {}
    before = 0
    for result in map(align_columns, results):
        tenants = array("i", [number.setdefault(path, len(number)) for path in result.tenants])
        made.tenant_cost_micro_usd += [0] * (len(number) - len(made.tenant_cost_micro_usd))
        for at, cost in zip(tenants, result.tenant_cost_micro_usd, strict=False):
            made.tenant_cost_micro_usd[at] += cost
        made.job_id.extend([before + job_id for job_id in result.job_id])
        made.tenant.extend([tenants[at] for at in result.tenant])
        for name in ("wait_ms", "jct_ms", "gpu_milli"):
            getattr(made, name).extend(getattr(result, name))
        again = result.redone_milli_ms.items()
        made.redone_milli_ms.update({before + job_id: milli_ms for job_id, milli_ms in again})
        before += result.jobs
    made.tenants = list(number)
    return made
