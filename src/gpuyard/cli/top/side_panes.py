"""The two small panes: every GPU as a square in its tenant's colour, every tenant's use as a bar."""

from collections.abc import Sequence
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpuyard.cli.top.colours import BAD, DIM, FOREIGN, FREE, HEAD, WARN, TenantColours
from gpuyard.reports.table import number
from gpuyard.wire.replies.fleet import NodeGpusReply, TenantUseReply

_USED, _PART, _FREE, _FOREIGN, _SHUT = "■ ", "◧ ", "□ ", "▒ ", "✕ "
_BAR_MIN = 6
_NAME_MAX = 20
_FIGURES = f"{'GPUS':>6}{'GUARANTEE':>11}{'LIMIT':>7}{'RUNS':>6}{'WAITS':>7}"


class LinesPane(ScrollView):
    """Lines that are made when the data changes: there are few of them."""

    def __init__(self, colours: TenantColours, **more: Any) -> None:
        super().__init__(**more)
        self.colours = colours
        self.lines: list[list[Segment]] = []
        self._data: Sequence[Any] = ()

    def fill(self, data: Sequence[Any]) -> None:
        """Draw this."""
        self._data = data
        lines = self.made(data, max(1, self.scrollable_content_region.width))
        self.lines = [list(Segment.simplify(line)) for line in lines]
        self.virtual_size = Size(0, len(self.lines))
        self.refresh()

    def on_resize(self) -> None:
        """The same, as it fits now."""
        self.fill(self._data)

    def made(self, data: Sequence[Any], width: int) -> list[list[Segment]]:
        """The lines for this width."""
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        place, width = int(self.scroll_offset.y) + y, self.scrollable_content_region.width
        if place >= len(self.lines):
            return Strip.blank(width, self.rich_style)
        return Strip(self.lines[place]).adjust_cell_length(width).apply_style(self.rich_style)


class GpusPane(LinesPane):
    """Nodes, each with a square for every GPU; small ones are side by side."""

    def made(self, data: Sequence[NodeGpusReply], width: int) -> list[list[Segment]]:
        """As many nodes in a line as fit."""
        if not data:
            return [[Segment("there are no nodes", DIM)]]
        longest = min(_NAME_MAX, max(len(node["name"]) for node in data))
        each = longest + 2 + 2 * max(len(node["gpus"]) for node in data) + 8
        abreast = max(1, width // (each + 2)) if len(data) > 1 else 1
        lines = []
        for first in range(0, len(data), abreast):
            line: list[Segment] = []
            for node in data[first : first + abreast]:
                line += self._node(node, longest, each if abreast > 1 else 0)
            lines.append(line)
        return lines

    def _node(self, node: NodeGpusReply, longest: int, width: int) -> list[Segment]:
        name = node["name"] if len(node["name"]) <= longest else node["name"][: longest - 1] + "…"
        shut = node["state"] != "UP"
        found = [
            Segment(f"{name:<{longest}}  ", (BAD if node["state"] == "DOWN" else WARN) if shut else HEAD)
        ]
        used = 0
        for milli, tenant, job in node["gpus"]:
            used += bool(milli)
            if job == "foreign":
                found.append(Segment(_FOREIGN, FOREIGN))
            elif milli:
                found.append(Segment(_USED if milli >= 1000 else _PART, self.colours.of(tenant)))
            else:
                found.append(Segment(_SHUT if shut else _FREE, WARN if shut else FREE))
        count = f"{used}/{len(node['gpus'])}"
        if not width:
            why = f"  {node['state']}: {node['why']}" if shut else ""
            return [*found, Segment(f" {count}  {node['gpu_model']}", DIM), Segment(why, WARN)]
        spent = longest + 2 + 2 * len(node["gpus"])
        word = node["state"].lower() if shut else count
        return [*found, Segment(f"{word:<{width - spent + 2}}"[: width - spent + 2], WARN if shut else DIM)]


class TenantsPane(LinesPane):
    """Tenants, their use against their guarantee and their limit."""

    def made(self, data: Sequence[TenantUseReply], width: int) -> list[list[Segment]]:
        """A line for each: name, bar, GPUs, jobs."""
        if not data:
            return [[Segment("no tenant has a job", DIM)]]
        longest = min(_NAME_MAX, max(6, *[len(_shown(each["tenant"])) for each in data]))
        # Name, figures and gaps; the bar gets what is left.
        bar = max(_BAR_MIN, min(30, width - longest - len(_FIGURES) - 2))
        most = max([each["limit"] or max(each["gpus"], each["guarantee"]) for each in data] + [1])
        head = f"{'TENANT':<{longest}}  {'':<{bar}}{_FIGURES}"
        return [[Segment(head, HEAD)], *[self._tenant(each, longest, bar, most) for each in data]]

    def _tenant(self, each: TenantUseReply, longest: int, bar: int, most: float) -> list[Segment]:
        style = self.colours.of(each["tenant"])
        name = _shown(each["tenant"])
        name = name if len(name) <= longest else name[: longest - 1] + "…"
        guarantee = number(each["guarantee"]) if each["guarantee"] else "-"
        limit = "-" if each["limit"] is None else number(each["limit"])
        return [
            Segment(f"{name:<{longest}}  ", style),
            *use_bar(each["gpus"], each["guarantee"], most, bar, style),
            Segment(f"{number(each['gpus']):>6}{guarantee:>11}{limit:>7}", None),
            Segment(f"{each['running']:>6}{each['waiting']:>7}", None if each["waiting"] else DIM),
        ]


def _shown(tenant: str) -> str:
    """A tenant's last name, set in below the others'."""
    depth, name = tenant.count("/"), tenant.rpartition("/")[2]
    return "  " * depth + ("(its own jobs)" if name == "-" else name)


def use_bar(used: float, guarantee: float, most: float, width: int, style: Style) -> list[Segment]:
    """A bar of what is used, with a mark where the guarantee ends: beyond it, use is borrowed."""
    full = round(width * min(used, most) / most)
    mark = min(width - 1, round(width * min(guarantee, most) / most)) if guarantee else -1
    cells = [("━", style) if place < full else ("─", FREE) for place in range(width)]
    if mark >= 0:
        cells[mark] = ("┃", HEAD)
    return [Segment(text, look) for text, look in cells]
