"""A statement as one page: what is owed and for what, over the days, by person and project, and what was waited for."""

from collections.abc import Sequence
from datetime import date

from gpuyard.pages import bars, human
from gpuyard.pages.document import draw_figure, draw_table, render_document, render_foot, render_head
from gpuyard.pages.markup import Markup, element, join
from gpuyard.quantities import MISSING, hour_rate_text, percent_change, percent_rounded, usd_axis, usd_text
from gpuyard.reports.budget import amount_texts
from gpuyard.reports.money.lines import (
    CORRECTION,
    DAY,
    KIND_COLOURS,
    NONE,
    PARTS,
    PRICE,
    PROJECT,
    TOTAL,
    USER,
    budget_text,
    digits_of_lines,
)
from gpuyard.reports.table import Row

_SHOWN = ("used", "wasted", "unmeasured", "starting", "held")
_LINES_MAX = 12
_MEANINGS = (
    ("charged", "A job is charged for its dominant resource: of each node the largest part that it holds of GPUs, "
     "cores or memory, from its start to its end, at the price of the day."),
    ("used, wasted", "A job had the GPU, and its use was measured: what it used, and the rest."),
    ("unmeasured", "A job had the GPU, and nobody measured what it did, or that is not booked yet: of running jobs it "
     "is booked every few minutes."),
    ("starting, held", "A job started or stopped; the GPU was kept for a job that was about to start."),
    ("waited for", "GPUs that waiting jobs asked for, times the hours in which they waited, by cause."),
    ("correction", "What was learned in this month about a month that is closed, at the price of that day."),
)  # fmt: skip


def hours_text(value: float) -> str:
    """GPU-hours in a sentence and beside a bar."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")


def draw_opening(unpriced: Sequence[str], said: Sequence[tuple[str, str]]) -> list[Markup]:
    """What a page about money says first: models without a price, and sentences, each with its colour."""
    return [
        *[
            element(
                "p", f"There is no price for {model}: its time counts as 0.", class_="warning", role="note"
            )
            for model in unpriced
        ],
        element(
            "ul", *[element("li", text, style=f"--c:{colour}") for text, colour in said], class_="headlines"
        ),
    ]


def exact_hours_text(value: float) -> str:
    """GPU-hours in a table."""
    return f"{value:,.2f}" if value else MISSING


def held(line: Row) -> float:
    """GPU-hours that jobs had."""
    return sum([line[f"{kind}_gpu_hours"] for kind in _SHOWN])


def statement_page(reply: Row) -> str:
    """The whole page."""
    parts: dict[str, list[Row]] = {part: [] for part in PARTS}
    for line in reply["lines"]:
        parts[line["part"]].append(line)
    (total,) = parts[TOTAL]
    month = date.fromisoformat(f"{reply['month']}-01")
    title = f"{reply['tenant']}, {month:%B %Y}"
    facts = [
        ("days, UTC", f"{reply['from_day']} to {reply['to_day']}"),
        ("books", "closed" if reply["closed"] else "open: they may still change"),
        ("charged", usd_text(reply["charged_micro_usd"])),
        ("GPU-hours", hours_text(held(total))),
        ("people", human.count(len([line for line in parts[USER] if line["name"]]))),
        ("currency", reply["currency"]),
    ]
    body = element(
        "main",
        render_head("statement", title, facts),
        *draw_opening(reply["unpriced"], _said(reply, total)),
        element(
            "section",
            _days(reply, parts),
            _time(parts[USER], "person", "user"),
            _time(parts[PROJECT], "project", "project"),
            _waits(reply),
            _budgets(reply),
            class_="plots",
        ),
        _charges(parts, total),
        _lines_of("By person", "person", parts[USER], total),
        _lines_of("By project", "project", parts[PROJECT], total),
        _corrections(parts[CORRECTION]),
        _foot(reply),
        class_="statement",
    )
    return render_document(title, body)


def _said(reply: Row, total: Row) -> list[tuple[Markup, str]]:
    """What a reader should know first."""
    now, before, had = reply["charged_micro_usd"], reply["before"]["charged_micro_usd"], held(total)
    then = (
        f"{usd_text(before)} in {reply['before']['month']}"
        if before
        else f"nothing in {reply['before']['month']}"
    )
    change = f" ({percent_change(100 * (now - before) / before)})" if before else ""
    found = [
        (
            join(
                element("span", usd_text(now), class_="n"),
                f" for {hours_text(had)} GPU-hours, against {then}{change}.",
            ),
            "var(--c1)",
        )
    ]
    measured = total["used_gpu_hours"] + total["wasted_gpu_hours"]
    if measured:
        part = percent_rounded(total["used_gpu_hours"] / measured)
        found.append(
            (
                join(
                    "Of the time that was measured, ", element("span", part, class_="n"), " was used; the rest cost ",
                    element("span", usd_text(total["wasted_micro_usd"]), class_="n"), ".",
                ),
                "var(--c2)",
            )
        )  # fmt: skip
    elif had:
        open_ = reply["not_booked_gpu_hours"] > 0
        said = "is not booked yet" if open_ else "was measured by nobody"
        found.append((join(f"What its jobs did with their GPUs {said}."), "var(--c0)"))
    if reply["waits"]:
        most = reply["waits"][0]
        waited = sum([wait["gpu_hours"] for wait in reply["waits"]])
        said = f" GPU-hours were waited for, most of all for: {most['reason']} ({hours_text(most['gpu_hours'])})."
        found.append((join(element("span", hours_text(waited), class_="n"), said), "var(--c5)"))
    return found


def _days(reply: Row, parts: dict[str, list[Row]]) -> Markup:
    over = bars.split_slots(reply["from_day"], reply["to_day"])
    charged = {line["name"]: line["charged_micro_usd"] for line in parts[DAY]}
    wasted = {line["name"]: line["wasted_micro_usd"] for line in parts[DAY]}
    rest = {day: charged[day] - wasted[day] for day in charged}
    dearest = max(charged, key=lambda day: (charged[day], day), default="")
    heading = (
        f"{usd_text(charged[dearest])} on {dearest}, the dearest day" if dearest else "Nothing was charged"
    )
    drawn = "What is charged for each day, and how much of it is for wasted time."
    if not charged:
        return draw_figure("days", heading, drawn)
    heights = {"used or unmeasured": rest, "wasted": wasted}
    colours = {"used or unmeasured": "var(--c1)", "wasted": KIND_COLOURS["wasted"]}
    return draw_figure("days", heading, drawn, bars.draw_columns(heights, colours, over, usd_axis, heading))


def _time(lines: Sequence[Row], noun: str, key: str) -> Markup:
    """Bars of what each had."""
    most = sorted([line for line in lines if held(line)], key=lambda line: (-held(line), line["name"]))
    drawn = "GPU-hours by what became of them."
    if not most:
        return draw_figure(key, f"No {noun} had a GPU", drawn, wide=False)
    name = most[0]["name"] or f"jobs without a {noun}"
    heading = f"{name} had most: {hours_text(held(most[0]))} of {hours_text(sum(map(held, most)))} GPU-hours"
    shown = [
        bars.Bar(
            line["name"] or NONE,
            [(kind, line[f"{kind}_gpu_hours"]) for kind in _SHOWN],
            hours_text(held(line)),
        )
        for line in most[:_LINES_MAX]
    ]
    return draw_figure(
        key, heading, drawn, bars.draw_bars(shown, KIND_COLOURS, hours_text, heading), wide=False
    )


def _waits(reply: Row) -> Markup:
    drawn = "GPU-hours that waiting jobs asked for, by cause."
    if not reply["waits"]:
        return draw_figure("waits", "Nobody waited", drawn, wide=False)
    heading = f"Most waiting: {reply['waits'][0]['reason']}"
    shown = [
        bars.Bar(wait["reason"], [("waited for", wait["gpu_hours"])], hours_text(wait["gpu_hours"]))
        for wait in reply["waits"]
    ]
    return draw_figure(
        "waits",
        heading,
        drawn,
        bars.draw_bars(shown, {"waited for": "var(--c5)"}, hours_text, heading),
        wide=False,
    )


def _budgets(reply: Row) -> Markup | None:
    """What the month's jobs are to each budget."""
    if not reply["budgets"]:
        return None
    items = []
    for budget in reply["budgets"]:
        amount, spent = budget["amount"], budget["spent_in_month"]
        parts = [
            ("spent in this month", min(spent, amount)),
            ("over it", max(0.0, spent - amount)),
            ("the rest", max(0.0, amount - spent)),
        ]

        def text(value: float, unit: str = budget["unit"]) -> str:
            return amount_texts(unit, [value], "GPU-h")[0]

        colours = {"spent in this month": "var(--c1)", "over it": "var(--c2)", "the rest": "var(--faint)"}
        bar = bars.Bar(budget["budget"], parts, percent_rounded(spent / amount) if amount else MISSING)
        items += [
            bars.draw_bars([bar], colours, text, budget["budget"]),
            element("p", budget_text(budget), class_="note"),
        ]
    heading = "Budgets" if len(reply["budgets"]) > 1 else "The budget"
    return draw_figure(
        "budgets", heading, "What this month is to it; windows may be longer or shorter.", *items, wide=False
    )


def _charges(parts: dict[str, list[Row]], total: Row) -> Markup:
    """The lines of prices: quantity times price is the amount."""
    places = digits_of_lines([total, *parts[PRICE]])
    rows = [
        [
            line["name"],
            f"{line['charged_gpu_hours']:,.4f}",
            "no price" if line["price_micro_usd_h"] is None else hour_rate_text(line["price_micro_usd_h"]),
            f"{line['energy_kwh']:,.2f}" if line["energy_kwh"] else MISSING,
            usd_text(line["charged_micro_usd"], places),
        ]
        for line in parts[PRICE]
    ]
    charged = usd_text(total["charged_micro_usd"], places)
    rows.append(["total", f"{total['charged_gpu_hours']:,.4f}", "", "", charged])
    heads = ["what", "GPU-hours charged", "price an hour", "kWh", "charged"]
    return element(
        "section", element("h2", "What is charged"), draw_table(heads, rows, total=True), class_="summary"
    )


def _lines_of(heading: str, noun: str, lines: Sequence[Row], total: Row) -> Markup | None:
    """Figures of every person or project, the most expensive first; a single one is the total."""
    if len(lines) < 2:
        return None
    places = digits_of_lines([total, *lines])
    ordered = sorted(lines, key=lambda line: (-line["charged_micro_usd"], line["name"]))
    rows = [
        [
            name,
            *[exact_hours_text(line[f"{kind}_gpu_hours"]) for kind in _SHOWN[:4]],
            exact_hours_text(held(line)),
            usd_text(line["wasted_micro_usd"], places),
            usd_text(line["charged_micro_usd"], places),
        ]
        for name, line in [*[(line["name"] or NONE, line) for line in ordered], ("total", total)]
    ]
    heads = [noun, *_SHOWN[:4], "GPU-hours", "for waste", "charged"]
    return element("section", element("h2", heading), draw_table(heads, rows, total=True), class_="summary")


def _corrections(lines: Sequence[Row]) -> Markup | None:
    if not lines:
        return None
    places = digits_of_lines(lines)
    rows = [
        [line["name"], f"{line['charged_gpu_hours']:,.4f}", usd_text(line["charged_micro_usd"], places)]
        for line in lines
    ]
    heading = "Corrections of closed months, in the total"
    return element(
        "section",
        element("h2", heading),
        draw_table(["about the day", "GPU-hours charged", "charged"], rows),
        class_="summary",
    )


def _foot(reply: Row) -> Markup:
    meanings = [element("div", element("dt", term), element("dd", meaning)) for term, meaning in _MEANINGS]
    command = f"yard cost statement {reply['tenant']} --month {reply['month']} -o html"
    return element(
        "footer",
        element("h2", "What the figures mean"),
        element("dl", *meanings, class_="definitions"),
        element("pre", element("code", command), tabindex="0"),
        render_foot(),
    )
