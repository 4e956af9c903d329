"""Real terminals: a shell in tmux, keys that are typed and a screen that is read; or one command, byte by byte.

tmux is installed from Debian if this is root there.
"""

import fcntl
import os
import select
import shutil
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from harness.patience import patient
from rigs.components import install

WAIT_S = 60.0
PSEUDO_S = 30.0


def need_tmux() -> None:
    """See to it that tmux is there; `Missing` if it cannot be had."""
    if not shutil.which("tmux"):
        install("tmux")


class Terminal:
    """A shell of its own, on a tmux server of its own, so that ending it ends nobody else's. For `with`."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], *, columns: int = 120, rows: int = 50
    ) -> None:
        need_tmux()
        self._socket = folder / "tmux.sock"
        self._environment = {**environment, "TERM": "xterm-256color"}
        rc = folder / "bashrc"
        rc.write_text("PS1='$ '\nunset HISTFILE PROMPT_COMMAND\n", encoding="utf-8")
        size = ["-x", str(columns), "-y", str(rows), "-c", str(folder)]
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, f"bash --noprofile --rcfile '{rc}' -i")

    def __enter__(self) -> "Terminal":
        try:
            self.until(lambda screen: screen.endswith("$"))
        except BaseException:
            self._tmux("kill-server")
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tmux("kill-server")

    def press(self, *keys: str) -> None:
        """Keys by their names: `Enter`, `Tab`, `C-c`, `q`."""
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        """Text as it is."""
        self._tmux("send-keys", "-l", text)

    def enter(self, line: str) -> None:
        """Type a line and Enter."""
        self.type(line)
        self.press("Enter")

    def screen(self, *, scrolled: bool = False) -> str:
        """What stands there now, long lines in one piece; `scrolled`: with what has left it at the top."""
        found = self._tmux("capture-pane", "-p", "-J", *(("-S", "-") if scrolled else ()))
        return "\n".join(line.rstrip() for line in found.splitlines()).rstrip()

    def until(self, holds: Callable[[str], object], s: float = WAIT_S, *, scrolled: bool = False) -> str:
        """The screen, once something holds of it."""
        deadline = time.monotonic() + patient(s)
        while not holds(screen := self.screen(scrolled=scrolled)):
            assert time.monotonic() < deadline, f"not on the screen in {s:.0f} s:\n{screen}"
            time.sleep(0.05)
        return screen

    def run(self, line: str) -> list[str]:
        """Type a line on an empty screen; what it printed, once the prompt is back, and `code=` with its exit code."""
        self._tmux("send-keys", "-R")
        self._tmux("clear-history")
        self.enter(f"{line}; echo code=$?")
        screen = self.until(lambda screen: "\ncode=" in screen and screen.endswith("\n$"), scrolled=True)
        lines = screen.splitlines()
        first = next(place for place, each in enumerate(lines) if "echo code=$?" in each)
        return lines[first + 1 : -1]

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *words],
            env=self._environment, capture_output=True, text=True, timeout=patient(30), check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


class Pseudo:
    """One command at a terminal of its own. For `with`: it is ended in any case."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        *,
        rows: int = 30,
        columns: int = 100,
    ) -> None:
        self._master, slave = os.openpty()
        self.resize(rows, columns)
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command], stdin=slave, stdout=slave, stderr=slave, cwd=cwd,
            env={**environment, "TERM": "xterm"},
        )  # fmt: skip
        os.close(slave)
        self.shown = b""
        self._read = 0

    def __enter__(self) -> "Pseudo":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    def resize(self, rows: int, columns: int) -> None:
        """Give it another size."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        """Type text; `\\r` is Enter."""
        os.write(self._master, text.encode())

    def until(self, text: str, s: float = PSEUDO_S) -> str:
        """What has been shown since the last call, up to this text and with it."""
        deadline = time.monotonic() + patient(s)
        wanted = text.encode()
        while (at := self.shown.find(wanted, self._read)) < 0:
            left = deadline - time.monotonic()
            assert self._more(max(0.0, left)), f"no {text!r} in {self.shown[self._read :]!r}"
        before, self._read = self._read, at + len(wanted)
        return self.shown[before : self._read].decode(errors="replace")

    def code(self, s: float = PSEUDO_S) -> int:
        """Its exit code, once it has ended; the rest of what it shows is in `shown`."""
        deadline = time.monotonic() + patient(s)
        while self._more(max(0.0, deadline - time.monotonic())):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def _more(self, s: float) -> bool:
        if not select.select([self._master], [], [], s)[0]:
            return False
        try:
            piece = os.read(self._master, 65536)
        except OSError:
            return False
        self.shown += piece
        return bool(piece)
