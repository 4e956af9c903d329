"""What opens over the queue: one job in full, its log as it is written, and the question before a cancel."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Log, Static
from textual.worker import get_current_worker

from gpuyard.api.client import Client
from gpuyard.cli.commands.jobs.show import job_lines
from gpuyard.cli.terminal.visible_text import visible_lines
from gpuyard.errors import YardError
from gpuyard.wire.replies.jobs import End

LOG_LINES_MAX = 20_000
AGAIN_S = 2.0
_STEERING = (*range(9), *range(11, 13), *range(14, 32), *range(127, 160))
_MARKS = (0x061C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
_UNSEEN = dict.fromkeys((*_STEERING, *_MARKS), "")
"""Parts of a log that are for a terminal, which this is not."""


def on_screen(screen: Screen[Any], call: Callable[[], object]) -> bool:
    """From a worker's thread: call something in the screen's, and wait for it, so that a long log does not pile up.

    False: the screen has been left, and nothing was called.
    """

    def guarded() -> bool:
        if screen.is_attached:
            call()
        return screen.is_attached

    if get_current_worker().is_cancelled or not screen.app.is_running:
        return False
    try:
        return screen.app.call_from_thread(guarded)
    except RuntimeError:
        # The whole screen is being closed at this very moment.
        return False


class JobScreen(ModalScreen[None]):
    """Everything about one job, including why it waits, kept up to date."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "back"),
        Binding("l", "log", "log"),
        Binding("c", "ask('cancel')", "cancel"),
        Binding("h", "ask('hold')", "hold"),
        Binding("r", "ask('release')", "release"),
    ]

    def __init__(self, label: str, ask: Callable[[str, str], None]) -> None:
        super().__init__()
        self.label = label
        self._ask = ask

    def compose(self) -> ComposeResult:
        """A box with text."""
        with Vertical(classes="box"):
            with VerticalScroll():
                yield Static("…", id="story", markup=False)
            yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Look now and again."""
        self.query_one(".box").border_title = f"job {self.label}"
        self.look()
        self.set_interval(AGAIN_S, self.look)

    @work(thread=True, exclusive=True, group="story")
    def look(self) -> None:
        """Ask for the job."""
        try:
            with Client(timeout_s=10, patience_s=0) as yard:
                text = "\n".join(job_lines(yard.job(self.label)))
        except YardError as error:
            text = visible_lines(f"{error.message}\n{error.hint}")
        on_screen(self, partial(self._tell, text))

    def _tell(self, text: str) -> None:
        # A screen that is just being left has lost its parts already.
        for story_part in self.query("#story").results(Static):
            story_part.update(text)

    def action_log(self) -> None:
        """Read what it wrote."""
        self.app.push_screen(LogScreen(self.label))

    def action_ask(self, verb: str) -> None:
        """Act on it."""
        self._ask(verb, self.label)


class LogScreen(ModalScreen[None]):
    """A job's output, as it is written."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "back"),
        Binding("f", "follow", "follow or stay"),
        Binding("g,home", "first", "start"),
        Binding("G,end", "last", "end"),
    ]

    def __init__(self, label: str) -> None:
        super().__init__()
        self.label = label
        self._reader: Client | None = None

    def compose(self) -> ComposeResult:
        """Lines, and a word about where they come from."""
        with Vertical(classes="box full"):
            yield Log(max_lines=LOG_LINES_MAX, id="log")
            yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to read."""
        self._title("following")
        self.follow()

    def on_unmount(self) -> None:
        """The screen is left: stop reading."""
        if self._reader is not None:
            self._reader.hang_up()

    def _title(self, how: str) -> None:
        for box in self.query(".box"):
            box.border_title = f"log of job {self.label}: {how}"

    @work(thread=True, exclusive=True, group="log")
    def follow(self) -> None:
        """Read until the job ends or the screen is left."""
        try:
            with Client(timeout_s=10, patience_s=5) as yard:
                self._reader = yard
                for item in yard.follow(self.label):
                    if not on_screen(self, partial(self._take, item)):
                        return
        except YardError as error:
            on_screen(self, partial(self._title, error.message))

    def _take(self, item: "bytes | End") -> None:
        if isinstance(item, bytes):
            text = item.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
            # A screen that is just being left has lost its parts already.
            for log in self.query(Log):
                log.write(text.translate(_UNSEEN))
        else:
            code = "" if item["exit_code"] is None else f", exit code {item['exit_code']}"
            self._title(f"{item['state']}{code}")

    def action_follow(self) -> None:
        """Move along with what comes, or stay."""
        log = self.query_one(Log)
        log.auto_scroll = not log.auto_scroll
        self.notify("following" if log.auto_scroll else "staying here")

    def action_first(self) -> None:
        """The first line."""
        self.query_one(Log).auto_scroll = False
        self.query_one(Log).scroll_home(animate=False)

    def action_last(self) -> None:
        """The last line, and on with it."""
        self.query_one(Log).auto_scroll = True
        self.query_one(Log).scroll_end(animate=False)


class ConfirmScreen(ModalScreen[bool]):
    """A question that a slip of the finger does not answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """The question and the keys."""
        with Vertical(classes="box small"):
            yield Static(self._question, markup=False)
            yield Footer(show_command_palette=False)

    def action_answer(self, yes: bool) -> None:
        """Done."""
        self.dismiss(yes)


class KeysScreen(ModalScreen[None]):
    """Which key does what."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f1,question_mark,enter", "dismiss", "back")]

    def __init__(self, keys: list[tuple[str, str]]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        """A list."""
        with Vertical(classes="box small"):
            yield Static("\n".join(f"{key:<18}{text}" for key, text in self._keys), markup=False)

    def on_mount(self) -> None:
        """Say what it is."""
        self.query_one(".box").border_title = "keys"


def error_text(error: YardError) -> str:
    """What went wrong and what to do, for a note on the screen."""
    return f"{error.message}. {error.hint}" if error.hint else error.message


def act(verb: str, label: str) -> str:
    """Act on a job; gives the result in a sentence."""
    with Client(timeout_s=10, patience_s=2) as yard:
        done: Any = yard.ask(verb, label)
    changed = done.get("jobs", 1)
    return f"job {label}: {verb} is asked for" if changed else f"job {label}: nothing to {verb}"
