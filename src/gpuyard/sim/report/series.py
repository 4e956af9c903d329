"""From a result to what is drawn: few enough points to send, chosen so that the picture stays true."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpuyard.job_sizes import SIZES, SizeRange, SizeRanges
from gpuyard.pages.scale import Log
from gpuyard.sim.result import Result
from gpuyard.sim.summary import align_columns, compute_slowdowns_milli, find_nearest_rank, summarise_all

POINTS_MAX = 400
CDF_POINTS = 240
COLOURS = 8
TENANTS_MAX = 12


@dataclass(frozen=True, slots=True)
class ComparedPolicy:
    """One policy of the comparison."""

    result: Result
    summary: dict[str, Any]
    colour: str
    """A CSS colour. The first of several policies is grey: the others are compared with it."""

    @property
    def name(self) -> str:
        return self.result.policy


def compare_policies(
    results: Sequence[Result],
    summaries: Sequence[dict[str, Any]] | None = None,
    sizes: SizeRanges = SIZES,
) -> list[ComparedPolicy]:
    """The policies in the given order; summaries are made if the caller has none."""
    results = [align_columns(result) for result in results]
    if summaries is None:
        summaries = summarise_all(results, sizes)
    first = 1 if len(results) == 1 else 0
    return [
        ComparedPolicy(
            result, summary, f"var(--c{index if index < COLOURS else 1 + (index - 1) % (COLOURS - 1)})"
        )
        for index, (result, summary) in enumerate(zip(results, summaries, strict=True), start=first)
    ]


def mean(values: Sequence[int]) -> float:
    """Of at least one value."""
    return sum(values) / len(values)


def thin_values(
    at_ms: Sequence[int], values: Sequence[int], pick: Callable[[Sequence[int]], float]
) -> list[tuple[int, float]]:
    """At most `POINTS_MAX` (time, value) points; `pick` chooses the value of neighbours that share one."""
    size = -(-len(at_ms) // POINTS_MAX) or 1
    return [(at_ms[i], pick(values[i : i + size])) for i in range(0, len(at_ms), size)]


def end_ms(result: Result) -> int:
    """Where the lines of a result end."""
    at = result.samples.at_ms
    return max(result.last_end_ms, at[-1] if len(at) else 0)


def span_ms(entries: Sequence[ComparedPolicy]) -> tuple[int, int] | None:
    """First and last time of all samples together; None without samples."""
    sampled = [entry.result for entry in entries if len(entry.result.samples.at_ms)]
    if not sampled:
        return None
    start = min(result.samples.at_ms[0] for result in sampled)
    return start, max(start + 1, *(end_ms(result) for result in sampled))


def cdf(ordered: Sequence[int], scale: Log) -> list[tuple[float, float]]:
    """(position on the axis, part of the values at or below) at equal distances along a log axis."""
    places = [index / (CDF_POINTS - 1) for index in range(CDF_POINTS)]
    return [(at, bisect_right(ordered, round(scale.value(at))) / len(ordered)) for at in places]


class SizeSpread(NamedTuple):
    """A figure of the jobs of one size under one policy: a wait in seconds, or a slowdown."""

    size: SizeRange
    jobs: int
    p50: float
    p95: float


BySize = list[SizeSpread | None]
"""One per range of sizes; None if no such job ended."""


def wait_by_size(entry: ComparedPolicy, sizes: SizeRanges) -> BySize:
    """Waits, from the summary."""
    figures = [(size, entry.summary["sizes"][size.name]) for size in sizes.ranges]
    return [
        SizeSpread(size, each["jobs"], each["wait_s"]["p50"], each["wait_s"]["p95"]) if each["jobs"] else None
        for size, each in figures
    ]


def slowdown_by_size(result: Result, sizes: SizeRanges) -> BySize:
    """Slowdowns, which the summary has only for all sizes together."""
    groups: list[list[int]] = [[] for _ in sizes.ranges]
    place = {milli: sizes.place(milli) for milli in set(result.gpu_milli)}
    for milli, slowdown in zip(result.gpu_milli, compute_slowdowns_milli(result), strict=True):
        groups[place[milli]].append(slowdown)
    for group in groups:
        group.sort()
    return [
        SizeSpread(size, len(group), *[find_nearest_rank(group, percent) / 1000 for percent in (50, 95)])
        if group
        else None
        for size, group in zip(sizes.ranges, groups, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One tenant (or all the small ones together) under every policy."""

    path: str
    shares: list[tuple[float, float] | None]
    """Per policy (share, entitled), both 0 to 1."""


def tenant_rows(entries: Sequence[ComparedPolicy]) -> list[TenantRow]:
    """All tenants that used or were entitled to anything, largest share or entitlement first."""
    paths = sorted({path for entry in entries for path in entry.summary["tenants"]})
    rows = [TenantRow(path, [_share(entry, path) for entry in entries]) for path in paths]
    rows = [row for row in rows if any(row.shares)]
    rows.sort(key=lambda row: (-max(max(pair) for pair in row.shares if pair), row.path))
    return rows


def find_largest(rows: list[TenantRow]) -> list[TenantRow]:
    """The first `TENANTS_MAX`, and the others together if there are more."""
    if len(rows) <= TENANTS_MAX + 1:
        return rows
    small = rows[TENANTS_MAX:]
    together = [_added([row.shares[index] for row in small]) for index in range(len(rows[0].shares))]
    return [*rows[:TENANTS_MAX], TenantRow(f"{len(small):,} others", together)]


def _share(entry: ComparedPolicy, path: str) -> tuple[float, float] | None:
    tenant = entry.summary["tenants"].get(path)
    if tenant is None or tenant["share"] is None or tenant["entitled"] is None:
        return None
    return tenant["share"], tenant["entitled"]


def _added(pairs: Sequence[tuple[float, float] | None]) -> tuple[float, float] | None:
    known = [pair for pair in pairs if pair]
    return (sum(share for share, _ in known), sum(due for _, due in known)) if known else None
