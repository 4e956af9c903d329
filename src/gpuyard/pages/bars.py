"""Amounts by what they consist of: columns over time, and bars by name."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import NamedTuple

from gpuyard.pages import chart
from gpuyard.pages.chart import WIDTH, End, Frame
from gpuyard.pages.markup import Markup, element, join
from gpuyard.pages.scale import Linear, Tick, choose_steps

OTHERS = "others"
_COLOURS = tuple([f"var(--c{number})" for number in (1, 4, 6, 7, 5, 3, 2)])
_DAYS_MAX = 100
COLUMNS_PX = 190


def choose_colours(sums: Mapping[str, float]) -> dict[str, str]:
    """A colour for each name, the largest sum first; where there are more names than colours, the last are `others`."""
    names = sorted([name for name, total in sums.items() if total > 0], key=lambda name: (-sums[name], name))
    found = dict(zip(names, _COLOURS, strict=False))
    return found if len(names) <= len(_COLOURS) else {**found, OTHERS: "var(--c0)"}


class Slot(NamedTuple):
    """A day or a month on the axis of time."""

    key: str
    """As rows have it: `2026-11-01` or `2026-11`."""
    label: str


def split_slots(from_day: str, to_day: str) -> list[Slot]:
    """The days from one to the other; the months, where there are many days."""
    first, last = date.fromisoformat(from_day), date.fromisoformat(to_day)
    if (last - first).days < _DAYS_MAX:
        days = [date.fromordinal(each) for each in range(first.toordinal(), last.toordinal() + 1)]
        return [Slot(each.isoformat(), f"{each.day} {each:%b}") for each in days]
    months = range(12 * first.year + first.month - 1, 12 * last.year + last.month)
    starts = [date(each // 12, each % 12 + 1, 1) for each in months]
    return [Slot(each.isoformat()[:7], f"{each:%b %Y}") for each in starts]


def draw_columns(
    heights: Mapping[str, Mapping[str, float]],
    colours: Mapping[str, str],
    over: Sequence[Slot],
    text: Callable[[float], str],
    label: str,
) -> Markup:
    """Columns of parts, one upon the other: by name of the part, its height at each slot."""
    totals = [sum([part.get(slot.key, 0.0) for part in heights.values()]) for slot in over]
    steps = choose_steps(max([*totals, 0.0]))
    y = Linear(0, steps[-1])
    width = 1 / len(over)
    marks = []
    for place, slot in enumerate(over):
        below = 0.0
        for name, part in heights.items():
            value = part.get(slot.key, 0.0)
            if value <= 0:
                continue
            top, foot = y.at(below + value) * COLUMNS_PX, y.at(below) * COLUMNS_PX
            marks.append(
                chart.draw_bar(
                    (place + 0.12) * width, (place + 0.88) * width, top_px=COLUMNS_PX - top, tall_px=top - foot,
                    colour=colours[name], title=f"{slot.label}, {name}: {text(value)}",
                )
            )  # fmt: skip
            below += value
    every = -(-len(over) // 8)
    ticks = [
        Tick((place + 0.5) * width, slot.label, place // every % 2 == 1) for place, slot in enumerate(over)
    ]
    rules = [Tick(y.at(step), text(step)) for step in steps]
    frame = Frame(COLUMNS_PX, label, ticks[::every], rules, marks, kind="columns")
    return join(_legend({name: colours[name] for name in heights}), chart.draw(frame))


class Bar(NamedTuple):
    """A bar of several parts, with what stands beside it."""

    name: str
    parts: Sequence[tuple[str, float]]
    """What each is, and how long."""
    note: str


def draw_bars(
    drawn: Sequence[Bar], colours: Mapping[str, str], text: Callable[[float], str], head: str
) -> Markup:
    """Bars under each other. What is below zero is not drawn."""
    longest = max([*[sum([max(0.0, value) for _, value in bar.parts]) for bar in drawn], 0.0]) or 1.0
    rows = []
    for bar in drawn:
        left, marks = 0.0, []
        for what, value in bar.parts:
            if value > 0:
                title = f"{bar.name}, {what}: {text(value)}"
                right = left + value / longest
                marks.append(
                    chart.draw_bar(left, right, top_px=0, tall_px=14, colour=colours[what], title=title)
                )
                left = right
        svg = element(
            "svg", *marks, viewBox=f"0 0 {WIDTH} 14", preserveAspectRatio="none", aria_hidden="true"
        )
        rows.append(
            element(
                "tr",
                element("th", bar.name, scope="row"),
                element("td", svg, class_="bar"),
                element("td", bar.note),
            )
        )
    shown = {
        what: colours[what] for what in colours if any([dict(bar.parts).get(what, 0) > 0 for bar in drawn])
    }
    table = element("table", element("caption", head, class_="hint"), element("tbody", *rows), class_="bars")
    return join(_legend(shown), table)


def _legend(colours: Mapping[str, str]) -> Markup | None:
    """Names beside their colours; of one alone nothing is said."""
    if len(colours) < 2:
        return None
    return chart.legend([End(0, name, "", colour) for name, colour in colours.items()], alone=True)
