"""A real terminal for tests: tmux, whose screen can be read. Installed from Debian if this is root there."""

import os
import shutil
import subprocess
import time
from pathlib import Path

_START_S = 20.0


class NoTerminal(Exception):
    """It cannot be had here; says why."""


def need_tmux() -> None:
    """See to it that tmux is there; `NoTerminal` if it cannot be had."""
    if shutil.which("tmux"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise NoTerminal("tmux is not installed, and only root on Debian can install it here")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    get = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "tmux"]
    for command in (get, ["apt-get", "update", "-qq"], get):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if command is get and done.returncode == 0:
            return
    raise NoTerminal(f"apt-get could not install tmux: {done.stderr.strip()[-300:]}")


class Terminal:
    """A shell in a terminal of its own. `close` ends it."""

    def __init__(
        self, folder: Path, environment: dict[str, str], *, columns: int = 120, rows: int = 50
    ) -> None:
        need_tmux()
        self._socket = folder / "tmux.sock"
        self._environment = environment | {"TERM": "xterm-256color"}
        rc = folder / "bashrc"
        rc.write_text("PS1='$ '\nunset HISTFILE PROMPT_COMMAND\n", encoding="utf-8")
        size = ["-x", str(columns), "-y", str(rows)]
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, f"bash --noprofile --rcfile '{rc}' -i")
        try:
            self.wait("$")
        except BaseException:
            self.close()
            raise

    def type(self, line: str) -> None:
        """Type a line and Enter."""
        self._tmux("send-keys", "-l", line)
        self._tmux("send-keys", "Enter")

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._tmux("send-keys", "C-c")

    def screen(self) -> str:
        """What stands there now; long lines in one piece."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-").rstrip()

    def wait(self, text: str, s: float = _START_S) -> str:
        """The screen, once it shows this text."""
        until = time.monotonic() + s
        while text not in (screen := self.screen()):
            assert time.monotonic() < until, f"{text!r} did not come up:\n{screen}"
            time.sleep(0.05)
        return screen

    def run(self, line: str, s: float = _START_S) -> list[str]:
        """Type a line; what it printed, once the prompt is back."""
        self._tmux("send-keys", "-R")
        self._tmux("clear-history")
        self.type(f"{line}; echo code=$?")
        until = time.monotonic() + s
        while not (screen := self.screen()).endswith("\n$") or "\ncode=" not in screen:
            assert time.monotonic() < until, f"{line!r} did not end:\n{screen}"
            time.sleep(0.05)
        lines = screen.splitlines()
        first = next(place for place, each in enumerate(lines) if "echo code=$?" in each)
        return lines[first + 1 : -1]

    def close(self) -> None:
        """End the shell and the terminal."""
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *words],
            env=self._environment, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout
