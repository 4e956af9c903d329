"""The six plots, each with a heading that says what it shows and a line that says what is drawn."""

from collections.abc import Callable, Sequence

from gpuyard.errors import count_text
from gpuyard.job_sizes import SizeRanges
from gpuyard.model.units import SECOND_MS
from gpuyard.pages import chart, human
from gpuyard.pages.chart import End, Frame
from gpuyard.pages.document import draw_figure
from gpuyard.pages.markup import Markup, element, join
from gpuyard.pages.scale import Linear, Tick, choose_steps, make_factor_scale, make_time_ticks, wait_scale
from gpuyard.quantities import percent_rounded, span_rounded
from gpuyard.sim.report import sentences
from gpuyard.sim.report.series import (
    BySize,
    ComparedPolicy,
    cdf,
    end_ms,
    find_largest,
    mean,
    slowdown_by_size,
    span_ms,
    tenant_rows,
    thin_values,
    wait_by_size,
)

PLOT_PX = 260
PERCENT_TICKS = [Tick(at / 4, f"{25 * at} %", at % 2 == 1) for at in range(5)]


def utilisation(entries: Sequence[ComparedPolicy], origin_ms: int) -> Markup:
    """One band per policy under each other: four busy lines on top of each other would be a tangle."""
    span = span_ms(entries)
    heading = sentences.utilisation_heading(entries)
    drawn = "Allocated part of all GPUs over time. A dashed line shows nodes that are up, where some failed."
    windows = {entry.summary["window_s"] for entry in entries}
    if len(entries) > 1 and len(windows) == 1:
        drawn += f" The percentages are over the first {span_rounded(windows.pop())}, in which all had work."
    bands = []
    if span:
        sampled = [entry for entry in entries if len(entry.result.samples.at_ms)]
        height = 150 if len(sampled) == 1 else 84
        for entry in sampled:
            last = entry is sampled[-1]
            bands.append(_utilisation_band(entry, span, origin_ms, height, last))
    return draw_figure("utilisation", heading, drawn, *bands)


def _utilisation_band(
    entry: ComparedPolicy, span: tuple[int, int], origin_ms: int, height: int, x_labels: bool
) -> Markup:
    x = Linear(*span)
    samples = entry.result.samples
    capacity = max(entry.result.capacity_milli, *samples.up_milli, *samples.used_milli, 1)
    used = [
        (x.at(ms), value / capacity) for ms, value in thin_values(samples.at_ms, samples.used_milli, mean)
    ]
    until = x.at(end_ms(entry.result))
    known = entry.summary["utilisation"]
    busy = "utilisation unknown" if known is None else f"{percent_rounded(known)} busy"
    title = f"{entry.name}: {busy}, {human.gpus_text(entry.result.capacity_milli)}"
    marks = []
    if min(samples.up_milli) < capacity:
        up = [
            (x.at(ms), value / capacity) for ms, value in thin_values(samples.at_ms, samples.up_milli, mean)
        ]
        marks.append(chart.draw_quiet_steps(up, until, height, "nodes that are up"))
    marks.append(
        chart.draw_steps(used, until, height, colour=entry.colour, name=entry.name, title=title, filled=True)
    )
    return chart.draw(
        Frame(
            height,
            title,
            make_time_ticks(*span, origin_ms),
            [Tick(0, "0"), Tick(0.5, "50 %"), Tick(1, "100 %")],
            marks,
            [End(0.5, entry.name, busy, entry.colour)],
            x_labels,
            kind="band",
            data=_time_data(span, origin_ms, 1, "percent"),
        )
    )


def queue(entries: Sequence[ComparedPolicy], origin_ms: int) -> Markup:
    """Length of the queue, all policies in one plot."""
    span = span_ms(entries)
    heading = sentences.queue_heading(entries)
    drawn = "Jobs waiting over time; where several samples share a point, the longest queue among them."
    if not span:
        return draw_figure("queue", heading, drawn)
    x = Linear(*span)
    sampled = [entry for entry in entries if len(entry.result.samples.waiting)]
    marks_y = choose_steps(max(max(entry.result.samples.waiting) for entry in sampled))
    y = Linear(0, marks_y[-1])
    marks, ends = [], []
    for entry in sampled:
        samples = entry.result.samples
        points = [(x.at(ms), y.at(value)) for ms, value in thin_values(samples.at_ms, samples.waiting, max)]
        note = f"peak {human.count(max(samples.waiting))}"
        until, title = x.at(end_ms(entry.result)), f"{entry.name}: {note}"
        marks.append(
            chart.draw_steps(points, until, PLOT_PX, colour=entry.colour, name=entry.name, title=title)
        )
        ends.append(End(mean([round(1000 * at) for _, at in points]) / 1000, entry.name, note, entry.colour))
    ticks = [Tick(y.at(value), f"{value:,g}") for value in marks_y]
    frame = Frame(PLOT_PX, heading, make_time_ticks(*span, origin_ms), ticks, marks, ends)
    frame.data = _time_data(span, origin_ms, y.high, "count")
    return draw_figure("queue", heading, drawn, chart.draw(frame))


def _time_data(span: tuple[int, int], origin_ms: int, high: float, unit: str) -> dict[str, str | float]:
    return {"x": "time", "x0": span[0], "x1": span[1], "origin": origin_ms, "y1": f"{high:g}", "unit": unit}


def waits(entries: Sequence[ComparedPolicy]) -> Markup:
    """The part of the jobs that waited no longer than a time."""
    heading = sentences.wait_heading(entries)
    drawn = (
        "The share of jobs that waited at most this long. Further up and to the left is better; log scale."
    )
    ended = [(entry, sorted(entry.result.wait_ms)) for entry in entries if len(entry.result.wait_ms)]
    if not ended:
        return draw_figure("waits", heading, drawn, wide=False)
    scale, ticks = wait_scale(max(ordered[-1] for _, ordered in ended))
    marks, ends = [], []
    for entry, ordered in ended:
        points = cdf(ordered, scale)
        note = f"median {span_rounded(entry.summary['wait_s']['p50'])}"
        marks.append(chart.draw_line(points, PLOT_PX, entry.colour, entry.name, f"{entry.name}: {note}"))
        ends.append(End(mean([round(1000 * at) for _, at in points]) / 1000, entry.name, note, entry.colour))
    frame = Frame(PLOT_PX, heading, ticks, PERCENT_TICKS, marks, ends)
    frame.data = {"x": "log", "x0": scale.low, "x1": scale.high, "y1": 1, "unit": "percent"}
    return draw_figure(
        "waits", heading, drawn, chart.draw(frame), element("p", "wait", class_="axis"), wide=False
    )


def waits_by_size(entries: Sequence[ComparedPolicy], sizes: SizeRanges) -> Markup:
    """Median and 95th percentile of waits: which sizes of job wait, and under which policy."""
    by_size = [wait_by_size(entry, sizes) for entry in entries]
    heading = sentences.size_heading(entries, by_size)
    drawn = "Wait by size of job, a gang with all its GPUs. Dot: median. Line: up to the 95th percentile."
    found = [each for per_entry in by_size for each in per_entry if each]
    if not found:
        return draw_figure("sizes", heading, drawn)
    # Not a log axis: large jobs wait for days, and a day more has to look like one.
    y = Linear(0, max(SECOND_MS, *[round(1.05 * each.p95 * SECOND_MS) for each in found]))
    return _draw_by_size(
        "sizes", heading, drawn, entries, by_size,
        place=lambda seconds: y.at(seconds * SECOND_MS), ticks=make_time_ticks(0, round(y.high)), text=span_rounded,
        notes=[f"median {span_rounded(entry.summary['wait_s']['p50'])}" for entry in entries], wide=True,
    )  # fmt: skip


def slowdown(entries: Sequence[ComparedPolicy], sizes: SizeRanges) -> Markup:
    """Median and 95th percentile by size of job: whether large jobs pay for small ones or the reverse."""
    by_size = [slowdown_by_size(entry.result, sizes) for entry in entries]
    heading = sentences.slowdown_heading(entries, by_size)
    drawn = "Time from submission to end over run time. Dot: median. Line: up to the 95th percentile."
    found = [each for per_entry in by_size for each in per_entry if each]
    if not found:
        return draw_figure("slowdown", heading, drawn, wide=False)
    y, ticks = make_factor_scale(max(each.p95 for each in found))
    return _draw_by_size(
        "slowdown", heading, drawn, entries, by_size, place=y.at, ticks=ticks, text=human.factor_text,
        notes=[f"median {human.factor_text(entry.summary['slowdown']['p50'])}" for entry in entries],
    )  # fmt: skip


def _draw_by_size(
    key: str,
    heading: str,
    drawn: str,
    entries: Sequence[ComparedPolicy],
    by_size: Sequence[BySize],
    *,
    place: Callable[[float], float],
    ticks: list[Tick],
    text: Callable[[float], str],
    notes: Sequence[str],
    wide: bool = False,
) -> Markup:
    """A whisker per size and policy, those of a size next to each other. `place` is where a figure stands on the axis,
    `text` what it reads; `notes` stand beside the names of the policies."""
    sizes = list(by_size[0])
    width = 1 / len(sizes)
    marks = [chart.draw_separator(index * width, PLOT_PX) for index in range(1, len(sizes))]
    inner = width * 0.7 / max(len(entries), 2)
    names = [""] * len(sizes)
    for nth, (entry, per_entry) in enumerate(zip(entries, by_size, strict=True)):
        for index, each in enumerate(per_entry):
            if each is None:
                continue
            names[index] = each.size.name
            x = (index + 0.5) * width + (nth - (len(entries) - 1) / 2) * inner
            title = (
                f"{entry.name}, {each.size.words}: median {text(each.p50)}, p95 {text(each.p95)}, "
                f"{count_text(each.jobs, 'job')}"
            )
            ends = place(each.p50), place(each.p95)
            marks.append(chart.draw_whisker(x, *ends, PLOT_PX, colour=entry.colour, title=title))
    count = len(entries)
    frame = Frame(
        PLOT_PX,
        heading,
        [Tick((index + 0.5) * width, name) for index, name in enumerate(names)],
        ticks,
        marks,
        [
            End(1 - (nth + 0.5) / count if count > 1 else 0.5, entry.name, note, entry.colour)
            for nth, (entry, note) in enumerate(zip(entries, notes, strict=True))
        ],
        kind="classes",
    )
    axis = element("p", "GPUs of the job", class_="axis")
    return draw_figure(key, heading, drawn, chart.draw(frame), axis, wide=wide)


def tenants(entries: Sequence[ComparedPolicy]) -> Markup:
    """Bars of what tenants got, with a mark at their entitlement."""
    every = tenant_rows(entries)
    rows = find_largest(every)
    heading = sentences.tenants_heading(entries, every)
    drawn = (
        "Share of the GPU time used while jobs waited, per tenant and policy. The upright mark is what "
        "the tenant was entitled to; a pale bar up to it is what it lacked."
    )
    if not rows:
        return draw_figure("tenants", heading, drawn)
    pitch = {1: 16, 2: 12, 3: 9}.get(len(entries), 8)
    row_px = pitch * len(entries) + 12
    height = row_px * len(rows)
    values = [value for row in rows for pair in row.shares if pair for value in pair]
    steps = choose_steps(max(values) * 100, 6)
    x = Linear(0, steps[-1] / 100)
    marks = [
        mark
        for index, row in enumerate(rows)
        for nth, (entry, pair) in enumerate(zip(entries, row.shares, strict=True))
        if pair
        for mark in _tenant_marks(row.path, entry, pair, x, (index * row_px + 6 + nth * pitch, pitch))
    ]
    names = [Tick(1 - (index + 0.5) / len(rows), row.path) for index, row in enumerate(rows)]
    frame = Frame(
        height,
        heading,
        [Tick(x.at(step / 100), f"{step:g} %", index % 2 == 1) for index, step in enumerate(steps)],
        names,
        marks,
        [
            End(1 - (nth + 0.5) * 18 / height, entry.name, "", entry.colour)
            for nth, entry in enumerate(entries)
        ],
        y_rules=False,
        kind="tenants",
    )
    return draw_figure("tenants", heading, drawn, chart.draw(frame))


def _tenant_marks(
    path: str, entry: ComparedPolicy, pair: tuple[float, float], x: Linear, place_px: tuple[float, float]
) -> list[Markup]:
    """The bar of one tenant under one policy, what it lacks in pale, and the mark at its entitlement."""
    share, due = pair
    top, pitch = place_px
    title = f"{path}, {entry.name}: {percent_rounded(share)}, entitled to {percent_rounded(due)}"

    def bar(low: float, high: float, pale: bool) -> Markup:
        ends = x.at(low), x.at(high)
        return chart.draw_bar(
            *ends, top_px=top, tall_px=pitch - 1.5, colour=entry.colour, title=title, pale=pale
        )

    lacking = [bar(share, due, True)] if due > share else []
    return [bar(0, share, False), *lacking, chart.draw_marker(x.at(due), top - 1, pitch + 0.5, title)]


def draw_plots(entries: Sequence[ComparedPolicy], origin_ms: int, sizes: SizeRanges) -> Markup:
    """In the order of a reader's questions: how busy, how many wait, how long, which sizes pay, which tenants get."""
    return join(
        utilisation(entries, origin_ms),
        queue(entries, origin_ms),
        waits(entries),
        slowdown(entries, sizes),
        waits_by_size(entries, sizes),
        tenants(entries),
    )
