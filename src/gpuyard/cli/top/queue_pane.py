"""The queue on a screen: ten thousand jobs of which only the visible lines are made.

Textual's own table keeps an object for every cell. Here the rows stay as the server sent them, a line is made when
it is drawn, and the cursor stays on its job wherever the job moves.
"""

from typing import Any, ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpuyard.cli.terminal.visible_text import visible_text
from gpuyard.cli.top.colours import DIM, HEAD, STATES, TenantColours
from gpuyard.quantities import span
from gpuyard.reports.table import number
from gpuyard.wire.endpoints import QUEUE_COLUMNS

GAP = "  "
(
    _ID, _LABEL, _NAME, _TENANT, _USER, _CLASS, _STATE, _PHASE, _GPUS, _NODES, _SUBMITTED, _STARTED, _LIMIT, _REASON,
) = range(len(QUEUE_COLUMNS))  # fmt: skip
_CURSOR = Style(bgcolor="#2f4a63", bold=True)


class Fit(NamedTuple):
    """A column as it fits this width."""

    head: str
    width: int
    right: bool


_COLUMNS = (
    # head, least and most width, right, in which order it goes when there is no room (0: never)
    ("ID", 2, 14, False, 0),
    ("NAME", 4, 24, False, 1),
    ("TENANT", 6, 22, False, 2),
    ("CLASS", 5, 12, False, 4),
    ("STATE", 9, 9, False, 0),
    ("GPUS", 4, 6, True, 0),
    ("TIME", 6, 6, True, 3),
)
_LAST = "WHERE OR WHY"
_LAST_MIN = 18


class QueuePane(ScrollView, can_focus=True):
    """Rows of the queue under a header that stays."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home,g", "move(-1000000000)", "first", show=False),
        Binding("end,G", "move(1000000000)", "last", show=False),
        Binding("enter", "open", "open"),
    ]

    class Opened(Message):
        """The user wants to see a job."""

        def __init__(self, row: list[Any]) -> None:
            super().__init__()
            self.row = row

    def __init__(self, colours: TenantColours, **more: Any) -> None:
        super().__init__(**more)
        self._colours = colours
        self._all: list[list[Any]] = []
        self.rows: list[list[Any]] = []
        """Jobs that pass the filter."""
        self.wanted = ""
        """The filter, in lower case."""
        self.now_ms = 0
        self._at = 0
        self._widths = [0, 0, 0, 0]
        self._fits: list[Fit] = []
        self._fitted = (-1, 0)

    # -- rows ----------------------------------------------------------------------------------------------------

    def fill(self, rows: list[list[Any]], now_ms: int) -> None:
        """New rows. The cursor stays on its job, or where it was if the job is gone."""
        kept = self.selected
        self._all = rows
        self.now_ms = now_ms
        self._sift()
        if kept is not None:
            self._find(kept[_ID])
        self._settle()

    def sift(self, wanted: str) -> None:
        """Show only jobs that contain this text somewhere."""
        kept = self.selected
        self.wanted = wanted.strip().lower()
        self._sift()
        self._at = 0
        if kept is not None:
            self._find(kept[_ID])
        self._settle()

    def _sift(self) -> None:
        wanted = self.wanted
        if not wanted:
            self.rows = self._all
        else:
            places = (_LABEL, _NAME, _TENANT, _USER, _CLASS, _STATE, _NODES, _REASON)
            self.rows = [
                row for row in self._all if wanted in "\n".join([row[place] for place in places]).lower()
            ]
        columns = zip(
            *[(row[_LABEL], row[_NAME], row[_TENANT], row[_CLASS]) for row in self.rows], strict=True
        )
        self._widths = [max(map(len, column)) for column in columns] if self.rows else [0, 0, 0, 0]
        self._fitted = (-1, 0)

    def _find(self, job_id: int) -> None:
        near = self.rows[self._at] if self._at < len(self.rows) else None
        if near is not None and near[_ID] == job_id:
            return
        self._at = next((place for place, row in enumerate(self.rows) if row[_ID] == job_id), self._at)

    def _settle(self) -> None:
        self._at = max(0, min(self._at, len(self.rows) - 1))
        self.virtual_size = Size(0, len(self.rows) + 1)
        self.refresh()

    @property
    def selected(self) -> list[Any] | None:
        """The row under the cursor."""
        return self.rows[self._at] if 0 <= self._at < len(self.rows) else None

    @property
    def at(self) -> int:
        """Where the cursor is."""
        return self._at

    # -- keys ----------------------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        """Move the cursor by this many lines."""
        self._at = max(0, min(self._at + by, len(self.rows) - 1))
        self._show_cursor()

    def action_page(self, way: int) -> None:
        """Move it by a screen."""
        self.action_move(way * max(1, self.size.height - 2))

    def action_open(self) -> None:
        """See the job under it."""
        row = self.selected
        if row is not None:
            self.post_message(self.Opened(row))

    def on_click(self, event: Any) -> None:
        """A click chooses, a click on what is chosen opens."""
        place = int(self.scroll_offset.y) + event.y - 1
        if event.y >= 1 and 0 <= place < len(self.rows):
            if place == self._at:
                self.action_open()
            self._at = place
            self.refresh()

    def _show_cursor(self) -> None:
        top, room = int(self.scroll_offset.y), max(1, self.size.height - 1)
        if self._at < top:
            self.scroll_to(y=self._at, animate=False)
        elif self._at >= top + room:
            self.scroll_to(y=self._at - room + 1, animate=False)
        self.refresh()

    def on_resize(self) -> None:
        """Fit the columns again, and keep the cursor in sight."""
        self._settle()
        self._show_cursor()

    # -- lines ---------------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """One line of the screen: the header, a job, or nothing."""
        width = self.scrollable_content_region.width
        if self._fitted != (width, len(self.rows)):
            self._fits = fitting(width, self._widths)
            self._fitted = (width, len(self.rows))
        if y == 0:
            heads = [_cell(fit.head, fit) for fit in self._fits]
            return self._on_ground(Strip([Segment(GAP.join(heads), HEAD)]))
        place = int(self.scroll_offset.y) + y - 1
        if place >= len(self.rows):
            return self._on_ground(Strip.blank(width))
        strip = Strip(self._segments(self.rows[place])).adjust_cell_length(width)
        return strip.apply_style(_CURSOR) if place == self._at else self._on_ground(strip)

    def _on_ground(self, strip: Strip) -> Strip:
        """A line over the colour of the screen, as wide as the pane."""
        return strip.adjust_cell_length(self.scrollable_content_region.width).apply_style(self.rich_style)

    def _segments(self, row: list[Any]) -> list[Segment]:
        # A job of another tenant: only its presence is shown.
        masked = not row[_SUBMITTED]
        nodes, why = row[_NODES], "another tenant's" if masked else row[_REASON]
        texts = {
            "ID": row[_LABEL],
            "NAME": row[_NAME] or "-",
            "TENANT": row[_TENANT] or "-",
            "CLASS": row[_CLASS] or "-",
            "STATE": row[_STATE],
            "GPUS": number(row[_GPUS]),
            "TIME": "-" if masked else span(self.now_ms - (row[_STARTED] or row[_SUBMITTED])),
            _LAST: f"{nodes}: {why}" if nodes and why else nodes or why,
        }
        styles = {
            "TENANT": self._colours.of(row[_TENANT]),
            "STATE": STATES.get(row[_STATE]),
            _LAST: None if nodes else DIM,
        }
        segments = []
        for fit in self._fits:
            text = visible_text(texts[fit.head])
            segments += [Segment(_cell(text, fit), styles.get(fit.head)), Segment(GAP)]
        return segments[:-1]


def fitting(width: int, natural: list[int]) -> list[Fit]:
    """Columns for this width: as wide as their content up to a bound; the least important go first."""
    wide = iter(natural)
    kept = []
    for head, least, most, right, going in _COLUMNS:
        content = next(wide) if head in ("ID", "NAME", "TENANT", "CLASS") else least
        kept.append((going, Fit(head, max(least, min(most, content)), right)))
    while _sum(kept) + _LAST_MIN > width and any(going for going, _ in kept):
        last = max(going for going, _ in kept)
        kept = [each for each in kept if each[0] != last]
    return [*[fit for _, fit in kept], Fit(_LAST, max(8, width - _sum(kept)), False)]


def _sum(kept: list[tuple[int, Fit]]) -> int:
    return sum(fit.width + len(GAP) for _, fit in kept)


def _cell(text: str, fit: Fit) -> str:
    if len(text) > fit.width:
        text = text[: fit.width - 1] + "…"
    return text.rjust(fit.width) if fit.right else text.ljust(fit.width)
