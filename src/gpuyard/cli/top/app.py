"""The screen of `yard top`: panes, keys, and a banner when the yard does not answer."""

import time
from typing import ClassVar

from textual import events, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Footer, Input, Static

from gpuyard.cli.top.colours import TenantColours
from gpuyard.cli.top.feed import Feed, Picture
from gpuyard.cli.top.queue_pane import QueuePane
from gpuyard.cli.top.screens import ConfirmScreen, JobScreen, KeysScreen, LogScreen, act, error_text
from gpuyard.cli.top.side_panes import GpusPane, TenantsPane
from gpuyard.cli.top.use_pane import UsePane, mean_use
from gpuyard.errors import YardError

NARROW = 104
"""Fewer columns than this: GPUs and tenants are not shown side by side."""

KEYS = [
    ("up down pgup pgdn", "move in the queue (also j k g G)"),
    ("enter", "open a job: what it asks for, where it is, why it waits"),
    ("l", "read its log as it is written"),
    ("c", "cancel it, after a question"),
    ("h  r", "hold it, release it"),
    ("/", "show only jobs with a text in them; escape shows all"),
    ("u", "what each GPU does, or all GPUs as squares"),
    ("t", "tenants on or off"),
    ("q", "quit"),
]


class Top(App[None]):
    """The yard on a screen."""

    class Seen(Message):
        """The yard, as it is now."""

        def __init__(self, picture: Picture) -> None:
            super().__init__()
            self.picture = picture

    class Away(Message):
        """The yard does not answer."""

        def __init__(self, why: str) -> None:
            super().__init__()
            self.why = why

    TITLE = "yard top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    #head { height: 1; background: $panel; padding: 0 1; }
    #away { height: auto; background: $error; color: $text; padding: 0 1; display: none; }
    #above { height: auto; max-height: 40%; }
    #gpus, #use, #tenants { height: auto; min-height: 3; max-height: 100%; padding: 0 1;
                            border: round $primary-darken-2; }
    #gpus, #use { width: 1fr; } #tenants { width: 64; }
    #queue { height: 1fr; border: round $primary-darken-2; padding: 0 1; }
    #queue:focus { border: round $accent; }
    #gpus, #use, #tenants, #queue { overflow-x: hidden; scrollbar-size-vertical: 1; }
    #filter { display: none; height: 1; border: none; padding: 0 2; }
    ModalScreen { align: center middle; }
    .box { width: 90%; max-width: 110; height: auto; max-height: 90%; border: round $accent; background: $surface;
           padding: 1 2 0 2; }
    .box VerticalScroll { height: auto; max-height: 100%; }
    .full { width: 96%; max-width: 100%; height: 92%; padding: 0 1; }
    Log { scrollbar-size-vertical: 1; overflow-x: auto; background: $surface; }
    .small { width: auto; max-width: 90%; padding: 1 2; }
    .small Static { width: auto; max-width: 100%; }
    .box Footer { margin-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        # First, so that a narrow footer has them: the other keys are on the screen of F1.
        Binding("q", "quit", "quit"),
        Binding("f1,question_mark", "keys", "keys", key_display="F1"),
        Binding("slash", "filter", "filter"),
        Binding("l", "log", "log"),
        Binding("c", "ask('cancel')", "cancel"),
        Binding("h", "ask('hold')", "hold"),
        Binding("r", "ask('release')", "release"),
        Binding("u", "use", "use"),
        Binding("t", "tenants", "tenants"),
        Binding("escape", "clear", "show all", show=False),
    ]

    def __init__(self, *, tenant: str = "", user: str = "", cluster: str = "", every_s: float = 2.0) -> None:
        super().__init__()
        self._colours = TenantColours()
        self.picture: Picture | None = None
        """The last picture from the feed."""
        self._tenants_on: bool | None = None
        """None: as the width says."""
        self._scope = "".join([f" of {part}" for part in (tenant, user, cluster) if part])
        self.feed = Feed(
            lambda picture: self._tell(self.Seen(picture)),
            lambda why: self._tell(self.Away(why)),
            tenant=tenant,
            user=user,
            cluster=cluster,
            every_s=every_s,
        )

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Static("", id="head", markup=False)
        yield Static("", id="away", markup=False)
        with Horizontal(id="above"):
            yield GpusPane(self._colours, id="gpus")
            yield UsePane(self._colours, id="use")
            yield TenantsPane(self._colours, id="tenants")
        yield QueuePane(self._colours, id="queue")
        yield Input(placeholder="text in id, name, tenant, user, class, state, node or reason", id="filter")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to fetch, and let the clock tick in between."""
        self.query_one("#gpus").border_title = "GPUs"
        self.query_one("#use").border_title = "GPUs: what they do"
        self.query_one("#tenants").border_title = "tenants: use, ┃ guarantee"
        self.query_one(QueuePane).focus()
        self._arrange()
        self.feed.start()
        self.set_interval(1.0, self._tick)

    def on_unmount(self) -> None:
        """Let the threads go."""
        self.feed.close()

    def on_resize(self, event: events.Resize) -> None:
        """Two panes abreast only where there is room."""
        # The screen itself still has its old size here.
        self._arrange(event.size.width)

    # -- what the feed brings ------------------------------------------------------------------------------------

    def _tell(self, message: Message) -> None:
        # From the feed's threads: only a message may cross over to the screen's.
        if self.is_running:
            self.post_message(message)

    def on_top_seen(self, event: Seen) -> None:
        """The feed has looked."""
        if self._is_whole():
            self.show_picture(event.picture)

    def on_top_away(self, event: Away) -> None:
        """The feed gets no answer."""
        if self._is_whole():
            self.show_away(event.why)

    def _is_whole(self) -> bool:
        # While it is being closed the screen loses its parts, and news may still come in.
        return len(self.query("#away, #head, #gpus, #use, #tenants, #queue")) == 6

    def show_picture(self, picture: Picture) -> None:
        """Draw the yard as it is now."""
        self.picture = picture
        overview = picture.overview
        for each in overview["tenants"]:
            self._colours.of(each["tenant"])
        self.query_one("#away").display = False
        gpus = self.query_one(GpusPane)
        gpus.fill(overview["nodes"])
        more = overview["nodes_in_all"] - len(overview["nodes"])
        gpus.border_subtitle = f"and {more} more nodes" if more else ""
        self.query_one(TenantsPane).fill(overview["tenants"])
        use = self.query_one(UsePane)
        use.fill(picture.gpus or ())
        for pane in (gpus, use, self.query_one(TenantsPane)):
            pane.styles.height = min(len(pane.lines) + 2, max(5, self.size.height * 2 // 5))
        self.query_one(QueuePane).fill(picture.rows, overview["at_ms"])
        self._title()
        self._tick()

    def show_away(self, why: str) -> None:
        """Say that the yard does not answer; the screen shows what was seen last."""
        banner = self.query_one("#away", Static)
        since = ""
        if self.picture is not None:
            since = f" What you see is {round(time.monotonic() - self.picture.taken_s)} s old."
        banner.update(f"the yard does not answer: {why}. Trying again.{since}")
        banner.display = True

    def _tick(self) -> None:
        picture = self.picture
        if picture is None or not self._is_whole():
            return
        away = bool(self.query_one("#away").display)
        overview = picture.overview
        now_ms = overview["at_ms"] + round(1000 * (time.monotonic() - picture.taken_s))
        gpus = [gpu for node in overview["nodes"] for gpu in node["gpus"]]
        used = sum(1 for gpu in gpus if gpu[0])
        clock = time.strftime("%H:%M:%S", time.localtime(now_ms / 1000))
        how = "away" if away else "live" if picture.live else "every few seconds"
        aside = f" · {overview['set_aside']:,} set aside" if overview["set_aside"] else ""
        self.query_one("#head", Static).update(
            f"{used:,} of {len(gpus):,} GPUs in use{mean_use(picture.gpus or ())} · {overview['running']:,} running · "
            f"{overview['waiting']:,} waiting{aside} · {how} · {clock}"
        )
        queue = self.query_one(QueuePane)
        if not away and queue.now_ms // 1000 != now_ms // 1000:
            queue.now_ms = now_ms
            queue.refresh()

    def _title(self) -> None:
        queue = self.query_one(QueuePane)
        shown = f"{len(queue.rows):,} with {queue.wanted!r}" if queue.wanted else f"{len(queue.rows):,}"
        queue.border_title = f"queue{self._scope}: {shown}"

    def _arrange(self, width: int | None = None) -> None:
        wide = (self.size.width if width is None else width) >= NARROW
        on = wide if self._tenants_on is None else self._tenants_on
        self.query_one("#tenants").display = on
        self.query_one("#gpus").display = (wide or not on) and not self.feed.use_wanted
        self.query_one("#use").display = (wide or not on) and self.feed.use_wanted

    # -- keys ----------------------------------------------------------------------------------------------------

    def action_tenants(self) -> None:
        """Tenants on or off."""
        self._tenants_on = not self.query_one("#tenants").display
        self._arrange()

    def action_use(self) -> None:
        """What each GPU does, or all GPUs as squares."""
        self.feed.use_wanted = not self.feed.use_wanted
        if not self.query_one("#gpus").display and not self.query_one("#use").display:
            self._tenants_on = False
        self._arrange()
        self.feed.hurry()

    def action_keys(self) -> None:
        """Which key does what."""
        self.push_screen(KeysScreen(KEYS))

    def action_filter(self) -> None:
        """Ask what to look for."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """As it is typed."""
        self.query_one(QueuePane).sift(event.value)
        self._title()

    def on_input_submitted(self, _event: Input.Submitted) -> None:
        """Back to the queue, with the filter in place."""
        box = self.query_one("#filter", Input)
        box.display = bool(box.value)
        self.query_one(QueuePane).focus()

    def action_clear(self) -> None:
        """All jobs again."""
        box = self.query_one("#filter", Input)
        box.value = ""
        box.display = False
        self.query_one(QueuePane).focus()

    def on_queue_pane_opened(self, event: QueuePane.Opened) -> None:
        """A job in full."""
        self.push_screen(JobScreen(event.row[1], self.ask))

    def action_log(self) -> None:
        """The log of the job under the cursor."""
        row = self.query_one(QueuePane).selected
        if row is not None:
            self.push_screen(LogScreen(row[1]))

    def action_ask(self, verb: str) -> None:
        """Something about the job under the cursor."""
        row = self.query_one(QueuePane).selected
        if row is not None:
            self.ask(verb, row[1], f" ({row[2]}, {row[3]})")

    def ask(self, verb: str, label: str, about: str = "") -> None:
        """Act on a job; if it cannot be undone, ask first."""
        if verb != "cancel":
            self._act(verb, label)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._act(verb, label)

        self.push_screen(ConfirmScreen(f"Cancel job {label}{about}?"), answered)

    @work(thread=True)
    def _act(self, verb: str, label: str) -> None:
        try:
            text, bad = act(verb, label), False
        except YardError as error:
            text, bad = error_text(error), True
        self.feed.hurry()
        if self.is_running:
            self.call_from_thread(self.notify, text, severity="error" if bad else "information", markup=False)
