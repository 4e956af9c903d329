"""The figures of one simulated policy, as plain JSON data: for scripts to read and the report to draw.

Every figure is defined here and nowhere else, so that the table, the plots and the JSON cannot disagree. Percentiles
are taken on integers (milliseconds, thousandths of a slowdown) by nearest rank: each one is a value that a job really
had. Figures without a value (the wait of no jobs) are None, never NaN.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from operator import mul, sub
from typing import Any

from gpuyard.job_sizes import SIZES, SizeRanges
from gpuyard.model.units import HOUR_MS, MICRO_USD, MILLI, SECOND_MS
from gpuyard.sim.result import Result, Samples

PERCENTS = (50, 95, 99)

SLOWDOWN_FLOOR_MS = 10 * SECOND_MS
"""Run times below this count as this: a job of one second that waits ten did not suffer elevenfold."""

RATIO_DIGITS = 6
MEAN_DIGITS = 3


def summarise_all(results: Sequence[Result], sizes: SizeRanges = SIZES) -> list[dict[str, Any]]:
    """The figures of several policies on one trace, with utilisation over the same time for all of them.

    That is from the first submission until the first policy has finished its jobs. A policy that leaves a few long jobs
    to the end is not less busy for that. An interrupted run cannot be compared.
    """
    if any([result.interrupted for result in results]):
        return [summarise(result, sizes=sizes) for result in results]
    results = [align_columns(result) for result in results]
    windows = [_window_ms(result) for result in results]
    until_ms = min([end for start, end in windows if end > start], default=None)
    return [summarise(result, until_ms, sizes) for result in results]


def summarise(result: Result, until_ms: int | None = None, sizes: SizeRanges = SIZES) -> dict[str, Any]:
    """The figures of one policy on one trace.

    - `jct_s`, `wait_s`, `slowdown`: over jobs that ended (COMPLETED or TIMEOUT), so `unfinished` belongs
      beside them.
    - `makespan_s`: from the first submission to the last end.
    - `utilisation`: until `until_ms`, if that is before its own end; `window_s` says how long that is.
    - `utilisation`, `fragmentation`, `fairness`, `slowdown`: see the functions below.
    - `destroyed_gpu_s`: GPU time of work that had to be done again; part of `used_gpu_s`.
    - `work_wait_s`: the mean wait, each job weighted with the GPU time of its work; see `_sizes`.
    - `sizes`: by range of sizes, over jobs that ended; see `_sizes`.
    - `tenants`: by path; `jobs`, `gpu_s` and `cost_usd` of jobs that ended; `share` and `entitled` as in
      `tenant_shares`.
    """
    result = align_columns(result)
    count = len(result.tenants)
    waits = _by_tenant(result.tenant, result.wait_ms, count)
    jcts = _by_tenant(result.tenant, result.jct_ms, count)
    weights = _weights_ms(result)
    ended = len(result.jct_ms)
    work = _work_milli_ms(result)
    return {
        "jobs": result.jobs,
        "finished": result.finished,
        "rejected": result.rejected,
        "timeouts": result.timeouts,
        "unfinished": result.unfinished,
        "jct_s": spread(_merged(jcts)),
        "wait_s": spread(_merged(waits)),
        "work_wait_s": _work_wait_s(sum(work), sum(map(mul, work, result.wait_ms))),
        "slowdown": spread(sorted(compute_slowdowns_milli(result))),
        "makespan_s": (result.last_end_ms - result.first_submit_ms) / SECOND_MS if ended else None,
        "utilisation": utilisation(result, weights, until_ms),
        "window_s": (_until(result, until_ms) - result.first_submit_ms) / SECOND_MS,
        "fragmentation": fragmentation(result, weights),
        "fairness": fairness(result.samples),
        "preemptions": result.preemptions,
        "node_failures": result.node_failures,
        "destroyed_gpu_s": result.destroyed_gpu_ms / SECOND_MS,
        "used_gpu_s": result.used_gpu_ms / SECOND_MS,
        "cost_usd": result.cost_micro_usd / MICRO_USD,
        "interrupted": result.interrupted,
        "sizes": _sizes(result, work, sizes),
        "tenants": _tenants(result, weights, waits, jcts),
    }


def align_columns(result: Result) -> Result:
    """The result with columns of equal length.

    Ctrl-C can stop a simulation between two columns of one row; the half row is left out. A result with equal columns
    is returned as it is.
    """
    jobs = {name: getattr(result, name) for name in ("job_id", "wait_ms", "jct_ms", "gpu_milli", "tenant")}
    samples = result.samples
    plain = {name: getattr(samples, name) for name in ("at_ms", "used_milli", "up_milli", "waiting")}
    plain["stranded_milli"] = samples.stranded_milli
    tenants = [*samples.tenant_used_milli, *samples.tenant_entitled_milli]
    known = min(len(result.tenants), len(samples.tenant_used_milli), len(samples.tenant_entitled_milli))
    job_rows = {len(column) for column in jobs.values()}
    sample_rows = {len(column) for column in [*plain.values(), *tenants]}
    if len(job_rows) == 1 and len(sample_rows) == 1 and len(result.tenants) == known:
        return result
    rows, moments = min(job_rows), min(sample_rows)
    unknown = [array("q", bytes(8 * moments))] * (len(result.tenants) - known)
    return replace(
        result,
        **{name: column[:rows] for name, column in jobs.items()},
        samples=Samples(
            **{name: column[:moments] for name, column in plain.items()},
            tenant_used_milli=[c[:moments] for c in samples.tenant_used_milli[:known]] + unknown,
            tenant_entitled_milli=[c[:moments] for c in samples.tenant_entitled_milli[:known]] + unknown,
        ),
    )


def find_nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """The smallest value that at least `percent` % of the sorted values do not exceed."""
    return ordered[(percent * len(ordered) + 99) // 100 - 1]


def spread(ordered_milli: Sequence[int]) -> dict[str, float | None]:
    """Mean and percentiles of sorted thousandths (milliseconds give seconds); None where there are none."""
    names = [f"p{percent}" for percent in PERCENTS]
    if not ordered_milli:
        return dict.fromkeys(["mean", *names])
    mean = round(sum(ordered_milli) / (1000 * len(ordered_milli)), MEAN_DIGITS)
    ranks = (find_nearest_rank(ordered_milli, percent) / 1000 for percent in PERCENTS)
    return {"mean": mean, **dict(zip(names, ranks, strict=True))}


def compute_slowdowns_milli(result: Result) -> list[int]:
    """Bounded slowdown of every ended job, in thousandths, in the order of the columns.

    Time from submission to end over run time, with run times under 10 s counted as 10 s, and never below 1.
    """
    out = []
    for jct, wait in zip(result.jct_ms, result.wait_ms, strict=True):
        run = max(jct - wait, SLOWDOWN_FLOOR_MS)
        out.append(max(1000, (2000 * jct + run) // (2 * run)))
    return out


def utilisation(
    result: Result, weights: Sequence[int] | None = None, until_ms: int | None = None
) -> float | None:
    """Used GPU time over the GPU time of nodes that were up, from the first submission to the last end.

    If jobs are unfinished, the time runs to the last sample instead, because their GPU time counts too. With `until_ms`
    it ends there, if that is earlier: what was used later is known from the samples and subtracted.
    """
    start, end = result.first_submit_ms, _until(result, until_ms)
    used_milli_ms = result.used_gpu_ms * MILLI
    if end < _window_ms(result)[1]:
        later = _spans_ms(result, end, _window_ms(result)[1])
        used_milli_ms -= sum(map(mul, result.samples.used_milli, later))
        weights = _spans_ms(result, start, end)
    up = _mean(result.samples.up_milli, weights if weights is not None else _weights_ms(result))
    offered = (result.capacity_milli if up is None else up) * (end - start)
    return round(max(0, used_milli_ms) / offered, RATIO_DIGITS) if offered > 0 else None


def _until(result: Result, until_ms: int | None) -> int:
    """The end of the time over which utilisation is taken."""
    start, end = _window_ms(result)
    return end if until_ms is None else max(start, min(end, until_ms))


def fragmentation(result: Result, weights: Sequence[int] | None = None) -> float | None:
    """Idle GPUs that a typical job of the trace could not use, as part of the capacity: mean over time."""
    stranded = _mean(result.samples.stranded_milli, weights if weights is not None else _weights_ms(result))
    if stranded is None or result.capacity_milli <= 0:
        return None
    return round(stranded / result.capacity_milli, RATIO_DIGITS)


def fairness(samples: Samples) -> float | None:
    """1 - the mean over busy samples of half the sum over tenants of |used share - entitled share|.

    Busy: anything is used or waiting. Shares are of what all tenants use and of what all are entitled to.
    1: every tenant had exactly what it is entitled to; 0: only tenants entitled to nothing had anything.
    Where jobs wait and no GPU is used, no tenant has its share and the error is one half.
    """
    error, count = 0.0, 0
    for waiting, used, entitled in _tenant_rows(samples, samples.waiting):
        total_used, total_entitled = sum(used), sum(entitled)
        if waiting <= 0 and total_used <= 0:
            continue
        count += 1
        if total_used > 0 and total_entitled > 0:
            apart = sum(abs(u * total_entitled - e * total_used) for u, e in zip(used, entitled, strict=True))
            error += apart / (2 * total_used * total_entitled)
        elif total_used > 0 or total_entitled > 0:
            error += 0.5
    return round(1 - error / count, RATIO_DIGITS) if count else None


def tenant_shares(result: Result, weights: Sequence[int]) -> list[tuple[float, float] | None]:
    """Per tenant (share of the GPU time used while jobs waited, share of it that it was entitled to).

    Only samples with a queue count (all samples if there never was a queue): while no job waits, every tenant has what
    it asks for and shares say nothing about the policy. Entitlement is weighted with what the cluster used at that
    moment. So a tenant that has exactly its entitlement at every moment has share == entitled, however busy the cluster
    was.
    """
    if any(result.samples.waiting):
        weights = [
            weight if waiting > 0 else 0
            for weight, waiting in zip(weights, result.samples.waiting, strict=True)
        ]
    count = len(result.tenants)
    share = [0] * count
    entitled_to = [0.0] * count
    total = 0
    for weight, used, entitled in _tenant_rows(result.samples, weights):
        total_used, total_entitled = sum(used), sum(entitled)
        if weight <= 0 or total_used <= 0 or total_entitled <= 0:
            continue
        total += weight * total_used
        factor = weight * total_used / total_entitled
        share = [sum_ + weight * u for sum_, u in zip(share, used, strict=True)]
        entitled_to = [sum_ + factor * e for sum_, e in zip(entitled_to, entitled, strict=True)]
    if not total:
        return [None] * count
    return [
        (round(s / total, RATIO_DIGITS), round(e / total, RATIO_DIGITS))
        for s, e in zip(share, entitled_to, strict=True)
    ]


def _tenants(
    result: Result, weights: Sequence[int], waits: list[list[int]], jcts: list[list[int]]
) -> dict[str, dict[str, Any]]:
    micro_gpu_s = [0] * len(result.tenants)
    for tenant, milli, jct, wait in zip(
        result.tenant, result.gpu_milli, result.jct_ms, result.wait_ms, strict=True
    ):
        micro_gpu_s[tenant] += milli * (jct - wait)
    shares = tenant_shares(result, weights)
    tenants = {}
    for index, path in enumerate(result.tenants):
        share = shares[index]
        tenants[path] = {
            "jobs": len(jcts[index]),
            "wait_s": spread(waits[index]),
            "jct_s": spread(jcts[index]),
            "gpu_s": micro_gpu_s[index] / (MILLI * SECOND_MS),
            "cost_usd": _cost_usd(result, index, micro_gpu_s[index]),
            "share": share[0] if share else None,
            "entitled": share[1] if share else None,
        }
    return tenants


def _work_milli_ms(result: Result) -> list[int]:
    """By ended job, the milli-GPU x ms that it held, without what it did again: the same under every policy."""
    held = map(mul, result.gpu_milli, map(sub, result.jct_ms, result.wait_ms))
    if not result.redone_milli_ms:
        return list(held)
    redone = map(result.redone_milli_ms.get, result.job_id, repeat(0))
    return list(map(sub, held, redone))


def _sizes(result: Result, work: Sequence[int], sizes: SizeRanges) -> dict[str, dict[str, Any]]:
    """The jobs that ended by their size, a gang with all its GPUs; ranges without a job are there, with no figures.

    - `work_wait_s`: the mean wait, each job weighted with the GPU time of its work. Every order that stops no job has
      nearly the same one over all jobs: what one job waits less, others wait more. Far above it, large jobs pay.
    - `gpu_s`: GPU time held; `redone_gpu_s`: of it, what was done again after a preemption or a node failure.
    """
    groups: list[list[int]] = [[] for _ in sizes.ranges]
    weighed, weights, redone = ([0] * len(groups) for _ in range(3))
    place = {milli: sizes.place(milli) for milli in set(result.gpu_milli)}
    again = result.redone_milli_ms
    for job_id, milli, wait, done in zip(result.job_id, result.gpu_milli, result.wait_ms, work, strict=True):
        at = place[milli]
        groups[at].append(wait)
        weights[at] += done
        weighed[at] += done * wait
        if job_id in again:
            redone[at] += again[job_id]
    return {
        name: {
            "jobs": len(group),
            "wait_s": spread(sorted(group)),
            "work_wait_s": _work_wait_s(weights[at], weighed[at]),
            "gpu_s": (weights[at] + redone[at]) / (MILLI * SECOND_MS),
            "redone_gpu_s": redone[at] / (MILLI * SECOND_MS),
        }
        for at, (name, group) in enumerate(zip(sizes.names, groups, strict=True))
    }


def _work_wait_s(weight: int, weighed: int) -> float | None:
    """A mean of milliseconds, in seconds; None where there was no work."""
    return round(weighed / (weight * SECOND_MS), MEAN_DIGITS) if weight > 0 else None


def _cost_usd(result: Result, tenant: int, milli_ms: int) -> float:
    """What the GPU time of a tenant's jobs costs."""
    if result.price_micro_usd_h is not None:
        return milli_ms * result.price_micro_usd_h // (MILLI * HOUR_MS) / MICRO_USD
    costs = result.tenant_cost_micro_usd
    return costs[tenant] / MICRO_USD if tenant < len(costs) else 0.0


def _by_tenant(tenant: Iterable[int], values: Iterable[int], count: int) -> list[list[int]]:
    """The values of each tenant, sorted."""
    groups: list[list[int]] = [[] for _ in range(count)]
    for index, value in zip(tenant, values, strict=True):
        groups[index].append(value)
    for group in groups:
        group.sort()
    return groups


def _merged(groups: list[list[int]]) -> list[int]:
    """All values, sorted. Python's sort merges the sorted groups instead of sorting again."""
    merged = [value for group in groups for value in group]
    merged.sort()
    return merged


def _window_ms(result: Result) -> tuple[int, int]:
    """The period over which time averages are taken."""
    end = result.last_end_ms
    if (result.unfinished or not len(result.jct_ms)) and len(result.samples.at_ms):
        end = max(end, result.samples.at_ms[-1])
    return result.first_submit_ms, max(end, result.first_submit_ms)


def _weights_ms(result: Result) -> list[int]:
    """How long each sample holds: until the next, within the window; equal weights if that gives nothing."""
    weights = _spans_ms(result, *_window_ms(result))
    return weights if any(weights) else [1] * len(weights)


def _spans_ms(result: Result, start: int, end: int) -> list[int]:
    """How long each sample holds between two times."""
    at = [min(max(ms, start), end) for ms in result.samples.at_ms]
    return [after - before for before, after in zip(at, [*at[1:], end], strict=True)] if at else []


def _mean(values: Sequence[int], weights: Sequence[int]) -> float | None:
    """The weighted mean; None if there is nothing to average."""
    if not len(values) or not any(weights):
        return None
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _tenant_rows(
    samples: Samples, beside: Iterable[int]
) -> Iterable[tuple[int, Sequence[int], Sequence[int]]]:
    """Per sample: the value beside it, what each tenant used, what each was entitled to."""
    used = zip(*samples.tenant_used_milli, strict=True)
    entitled = zip(*samples.tenant_entitled_milli, strict=True)
    if not samples.tenant_used_milli:
        return zip((), repeat(()), repeat(()), strict=False)
    return zip(beside, used, entitled, strict=True)
