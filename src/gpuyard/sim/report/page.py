"""The report of a simulation as one HTML file: headlines, tables, plots."""

from collections.abc import Sequence
from typing import Any

from gpuyard import __version__
from gpuyard.job_sizes import SIZES, SizeRanges
from gpuyard.pages import human
from gpuyard.pages.document import (
    Facts,
    read_asset,
    render_document,
    render_foot,
    render_head,
    wrap_wide_table,
)
from gpuyard.pages.markup import Markup, element, escape_text, join
from gpuyard.quantities import span_rounded, usd_rounded
from gpuyard.sim.report import plots, sentences
from gpuyard.sim.report.series import TENANTS_MAX, ComparedPolicy, compare_policies
from gpuyard.sim.report.table import (
    METRICS,
    SIZE_METRICS,
    best_of,
    is_comparable,
    list_sizes,
    make_terminal_table,
)
from gpuyard.sim.result import Result

SLOWDOWN_MEANING = (
    "Time from submission to end over run time (bounded slowdown): run times under 10 s count as 10 s, "
    "and it is never below 1."
)
ENTITLED_MEANING = (
    "What its weight entitles a tenant to at a moment, given who has work. Shares and entitlements are of "
    "the GPU time used while jobs waited: without a queue everybody has what it asks for. A tenant that "
    "always has its due has a bar that ends at its mark."
)


def render(
    results: Sequence[Result],
    title: str,
    facts: Facts = (),
    *,
    command: str = "",
    origin_ms: int = 0,
    summaries: Sequence[dict[str, Any]] | None = None,
    sizes: SizeRanges = SIZES,
    version: str = __version__,
) -> str:
    """The whole page. The first policy is the one that the others are compared with.

    `command` is the shell command that repeats the simulation; `origin_ms` the epoch time of the first submission, if
    known, for dates on the axes; `summaries` the results of `summarise` with the same `sizes`, if the caller has them.
    Equal input gives equal bytes.
    """
    entries = compare_policies(results, summaries, sizes)
    body = element(
        "main",
        _head(title, facts, entries),
        *(
            element("p", warning, class_="warning", role="note")
            for warning in sentences.warning_texts(entries)
        ),
        _headlines(entries),
        _table(entries),
        _sizes(entries),
        _teams(entries) if entries else None,
        element("section", plots.draw_plots(entries, origin_ms, sizes), class_="plots") if entries else None,
        _foot(command, version),
    )
    return render_document(title, body, read_asset("report.js"))


def _head(title: str, facts: Facts, entries: Sequence[ComparedPolicy]) -> Markup:
    shown = [("policies", ", ".join(entry.name for entry in entries) or "none"), *facts]
    return render_head("simulation report", title, shown)


def _headlines(entries: Sequence[ComparedPolicy]) -> Markup | None:
    if not entries:
        return element("p", "No policy was simulated.", class_="none")
    first, *others = entries
    if others and is_comparable([entry.summary for entry in entries]):
        said = [(other, sentences.headline(first, other)) for other in others]
    else:
        said = [(entry, sentences.lone_headline(entry)) for entry in entries]
    items = (element("li", sentence, style=f"--c:{entry.colour}") for entry, sentence in said)
    return element("ul", *items, class_="headlines")


def _table(entries: Sequence[ComparedPolicy]) -> Markup | None:
    if not entries:
        return None
    table = make_terminal_table([entry.result for entry in entries], [entry.summary for entry in entries])
    first = element("th", "policy", scope="col", class_="left")
    heads = (
        element(
            "th",
            metric.header,
            element("small", metric.plain),
            scope="col",
            class_="right",
            title=metric.meaning,
        )
        for metric in METRICS
    )
    rows = []
    for row, (entry, (name, *figures)) in enumerate(zip(entries, table.rows, strict=True)):
        best = [(row, place) in table.best for place, _ in enumerate(figures, 1)]
        cells = (
            element(
                "td",
                figure,
                element("span", " best", class_="hint") if stands_out else None,
                class_="best" if stands_out else None,
            )
            for figure, stands_out in zip(figures, best, strict=True)
        )
        chip = element("i", style=f"--c:{entry.colour}")
        rows.append(element("tr", element("th", chip, name, scope="row"), *cells))
    return element(
        "section",
        wrap_wide_table(
            element(
                "table",
                element("thead", element("tr", first, *heads)),
                element("tbody", *rows),
            )
        ),
        _key(entries, bool(table.best)),
        class_="summary",
    )


def _key(entries: Sequence[ComparedPolicy], marked: bool) -> Markup | None:
    """What is marked, and the time over which the policies are compared."""
    said = []
    if marked:
        said.append(join(element("b", "Marked"), " is the best value of a column. "))
    windows = {entry.summary["window_s"] for entry in entries}
    if len(entries) > 1 and len(windows) == 1:
        said.append(
            escape_text(
                f"Utilisation is over the same {span_rounded(windows.pop())} for all policies: "
                "until the first of them is through with its jobs."
            )
        )
    return element("p", *said, class_="key") if said else None


def _sizes(entries: Sequence[ComparedPolicy]) -> Markup | None:
    """The figures of each size of job under each policy; nothing where all jobs are of one size."""
    found = list_sizes([entry.result for entry in entries], [entry.summary for entry in entries])
    if len(found) < 2:
        return None
    heads = [element("th", text, scope="col", class_="left") for text in ("GPUs of a job", "policy")]
    heads += [
        element("th", metric.header, element("small", metric.plain), scope="col", title=metric.meaning)
        for metric in SIZE_METRICS
    ]
    lines = []
    for size, rows in found:
        best = [best_of(metric, rows) for metric in SIZE_METRICS]
        for nth, (entry, row) in enumerate(zip(entries, rows, strict=True)):
            cells = [
                element(
                    "td",
                    metric.cell(row),
                    element("span", " best", class_="hint") if stands_out[nth] else None,
                    class_="best" if stands_out[nth] else None,
                )
                for metric, stands_out in zip(SIZE_METRICS, best, strict=True)
            ]
            chip = element("i", style=f"--c:{entry.colour}")
            lines.append(
                element(
                    "tr",
                    element("th", element("span", size, class_="hint") if nth else size, scope="row"),
                    element("td", chip, entry.name, class_="left"),
                    *cells,
                    class_=None if nth else "first",
                )
            )
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *lines))
    return element(
        "section",
        element("h2", sentences.work_heading(entries)),
        wrap_wide_table(table),
        class_="summary teams",
    )


def _teams(entries: Sequence[ComparedPolicy]) -> Markup | None:
    """Waits and cost of each team under each policy."""
    totals: dict[str, float] = {}
    for entry in entries:
        for path, tenant in entry.summary["tenants"].items():
            totals[path] = max(totals.get(path, 0.0), tenant["gpu_s"])
    paths = sorted(totals, key=lambda path: (-totals[path], path))
    if len(paths) < 2:
        return None
    heads = [
        ("team", ""), ("policy", ""), ("jobs", "that ended"), ("wait mean", "of an average job"),
        ("wait p95", "95 of 100 jobs wait no longer"), ("GPU-hours", "used"), ("cost", "of the GPU time used"),
    ]  # fmt: skip
    rows = []
    for path in paths[:TENANTS_MAX]:
        for entry in entries:
            tenant = entry.summary["tenants"].get(path)
            if tenant is None:
                continue
            cells = [
                human.count(tenant["jobs"]),
                span_rounded(tenant["wait_s"]["mean"]),
                span_rounded(tenant["wait_s"]["p95"]),
                human.gpu_hours_text(tenant["gpu_s"]),
                usd_rounded(tenant["cost_usd"]),
            ]
            chip = element("i", style=f"--c:{entry.colour}")
            named = entry is entries[0]
            rows.append(
                element(
                    "tr",
                    element("th", path if named else element("span", path, class_="hint"), scope="row"),
                    element("td", chip, entry.name, class_="left"),
                    *[element("td", cell) for cell in cells],
                    class_="first" if named else None,
                )
            )
    left = len(paths) - TENANTS_MAX
    columns = [
        element(
            "th",
            head,
            element("small", plain) if plain else None,
            scope="col",
            class_=None if plain else "left",
        )
        for head, plain in heads
    ]
    return element(
        "section",
        element("h2", _teams_heading(entries, paths)),
        wrap_wide_table(element("table", element("thead", element("tr", *columns)), element("tbody", *rows))),
        element("p", f"The {TENANTS_MAX} that used most, of {len(paths)}.", class_="key")
        if left > 0
        else None,
        class_="summary teams",
    )


def _teams_heading(entries: Sequence[ComparedPolicy], paths: Sequence[str]) -> str:
    """The team that waits longest on average under each policy."""
    found: list[tuple[str, str, str]] = []
    for entry in entries:
        waits = [
            (tenant["wait_s"]["mean"], path)
            for path in paths
            if (tenant := entry.summary["tenants"].get(path)) and tenant["wait_s"]["mean"] is not None
        ]
        if waits:
            wait, path = max(waits)
            found.append((entry.name, path, span_rounded(wait)))
    if not found:
        return "No job of any team ended"
    (name, path, longest), *rest = found
    start = f"{path} waits longest: {longest} on average with {name}"
    others = [
        f"{wait} with {name}" if tenant == path else f"{tenant}, {wait}, with {name}"
        for name, tenant, wait in rest
    ]
    return "; ".join([start, *others])


def _foot(command: str, version: str) -> Markup:
    terms = [(metric.header, metric.meaning) for metric in METRICS]
    terms += [(metric.header, metric.meaning) for metric in SIZE_METRICS if metric not in METRICS]
    terms += [("slowdown", SLOWDOWN_MEANING), ("entitled", ENTITLED_MEANING)]
    definitions = (element("div", element("dt", term), element("dd", meaning)) for term, meaning in terms)
    return element(
        "footer",
        element("h2", "What the figures mean"),
        element("dl", *definitions, class_="definitions"),
        join(element("h2", "Repeat it"), element("pre", element("code", command), tabindex="0"))
        if command
        else None,
        render_foot(version),
    )
