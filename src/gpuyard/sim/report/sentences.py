"""What the figures say, in sentences computed from them: headlines, headings of plots, warnings.

A reader takes the sentence home, so each one carries the numbers that it rests on and claims nothing that the plot does
not show.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.job_sizes import SizeRange
from gpuyard.model.units import SECOND_MS
from gpuyard.pages import human
from gpuyard.pages.markup import Markup, element, join
from gpuyard.quantities import percent_rounded, span_rounded
from gpuyard.sim.report.series import BySize, ComparedPolicy, TenantRow, end_ms
from gpuyard.sim.report.table import METRICS, WAIT_MEAN, WAIT_P95, Better, Metric

CHANGE_MIN = 0.03
"""Relative changes below this are not worth mentioning in a headline."""

CHANGES_MAX = 4
RANKED_MAX = 4
LONGER_MAX = 12
"""How many tenants that wait longer are named; the table has all."""

SLOWED_MIN = 1.05
"""Below this a slowdown reads as 1.0×."""

_ORDER = ("wait mean", "JCT mean", "utilisation", "fairness", "wait p95", "finished", "cost", "lost GPU-h")
_FIRST_ASKED = sorted(
    METRICS, key=lambda m: _ORDER.index(m.header) if m.header in _ORDER else len(_ORDER) + METRICS.index(m)
)
"""The metrics in the order in which readers look for them."""


def headline(first: ComparedPolicy, other: ComparedPolicy) -> Markup:
    """What another policy changes compared with the first: gains, then losses, the most important first."""
    gains: list[Markup] = []
    losses: list[Markup] = []
    for metric in _FIRST_ASKED:
        before, after = metric.value(first.summary), metric.value(other.summary)
        if before is None or after is None or not _matters(metric, before, after):
            continue
        better = (after > before) == (metric.better is Better.HIGH)
        (gains if better else losses).append(_change(metric, before, after))
    parts: list[str] = [element("b", other.name), " instead of ", element("b", first.name), ": "]
    if gains:
        parts.append(join(*gains[:CHANGES_MAX], between=", "))
    if losses:
        parts.append("; the price: " if gains else "worse on ")
        parts.append(join(*losses[:CHANGES_MAX], between=", "))
    if not gains and not losses:
        parts.append("no figure changes noticeably")
    longer = longer_waits_texts(first.summary, other.summary)
    if longer:
        parts += [". Longer waits: ", "; ".join(longer)]
    return join(*parts, ".")


def longer_waits_texts(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The sizes of job, and the tenants, that wait noticeably longer on average or at the 95th percentile, with both
    figures."""
    sizes = [
        f"jobs of {name} GPUs {worse}"
        for name in before["sizes"]
        if (worse := _longer_text(before["sizes"][name]["wait_s"], after["sizes"][name]["wait_s"]))
    ]
    tenants = [
        f"{path} {worse}"
        for path in sorted(set(before["tenants"]) & set(after["tenants"]))
        if (worse := _longer_text(before["tenants"][path]["wait_s"], after["tenants"][path]["wait_s"]))
    ]
    if len(tenants) > LONGER_MAX:
        tenants[LONGER_MAX:] = [f"and {len(tenants) - LONGER_MAX} more tenants"]
    return sizes + tenants


def _longer_text(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """How much longer some jobs wait; empty: they do not, or hardly."""
    worse = []
    for key, phrase, metric in (("mean", "mean", WAIT_MEAN), ("p95", "95 % within", WAIT_P95)):
        old, new = before[key], after[key]
        if old is not None and new is not None and new > old and _matters(metric, old, new):
            worse.append(f"{phrase} {metric.say(old)} → {metric.say(new)}")
    return ", ".join(worse)


def _matters(metric: Metric, before: float, after: float) -> bool:
    if metric.say(before) == metric.say(after):
        return False
    return abs(after - before) >= CHANGE_MIN * max(abs(before), abs(after))


def _change(metric: Metric, before: float, after: float) -> Markup:
    figures = element("span", f"{metric.say(before)} → {metric.say(after)}", class_="n")
    return join(metric.phrase.replace(" ", "\u00a0"), " ", figures)


def lone_headline(entry: ComparedPolicy) -> Markup:
    """The figures of a single policy."""
    said = [
        join(
            metric.phrase.replace(" ", "\u00a0"),
            " ",
            element("span", metric.say(metric.value(entry.summary)), class_="n"),
        )
        for metric in METRICS[1:7]
        if metric.value(entry.summary) is not None
    ]
    if not said:
        return join(element("b", entry.name), ": no job ended, so there is little to say.")
    return join(element("b", entry.name), ": ", join(*said, between=", "), ".")


def utilisation_heading(entries: Sequence[ComparedPolicy]) -> str:
    known = [(entry.summary["utilisation"], entry) for entry in entries]
    ranked = sorted(
        ((value, entry.name) for value, entry in known if value is not None), key=lambda pair: -pair[0]
    )
    said = [(name, percent_rounded(value)) for value, name in ranked]
    if not said:
        return "Utilisation is not known"
    if len(said) > 1 and len({figure for _, figure in said}) == 1:
        return f"{_all(len(said))} keep {said[0][1]} of the GPUs busy"
    name, figure = said[0]
    return _ranking(f"{name} keeps {figure} of the GPUs busy", [f"{n} {f}" for n, f in said[1:]])


def wait_heading(entries: Sequence[ComparedPolicy]) -> str:
    """About the median, or if hardly any job waits at the median, about the 95th percentile."""
    known = [entry for entry in entries if entry.summary["wait_s"]["p50"] is not None]
    if not known:
        return "No job ended, so no wait is known"
    key, jobs_said = ("p50", "Half of the jobs")
    if min(entry.summary["wait_s"]["p50"] for entry in known) < 1:
        key, jobs_said = ("p95", "95 % of the jobs")
    ranked = sorted(known, key=lambda entry: entry.summary["wait_s"][key])
    said = [(entry.name, span_rounded(entry.summary["wait_s"][key])) for entry in ranked]
    if {figure for _, figure in said} == {"0 s"}:
        return f"{jobs_said} do not wait at all"
    if len(said) > 1 and len({figure for _, figure in said}) == 1:
        return f"{jobs_said} wait at most {said[0][1]} with every policy"
    (name, figure), *rest = said
    return _ranking(f"{jobs_said} wait at most {figure} with {name}", [f"{f} with {n}" for n, f in rest])


def queue_heading(entries: Sequence[ComparedPolicy]) -> str:
    peaks = [
        (max(entry.result.samples.waiting), entry.name)
        for entry in entries
        if len(entry.result.samples.waiting)
    ]
    if not peaks:
        return "The length of the queue was not sampled"
    peaks.sort(key=lambda peak: peak[0])
    if peaks[-1][0] == 0:
        return "The queue was always empty"
    if len(peaks) > 1 and peaks[0][0] == peaks[-1][0]:
        return f"The queue peaks at {human.count(peaks[0][0])} jobs with every policy"
    (peak, name), *rest = peaks
    jobs = "job" if peak == 1 else "jobs"
    start = f"The queue peaks at {human.count(peak)} {jobs} with {name}"
    return _ranking(start, [f"{human.count(peak)} with {name}" for peak, name in rest])


def tenants_heading(entries: Sequence[ComparedPolicy], rows: Sequence[TenantRow]) -> str:
    """How much GPU time goes beyond entitlements per policy, and the tenant that is furthest off under the worst."""
    found = []
    for index, entry in enumerate(entries):
        gaps = [(pair[0] - pair[1], row.path) for row in rows if (pair := row.shares[index])]
        if gaps:
            found.append((sum(max(gap, 0) for gap, _ in gaps), entry.name, gaps))
    if not found:
        return "No tenant used a GPU"
    found.sort(key=lambda each: each[:2])
    said = [(percent_rounded(beyond), name) for beyond, name, _ in found]
    if {figure for figure, _ in said} <= {percent_rounded(0), percent_rounded(1e-9)}:
        return "Every tenant gets what it is entitled to"
    (figure, name), *rest = said
    start = f"With {name}, {figure} of the GPU time goes to tenants beyond their due"
    gap, path = max(found[-1][2], key=lambda each: (abs(each[0]), each[1]))
    worst = f"{path} {human.points_text(abs(gap))} too {'much' if gap > 0 else 'little'}"
    ranking = _ranking(start, [f"with {name} {figure}" for figure, name in rest])
    return f"{ranking}; {found[-1][1]} gives {worst}"


def slowdown_heading(entries: Sequence[ComparedPolicy], by_size: Sequence[BySize]) -> str:
    """About the size of job with the worst 95th percentile under any of the policies."""
    found = _worst_size(entries, by_size)
    if found is None:
        return "No job ended, so no slowdown is known"
    size, ranked = found
    (factor, name), *rest = ranked
    if max(factor for factor, _ in ranked) < SLOWED_MIN:
        return "Jobs of every size run as if they were alone"
    start = (
        f"Jobs of {size.words} suffer most: 95 % of them take up to {human.factor_text(factor)} their "
        f"run time with {name}"
    )
    return _ranking(start, [f"{human.factor_text(factor)} with {name}" for factor, name in rest])


def size_heading(entries: Sequence[ComparedPolicy], by_size: Sequence[BySize]) -> str:
    """About the size of job whose 95th percentile of waits is worst under any of the policies."""
    found = _worst_size(entries, by_size)
    if found is None:
        return "No job ended, so no wait is known"
    size, ranked = found
    said = [(span_rounded(wait), name) for wait, name in ranked]
    (wait, name), *rest = said
    if not ranked[-1][0]:
        return "Jobs of every size start at once"
    start = f"Jobs of {size.words} wait longest: 95 % of them up to {wait} with {name}"
    return _ranking(start, [f"{wait} with {name}" for wait, name in rest])


def work_heading(entries: Sequence[ComparedPolicy]) -> str:
    """About the mean wait by work of all jobs."""
    known = [(each, entry.name) for entry in entries if (each := entry.summary["work_wait_s"]) is not None]
    if not known:
        return "No work was done"
    (wait, name), *rest = sorted(known, key=lambda pair: pair[0])
    start = f"A GPU-hour of work waits {span_rounded(wait)} with {name}"
    return _ranking(start, [f"{span_rounded(wait)} with {name}" for wait, name in rest])


def _worst_size(
    entries: Sequence[ComparedPolicy], by_size: Sequence[BySize]
) -> tuple[SizeRange, list[tuple[float, str]]] | None:
    """The size with the worst 95th percentile, and that of each policy, the best first; None: no job ended."""
    known = [
        (each, entry.name) for entry, found in zip(entries, by_size, strict=True) for each in found if each
    ]
    if not known:
        return None
    worst = max([each for each, _ in known], key=lambda each: (each.p95, each.p50, each.size.least)).size
    ranked = [(each.p95, name) for each, name in known if each.size == worst]
    return worst, sorted(ranked, key=lambda pair: pair[0])


def _all(count: int) -> str:
    return "Both policies" if count == 2 else "All policies"


def _ranking(start: str, rest: Sequence[str]) -> str:
    """The first and the others after it; of many, only the next and the last, because headings are skimmed."""
    if len(rest) < RANKED_MAX:
        return ", ".join([start, *rest])
    return f"{start}, {rest[0]} … {rest[-1]}"


def warning_texts(entries: Sequence[ComparedPolicy]) -> list[Markup]:
    """What a reader has to know before trusting the figures."""
    said = []
    for entry in entries:
        if entry.result.interrupted:
            covered = (end_ms(entry.result) - entry.result.first_submit_ms) / SECOND_MS
            said.append(
                join(
                    element("b", "Interrupted. "),
                    f"The simulation of {entry.name} was stopped after {span_rounded(max(covered, 0))} "
                    "of simulated time. Its figures cover what had happened until then and are not "
                    "comparable with a full run.",
                )
            )
    left = [
        f"{human.count(entry.summary['unfinished'])} of {human.count(entry.summary['jobs'])} with "
        f"{entry.name}"
        for entry in entries
        if entry.summary["unfinished"]
    ]
    if left:
        said.append(
            join(
                element("b", "Unfinished jobs. "),
                f"{human.list_text(left)} were still waiting or running at the end. Their waits and "
                "completion times are not in any figure, which flatters a policy that leaves jobs behind.",
            )
        )
    figures = {entry.summary["rejected"] for entry in entries}
    turned_away = [
        f"{human.count(entry.summary['rejected'])} with {entry.name}"
        for entry in entries
        if entry.summary["rejected"]
    ]
    if turned_away and len(figures) == 1:
        turned_away = [f"{human.count(figures.pop())} of {human.count(entries[0].summary['jobs'])} jobs"]
    if turned_away:
        said.append(
            join(
                element("b", "Rejected jobs. "),
                f"{human.list_text(turned_away)}: no node could ever hold them, or their tenant has no quota "
                "for them.",
            )
        )
    return said
