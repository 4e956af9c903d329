"""The comparison of policies as a table of plain strings, for the terminal and for the head of the report.

The metrics are listed once: their names, how they are written, which direction is better and what they mean. The table,
the headline sentences and the definitions at the end of the report all read this list.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from operator import itemgetter
from typing import Any

from gpuyard.pages import human
from gpuyard.quantities import percent_rounded, span_rounded, usd_rounded
from gpuyard.sim.result import Result
from gpuyard.sim.summary import summarise_all
from gpuyard.tables import Column, Grid, grid

Summary = dict[str, Any]


class Better(Enum):
    """Which of two values of a metric is better."""

    LOW = "low"
    """Such as waits and cost."""
    HIGH = "high"
    """Such as utilisation."""
    NEITHER = "neither"
    """A means rather than an end, such as preemptions."""


class Metric(Column):
    """A figure of a policy's summary: a column of the comparison."""

    __slots__ = ("better", "meaning", "phrase", "plain", "say", "value")

    def __init__(
        self,
        header: str,
        phrase: str,
        value: Callable[[Summary], float | None],
        say: Callable[[float | None], str],
        better: Better,
        meaning: str,
        plain: str,
    ) -> None:
        super().__init__(header, lambda summary: say(value(summary)), right=True)
        self.phrase = phrase
        """Its name within a sentence."""
        self.value = value
        self.say = say
        self.better = better
        self.meaning = meaning
        self.plain = plain
        """What its name means, in a few words."""


WAIT_MEAN = Metric(
    "wait mean",
    "mean wait",
    lambda s: s["wait_s"]["mean"],
    span_rounded,
    Better.LOW,
    "All time a job did not run between its submission and its end: before its first start and "
    "between attempts. Mean over jobs that ended.",
    "of an average job",
)
WAIT_P95 = Metric(
    "wait p95",
    "longest wait but for the worst 5 % of jobs",
    lambda s: s["wait_s"]["p95"],
    span_rounded,
    Better.LOW,
    "The wait that 95 % of the jobs that ended did not exceed (nearest rank).",
    "95 of 100 jobs wait no longer",
)

METRICS = (
    Metric(
        "finished",
        "jobs finished",
        lambda s: s["finished"],
        human.count,
        Better.HIGH,
        "Jobs that ended COMPLETED. Not among them: jobs killed at their time limit, jobs no node could "
        "ever hold, and jobs still waiting or running when the simulation stopped.",
        "jobs that ended well",
    ),
    WAIT_MEAN,
    WAIT_P95,
    Metric(
        "JCT mean",
        "mean completion time",
        lambda s: s["jct_s"]["mean"],
        span_rounded,
        Better.LOW,
        "Job completion time, from submission to end, waiting included. Mean over jobs that ended.",
        "from submission to end",
    ),
    Metric(
        "utilisation",
        "utilisation",
        lambda s: s["utilisation"],
        percent_rounded,
        Better.HIGH,
        "GPU time allocated to jobs over the GPU time of nodes that were up. For all policies over the same time: from "
        "the first submission until the first of them is through with its jobs (to the last sample where jobs are "
        "unfinished).",
        "of the GPUs are given out",
    ),
    Metric(
        "fragmentation",
        "fragmentation",
        lambda s: s["fragmentation"],
        percent_rounded,
        Better.LOW,
        "Idle GPUs that a typical job of this trace could not use, as part of the capacity; mean over time.",
        "idle, and no use to a job",
    ),
    Metric(
        "fairness",
        "fairness",
        lambda s: s["fairness"],
        human.ratio_text,
        Better.HIGH,
        "1 minus half the sum over tenants of |share used - share entitled|, mean over the times at which "
        "anything was used or waiting. 1: every tenant had exactly what its weight entitles it to.",
        "1: all have their due",
    ),
    Metric(
        "preemptions",
        "preemptions",
        lambda s: s["preemptions"],
        human.count,
        Better.NEITHER,
        "How often a running job was stopped to make room for another.",
        "jobs stopped for others",
    ),
    Metric(
        "lost GPU-h",
        "GPU-hours lost",
        lambda s: s["destroyed_gpu_s"],
        human.gpu_hours_text,
        Better.LOW,
        "GPU-hours spent on work that had to be done again after a preemption or a node failure, restarts "
        "included.",
        "work done again",
    ),
    Metric(
        "cost",
        "cost",
        lambda s: s["cost_usd"] or None,
        usd_rounded,
        Better.LOW,
        "What the GPU time used costs by the price book; a dash where nothing has a price.",
        "of the GPU time used",
    ),
)


ALL = "all"
"""Stands in the place of a size, for jobs of every size."""

SIZE_METRICS = (
    Metric(
        "jobs",
        "jobs",
        lambda s: s["jobs"],
        human.count,
        Better.NEITHER,
        "Jobs of this size that ended. A gang counts with the GPUs of all its tasks; shares, slices and jobs "
        "without GPUs are in the first size.",
        "that ended",
    ),
    WAIT_MEAN,
    Metric(
        "wait median",
        "median wait",
        lambda s: s["wait_s"]["p50"],
        span_rounded,
        Better.LOW,
        "The wait that half of the jobs that ended did not exceed (nearest rank).",
        "half of them wait no longer",
    ),
    WAIT_P95,
    Metric(
        "by work",
        "mean wait by work",
        lambda s: s["work_wait_s"],
        span_rounded,
        Better.LOW,
        "Mean wait, each job weighted with the GPU time of its work. Over jobs of every size it is nearly the "
        "same for every order that stops no job: what small jobs wait less, large ones wait more.",
        "mean wait of a GPU-hour",
    ),
    Metric(
        "done again",
        "GPU-hours done again",
        lambda s: s["redone_gpu_s"] / s["gpu_s"] if s["gpu_s"] else None,
        percent_rounded,
        Better.LOW,
        "Part of the GPU-hours of these jobs that was done again after a preemption or a node failure.",
        "of their GPU-hours",
    ),
)
"""What is told of jobs by their size."""


def list_sizes(results: Sequence[Result], summaries: Sequence[Summary]) -> list[tuple[str, list[Summary]]]:
    """The sizes of which any job ended, with their figures under each policy; last, all sizes together."""
    if not summaries:
        return []
    names = [
        name for name in summaries[0]["sizes"] if any([each["sizes"][name]["jobs"] for each in summaries])
    ]
    found = [(name, [summary["sizes"][name] for summary in summaries]) for name in names]
    if len(found) > 1:
        found.append((ALL, [_every_size(summary) for summary in summaries]))
    return [
        (
            name,
            [
                {"size": name, "policy": result.policy, "interrupted": result.interrupted, **figures}
                for result, figures in zip(results, each, strict=True)
            ],
        )
        for name, each in found
    ]


def _every_size(summary: Summary) -> Summary:
    sums = {
        key: sum([each[key] for each in summary["sizes"].values()])
        for key in ("jobs", "gpu_s", "redone_gpu_s")
    }
    return {**sums, "wait_s": summary["wait_s"], "work_wait_s": summary["work_wait_s"]}


def make_size_table(results: Sequence[Result], summaries: Sequence[Summary], title: str = "") -> Grid:
    """One row per size and policy, the policies of a size next to each other; the best of each size is marked."""
    columns = [Column("size", itemgetter("size")), Column("policy", itemgetter("policy")), *SIZE_METRICS]
    sizes = list_sizes(results, summaries)
    found = grid(columns, [row for _, rows in sizes for row in rows], title=title, turns=False)
    found.best = {
        (number * len(results) + row, place)
        for number, (_, rows) in enumerate(sizes)
        for place, metric in enumerate(SIZE_METRICS, 2)
        for row, stands_out in enumerate(best_of(metric, rows))
        if stands_out
    }
    return found


def make_terminal_table(results: Sequence[Result], summaries: Sequence[Summary] | None = None) -> Grid:
    """The policies side by side, a row for each. Pass the summaries if they already exist."""
    if summaries is None:
        summaries = summarise_all(results)
    records = [
        {"policy": result.policy} | summary for result, summary in zip(results, summaries, strict=True)
    ]
    found = grid([Column("policy", itemgetter("policy")), *METRICS], records)
    found.best = {
        (row, place)
        for place, metric in enumerate(METRICS, 1)
        for row, stands_out in enumerate(best_of(metric, summaries))
        if stands_out
    }
    return found


def is_comparable(summaries: Sequence[Summary]) -> bool:
    """An interrupted run has seen a different part of the trace: nothing is better or worse than it."""
    return not any(summary["interrupted"] for summary in summaries)


def best_of(metric: Metric, summaries: Sequence[Summary]) -> list[bool]:
    """Which values are the best. Values that read the same are equally good; if most do, none is marked."""
    values = [metric.value(summary) for summary in summaries]
    if not is_comparable(summaries):
        return [False] * len(values)
    known = [value for value in values if value is not None]
    if metric.better is Better.NEITHER or not known:
        return [False] * len(values)
    said = metric.say(min(known) if metric.better is Better.LOW else max(known))
    best = [metric.say(value) == said for value in values]
    return best if 2 * sum(best) <= len(best) else [False] * len(values)
