"""Drawing: SVG shapes, and the frame with axes and labels around them.

The SVG stretches with the window while its strokes keep their width, and every label is HTML beside it, so
letters stay sharp and of one size from a phone to a wall. Heights are pixels; across, a plot is always 1000
units wide.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuyard.pages.markup import Markup, element, join
from gpuyard.pages.scale import Tick, push_apart

WIDTH = 1000

Point = tuple[float, float]
"""Both 0 to 1, from the lower left corner."""

_TWO_LINES_PX = 40
_ONE_LINE_PX = 17


@dataclass(frozen=True, slots=True)
class End:
    """The label of a line, at its end."""

    at: float
    name: str
    note: str
    colour: str


@dataclass(slots=True)
class Frame:
    """A plot with its axes."""

    height: int
    label: str
    """A description of the plot for screen readers."""
    x: list[Tick]
    y: list[Tick]
    marks: list[Markup] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    x_labels: bool = True
    y_rules: bool = True
    kind: str = ""
    data: dict[str, str | float] = field(default_factory=dict)
    """What the crosshair needs to turn positions back into values."""


def draw_line(points: Sequence[Point], height: int, colour: str, name: str, title: str) -> Markup:
    """Straight from point to point."""
    first, *rest = [(_x(x), _y(y, height)) for x, y in points]
    d = f"M{first[0]} {first[1]}" + "".join(f"L{x} {y}" for x, y in rest)
    return element("path", element("title", title), class_="line", d=d, style=f"--c:{colour}", data_name=name)


def draw_steps(
    points: Sequence[Point],
    until: float,
    height: int,
    *,
    colour: str,
    name: str,
    title: str,
    filled: bool = False,
) -> Markup:
    """Each value holds until the next one; `filled` colours the area below."""
    d = _step_path(points, until, height)
    drawn = element(
        "path", element("title", title), class_="line", d=d, style=f"--c:{colour}", data_name=name
    )
    if not filled:
        return drawn
    closed = f"{d}V{height}H{_x(points[0][0])}Z"
    return join(
        element("path", element("title", title), class_="fill", d=closed, style=f"--c:{colour}"), drawn
    )


def draw_quiet_steps(points: Sequence[Point], until: float, height: int, title: str) -> Markup:
    """A thin line in the background, such as the capacity."""
    return element("path", element("title", title), class_="quiet", d=_step_path(points, until, height))


def draw_bar(
    left: float, right: float, *, top_px: float, tall_px: float, colour: str, title: str, pale: bool = False
) -> Markup:
    """A bar along x; `pale` for the missing part."""
    return element(
        "rect",
        element("title", title),
        class_="bar pale" if pale else "bar",
        x=_x(left),
        y=_number(top_px),
        width=_number(max(right - left, 0.0) * WIDTH),
        height=_number(tall_px),
        style=f"--c:{colour}",
    )


def draw_marker(x: float, top_px: float, tall_px: float, title: str) -> Markup:
    """A short upright line with a halo, visible on a bar and beside it."""
    d = f"M{_x(x)} {_number(top_px)}v{_number(tall_px)}"
    return element(
        "g",
        element("title", title),
        element("path", class_="halo", d=d),
        element("path", class_="marker", d=d),
    )


def draw_whisker(x: float, low: float, high: float, height: int, *, colour: str, title: str) -> Markup:
    """A dot at `low` with a line up to `high`, and a wide invisible line for the pointer."""
    foot, top = _y(low, height), _y(high, height)
    stem = f"M{_x(x)} {foot}V{top}"
    return element(
        "g",
        element("title", title),
        element("path", class_="target", d=stem if foot != top else f"{stem}v.01"),
        element("path", class_="stem", d=stem),
        element("path", class_="cap", d=f"M{_x(x)} {top}h.01"),
        element("path", class_="dot", d=f"M{_x(x)} {foot}h.01"),
        style=f"--c:{colour}",
    )


def draw_separator(x: float, height: int) -> Markup:
    """A faint upright line between groups."""
    return element("path", class_="rule", d=f"M{_x(x)} 0V{height}")


def legend(ends: Sequence[End], *, alone: bool = False) -> Markup:
    """All labels in one line, for windows too narrow to show them beside the lines; `alone`: they are nowhere else."""
    items = [
        element(
            "span",
            element("i", style=f"--c:{end.colour}"),
            element("b", end.name),
            f" {end.note}" if end.note else None,
        )
        for end in ends
    ]
    if alone:
        return element("div", *items, class_="legend shown")
    return element("div", *items, class_="legend", aria_hidden="true")


def draw(frame: Frame) -> Markup:
    """The whole plot: y labels, the SVG with the x labels below it, line labels."""
    rules = [
        element("path", class_="rule", d=f"M0 {_y(tick.at, frame.height)}H{WIDTH}")
        for tick in frame.y
        if frame.y_rules
    ]
    notches = [element("path", class_="rule", d=f"M{_x(tick.at)} 0V{frame.height}") for tick in frame.x]
    svg = element(
        "svg",
        *notches if frame.kind not in ("classes", "columns") else (),
        *rules,
        *frame.marks,
        viewBox=f"0 0 {WIDTH} {frame.height}",
        preserveAspectRatio="none",
        role="img",
        aria_label=frame.label,
    )
    # Names may be longer than their room: they are cut at the start, because the end of a path says more.
    y_labels = (
        element(
            "span",
            element("bdi", tick.label, dir="ltr"),
            title=tick.label if frame.kind == "tenants" else None,
            style=f"top:{_percent(1 - tick.at)}",
        )
        for tick in frame.y
    )
    x_labels = (
        element("span", tick.label, class_="spare" if tick.spare else None, style=f"left:{_percent(tick.at)}")
        for tick in frame.x
    )
    return element(
        "div",
        legend(frame.ends) if frame.ends else None,
        element("div", *y_labels, class_="y"),
        element("div", svg, class_="area"),
        _ends(frame),
        element("div", *x_labels, class_="x") if frame.x_labels else None,
        class_=f"chart {frame.kind}".strip(),
        style=f"--h:{frame.height}px",
        **{f"data_{name}": value for name, value in frame.data.items()},
    )


def _ends(frame: Frame) -> Markup:
    """Labels beside the ends of lines, moved apart; without their notes if there are too many."""
    both = len(frame.ends) * _TWO_LINES_PX <= frame.height + _TWO_LINES_PX // 2
    gap = _TWO_LINES_PX if both else _ONE_LINE_PX
    places = push_apart(
        [(1 - end.at) * frame.height for end in frame.ends], gap, gap / 2 - 6, frame.height - gap / 2 + 6
    )
    spans = (
        element(
            "span",
            element("b", end.name),
            element("small", end.note) if both else None,
            style=f"top:{place:.0f}px;--c:{end.colour}",
            title=f"{end.name} {end.note}",
        )
        for end, place in zip(frame.ends, places, strict=True)
    )
    return element("div", *spans, class_="ends")


def _step_path(points: Sequence[Point], until: float, height: int) -> str:
    (x, y), *rest = points
    last = _y(y, height)
    d = [f"M{_x(x)} {last}"]
    for x, y in rest:
        here = _y(y, height)
        if here != last:
            d.append(f"H{_x(x)}V{here}")
            last = here
    d.append(f"H{_x(until)}")
    return "".join(d)


def _x(at: float) -> str:
    return _number(at * WIDTH)


def _y(at: float, height: int) -> str:
    return f"{(1 - at) * height:.2f}".rstrip("0").rstrip(".")


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _percent(at: float) -> str:
    return f"{100 * at:.2f}%"
