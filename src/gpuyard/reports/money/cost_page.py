"""Costs by anything over time, as one page: what was charged day by day, where GPU time went, and every line."""

from collections.abc import Mapping
from typing import Any

from gpuyard.pages import bars, human
from gpuyard.pages.document import draw_figure, draw_table, render_document, render_foot, render_head
from gpuyard.pages.markup import Markup, element, join
from gpuyard.quantities import count_digits, percent_rounded, usd_axis, usd_text
from gpuyard.reports.money import lines
from gpuyard.reports.money.statement_page import draw_opening, exact_hours_text, hours_text
from gpuyard.reports.report import Asking
from gpuyard.reports.table import Row

_BARS_MAX = 20
_LINES_MAX = 500
_TIMES = ("day", "month")


def cost_page(ask: Asking, values: Mapping[str, Any]) -> str:
    """The whole page. The lines are asked for again by day, or by month where there are many days."""
    reply = ask(values)
    by = [name for name in reply["by"] if name not in _TIMES]
    over = bars.split_slots(reply["from_day"], reply["to_day"])
    unit = "day" if len(over[0].key) > 7 else "month"
    days = ask({**values, "from": reply["from_day"], "to": reply["to_day"], "by": ",".join([*by[:1], unit])})
    title = f"What GPU time cost, by {human.list_text(reply['by'])}"
    facts = [
        ("days, UTC", f"{reply['from_day']} to {reply['to_day']}"),
        ("charged", usd_text(reply["charged_micro_usd"])),
    ]
    if reply["fleet_micro_usd"] is not None:
        facts += [
            ("not charged", usd_text(reply["not_charged_micro_usd"])),
            ("cost of the fleet", usd_text(reply["fleet_micro_usd"])),
        ]
    facts.append(("currency", reply["currency"]))
    body = element(
        "main",
        render_head("costs", title, facts),
        *draw_opening(reply["unpriced"], _said(reply)),
        element(
            "section", _charges(days, over, unit), _time(days, over, unit), _lines(reply), class_="plots"
        ),
        _table(reply),
        element("footer", render_foot()),
        class_="statement",
    )
    return render_document(title, body)


def name_of(row: Row, by: list[str]) -> str:
    """What a line is about, in words."""
    said = []
    for name in by:
        if name.startswith(lines.LABEL):
            said.append(row["labels"][name.removeprefix(lines.LABEL)] or lines.NONE)
        else:
            said.append(row[name] or (lines.NONE if name in lines.MAY_LACK else lines.NO_JOB))
    return ", ".join(said)


def held(row: Row) -> float:
    """All GPU-hours of a line."""
    return sum([row[f"{kind}_gpu_hours"] for kind in lines.KINDS])


def _said(reply: Row) -> list[tuple[Markup, str]]:
    """What a reader should know first."""
    total, of_jobs = sum(map(held, reply["lines"])), ("used", "wasted", "unmeasured", "starting")
    sums = {kind: sum([row[f"{kind}_gpu_hours"] for row in reply["lines"]]) for kind in lines.KINDS}
    had = sum([sums[kind] for kind in of_jobs])
    charged = usd_text(reply["charged_micro_usd"])
    found = [
        (
            join(element("span", charged, class_="n"), f" was charged for {hours_text(had)} GPU-hours."),
            "var(--c1)",
        )
    ]
    if reply["fleet_micro_usd"] and total:
        part = percent_rounded(had / total)
        said = f" of the fleet's {hours_text(total)} GPU-hours; {percent_rounded(sums['idle'] / total)} was idle."
        found.append((join("Jobs had ", element("span", part, class_="n"), said), "var(--c6)"))
    measured = sums["used"] + sums["wasted"]
    if measured:
        part = percent_rounded(sums["wasted"] / measured)
        found.append(
            (join(element("span", part, class_="n"), " of what was measured was wasted."), "var(--c2)")
        )
    return found


def _charges(days: Row, over: list[bars.Slot], unit: str) -> Markup:
    """What was charged over time, by the first dimension."""
    by = [name for name in days["by"] if name not in _TIMES]
    drawn = f"What was charged each {unit}" + (f", by {by[0]}." if by else ".")
    sums: dict[str, float] = {}
    for row in days["lines"]:
        name = name_of(row, by) or "charged"
        sums[name] = sums.get(name, 0.0) + row["charged_micro_usd"]
    colours = bars.choose_colours(sums)
    if not colours:
        return draw_figure("charges", "Nothing was charged", drawn)
    heights: dict[str, dict[str, float]] = {name: {} for name in colours}
    for row in days["lines"]:
        name = name_of(row, by) or "charged"
        if row["charged_micro_usd"] > 0:
            part = heights[name if name in colours else bars.OTHERS]
            part[row[unit]] = part.get(row[unit], 0.0) + row["charged_micro_usd"]
    first = next(iter(colours))
    share = percent_rounded(sums[first] / sum(sums.values()))
    heading = (
        f"{first}: {usd_text(round(sums[first]))}, {share} of all charges" if by else "Charges over time"
    )
    return draw_figure(
        "charges", heading, drawn, bars.draw_columns(heights, colours, over, usd_axis, heading)
    )


def _time(days: Row, over: list[bars.Slot], unit: str) -> Markup:
    """Where GPU time went over time, by its kind."""
    heights: dict[str, dict[str, float]] = {}
    for row in days["lines"]:
        for kind in lines.KINDS:
            value = row[f"{kind}_gpu_hours"]
            if value > 0:
                part = heights.setdefault(kind, {})
                part[row[unit]] = part.get(row[unit], 0.0) + value
    ordered = {kind: heights[kind] for kind in lines.KINDS if kind in heights}
    drawn = f"GPU-hours each {unit} by what became of them."
    if not ordered:
        return draw_figure("time", "There was no GPU time", drawn)
    most = max(ordered, key=lambda kind: sum(ordered[kind].values()))
    heading = f"Most GPU-hours were {most}: {hours_text(sum(ordered[most].values()))}"
    return draw_figure(
        "time", heading, drawn, bars.draw_columns(ordered, lines.KIND_COLOURS, over, hours_text, heading)
    )


def _lines(reply: Row) -> Markup:
    """The lines with most GPU-hours, as bars."""
    by = reply["by"]
    most = sorted(
        [row for row in reply["lines"] if held(row) > 0], key=lambda row: (-held(row), name_of(row, by))
    )
    drawn = f"GPU-hours by what became of them, by {human.list_text(by)}."
    if not most:
        return draw_figure("lines", "Nothing to compare", drawn)
    shown = [
        bars.Bar(
            name_of(row, by),
            [(kind, row[f"{kind}_gpu_hours"]) for kind in lines.KINDS],
            hours_text(held(row)),
        )
        for row in most[:_BARS_MAX]
    ]
    heading = (
        f"The {_BARS_MAX} largest of {len(most)} lines" if len(most) > _BARS_MAX else "Where GPU time went"
    )
    return draw_figure(
        "lines", heading, drawn, bars.draw_bars(shown, lines.KIND_COLOURS, hours_text, heading)
    )


def _table(reply: Row) -> Markup:
    by = reply["by"]
    places = count_digits([row["charged_micro_usd"] for row in reply["lines"]])
    kinds = [kind for kind in lines.KINDS if any([row[f"{kind}_gpu_hours"] for row in reply["lines"]])]
    rows = [
        [
            name_of(row, by),
            *[exact_hours_text(row[f"{kind}_gpu_hours"]) for kind in kinds],
            exact_hours_text(held(row)),
            usd_text(row["charged_micro_usd"], places),
        ]
        for row in reply["lines"][:_LINES_MAX]
    ]
    sums = [sum([row[f"{kind}_gpu_hours"] for row in reply["lines"]]) for kind in kinds]
    charged = usd_text(reply["charged_micro_usd"], places)
    rows.append(["total", *map(exact_hours_text, sums), exact_hours_text(sum(sums)), charged])
    more = len(reply["lines"]) - _LINES_MAX
    return element(
        "section",
        element("h2", "Every line, in GPU-hours"),
        draw_table([", ".join(by), *kinds, "GPU-hours", "charged"], rows, total=True),
        element("p", f"{more:,} more lines are in -o csv; the total has them.", class_="key")
        if more > 0
        else None,
        class_="summary",
    )
