"""This terminal at a terminal of a job: keys go there, what is shown there is shown here, byte for byte.

The yard may go away and come back: the job goes on without it, and this command looks for it for a while.
"""

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any, Protocol

from gpuyard.api.client import Client, NoServer, Refused
from gpuyard.api.connecting.websocket import WebSocket
from gpuyard.cli.connection.visits import read_frame
from gpuyard.cli.terminal.escapes import DETACH, Escapes
from gpuyard.errors import BadInput

_DATA, _SIZE, _HELLO, _EXIT = b"d", b"w", b"h", b"x"
_READ_BYTES = 65536
PATIENCE_S = 60.0
"""How long to look for a yard that is gone."""
_PAUSE_S = 0.2


def is_terminal() -> bool:
    """Whether this is a terminal, for what is typed and for what is shown."""
    return os.isatty(0) and os.isatty(1)


def need_terminal(what: str, instead: str) -> None:
    """Raise if it is none. `instead`: what to do without one, as the beginning of a sentence."""
    if not is_terminal():
        raise BadInput(
            f"{what} needs a terminal, but its input or output is a file or a pipe",
            f"{instead}; over ssh, `ssh -t` gives a terminal.",
        )


def size() -> dict[str, int]:
    """Rows and columns."""
    try:
        columns, rows = os.get_terminal_size(1)
    except OSError:
        return {}
    return {"rows": rows, "columns": columns} if rows and columns else {}


class StandingLine(Protocol):
    """The line that tells how a job stands while it waits."""

    def told(self, standing: Any) -> None:
        """Show news of the job."""

    def begins(self) -> None:
        """The job's output or its end comes next."""

    def clear(self) -> None:
        """Erase the line."""


class Attached:
    """One session, from here."""

    def __init__(
        self, yard: Client, job: str | int, asked: dict[str, Any], line: StandingLine, name: str
    ) -> None:
        """`name`: the session as people call it, `job 12`. `line` tells how the job stands while it waits."""
        self._yard, self._job, self._line, self._name = yard, job, line, name
        self._asked = asked
        self._socket: WebSocket | None = None
        self._keys = Escapes()
        self._raw: list[Any] | None = None
        self._size: dict[str, int] = {}
        """What the job's terminal was told last."""
        self._first_size: dict[str, int] = {}
        """What it was told as this connection began."""
        self._lost_s: float | None = None
        self.detached = False
        self.code: int | None = None
        """The exit code of the session, once it has ended."""
        self.end: Any = None
        """How the job ended, once it has."""

    def run(self) -> None:
        """Until the job has ended, the session has, or the user has detached."""
        # A signal wakes the wait below: the number goes into a pipe.
        wakes, waker = os.pipe()
        for fd in (wakes, waker):
            os.set_blocking(fd, False)
        before = signal.signal(signal.SIGWINCH, lambda *_: None)
        known = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        try:
            self._open()
            while not self.detached and self.end is None and self.code is None:
                self._turn(wakes)
            self._last_words()
        finally:
            self.cook()
            signal.set_wakeup_fd(known)
            signal.signal(signal.SIGWINCH, before)
            if self._socket is not None:
                self._socket.close()
            os.close(wakes)
            os.close(waker)

    def cook(self) -> None:
        """Give the terminal back as it was."""
        if self._raw is not None:
            import termios

            termios.tcsetattr(0, termios.TCSADRAIN, self._raw)
            self._raw = None

    def _make_raw(self) -> None:
        import termios
        import tty

        self._line.clear()
        if self._raw is None:
            self._raw = termios.tcgetattr(0)
            tty.setraw(0, termios.TCSADRAIN)

    def _open(self) -> None:
        self._socket = WebSocket(*self._yard.terminal(self._job))
        self._size = self._first_size = size()
        self._socket.send(json.dumps({**self._asked, **self._size}))

    def _turn(self, wakes: int) -> None:
        poll = select.poll()
        poll.register(wakes, select.POLLIN)
        if self._raw is not None:
            poll.register(0, select.POLLIN)
        if self._socket is not None:
            poll.register(self._socket.fileno(), select.POLLIN)
        ready = self._socket is not None and self._socket.ready
        timeout_ms = 0 if ready else int(1000 * _PAUSE_S) if self._socket is None else None
        happened = {fd for fd, _ in poll.poll(timeout_ms)}
        try:
            if wakes in happened:
                os.read(wakes, 4096)
                self._resize()
            if 0 in happened:
                self._type()
            if self._socket is None:
                self._again()
            elif ready or self._socket.fileno() in happened:
                for message in self._socket.receive():
                    self._heed(message)
        except OSError as error:
            self._lose(error)

    def _send(self, kind: bytes, content: bytes) -> None:
        if self._socket is not None:
            self._socket.send(kind + content)

    def _resize(self) -> None:
        now = size()
        if now and now != self._size:
            self._size = now
            self._send(_SIZE, json.dumps(now).encode())

    def _type(self) -> None:
        typed = os.read(0, _READ_BYTES)
        passed = self._keys.sift(typed)
        if self._keys.help:
            self._show(self._keys.help)
            self._keys.help = b""
        # First of all: the yard may be gone, and then nothing can be sent.
        self.detached = self._keys.detached or not typed
        if passed:
            # The signal of a new size may come later than the keys; the size is there before them.
            self._resize()
            # What is typed while the yard is away goes nowhere: it would come at a moment that nobody chose.
            self._send(_DATA, passed)

    def _heed(self, message: bytes | str) -> None:
        if isinstance(message, str):
            news = json.loads(message)
            if news["event"] == "standing":
                self._line.told(news["data"])
            elif news["event"] == "end":
                self._line.begins()
                self.end = news["data"]
        found = read_frame(message)
        if found is None:
            return
        kind, content = found
        if kind == _DATA:
            self._line.begins()
            # What an ended job showed comes to a terminal that makes the line breaks itself.
            self._show(content if self._raw is not None else content.replace(b"\r\n", b"\n"))
            self._asked["seen"] = self._asked.get("seen", 0) + len(content)
        elif kind == _HELLO:
            told = json.loads(content)
            self._asked["seen"] = told["offset"]
            if told["session"] != "job":
                self._asked |= {"do": "attach", "session": told["session"]}
            self._make_raw()
            self._lost_s = None
            # A new attempt of the job has the size with which this connection began.
            self._size = self._first_size
            self._resize()
        elif kind == _EXIT:
            # The job's own end has more to say than its code: it is told next.
            if self._asked.get("session") or self._asked["do"] != "attach":
                self.code = json.loads(content)["code"] or 0
            self.cook()

    def _lose(self, error: OSError) -> None:
        """The yard is gone; the job is not."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        now_s = time.monotonic()
        if self._lost_s is None:
            self._lost_s = now_s
            self._say(f"the yard is away; {self._name} goes on, and this looks for it ({DETACH} gives up)")
        if now_s - self._lost_s > PATIENCE_S:
            raise NoServer(
                f"the yard is gone: {error.strerror or error}; {self._name} goes on without it",
                f"Once the yard is up again: yard attach {self._job}",
            )

    def _again(self) -> None:
        try:
            self._open()
        except NoServer as error:
            self._lose(OSError(error.message))
            return
        except Refused as error:
            if error.status < 500:
                raise
            self._lose(OSError(error.message))
            return
        self._say("the yard is back")

    def _say(self, text: str) -> None:
        end = "\r\n" if self._raw is not None else "\n"
        self._line.clear()
        with suppress(OSError):
            sys.stderr.write(f"{end if self._raw is not None else ''}yard: {text}{end}")
            sys.stderr.flush()

    @staticmethod
    def _show(content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(1, rest) :]

    def _last_words(self) -> None:
        self.cook()
        if self.detached:
            print(file=sys.stderr)
