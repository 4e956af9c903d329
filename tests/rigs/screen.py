"""A real terminal: a shell in tmux, keys that are typed and a screen that is read."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

PROMPT = "$"
WAIT_S = 60.0


def there() -> bool:
    """Whether this machine has tmux and bash."""
    return shutil.which("tmux") is not None and shutil.which("bash") is not None


class Terminal:
    """A shell of its own, on a tmux server of its own, so that ending it ends nobody else's."""

    def __init__(
        self, environment: Mapping[str, str], folder: Path, width: int = 110, height: int = 40
    ) -> None:
        self._name = f"yard-test-{os.getpid()}-{time.monotonic_ns()}"
        shell = ["env", "PS1=$ ", "TERM=xterm-256color", "bash", "--norc", "--noprofile"]
        subprocess.run(
            [*self._tmux, "-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), *shell],
            env=dict(environment), cwd=folder, check=True,
        )  # fmt: skip

    @property
    def _tmux(self) -> list[str]:
        return ["tmux", "-L", self._name]

    def __enter__(self) -> "Terminal":
        self.until(lambda screen: screen.rstrip().endswith(PROMPT))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)

    def press(self, *keys: str) -> None:
        """Keys by their names: `Enter`, `Tab`, `C-c`, `q`."""
        subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def type(self, text: str) -> None:
        """Text as it is."""
        subprocess.run([*self._tmux, "send-keys", "-l", text], check=True)

    def screen(self) -> str:
        """What can be read, long lines joined."""
        done = subprocess.run(
            [*self._tmux, "capture-pane", "-p", "-J"], check=True, capture_output=True, text=True
        )
        return "\n".join(line.rstrip() for line in done.stdout.splitlines()).rstrip()

    def until(self, holds: Callable[[str], object], s: float = WAIT_S) -> str:
        """The screen, once something holds of it."""
        deadline = time.monotonic() + s
        while True:
            screen = self.screen()
            if holds(screen):
                return screen
            assert time.monotonic() < deadline, f"not on the screen in {s:.0f} s:\n{screen}"
            time.sleep(0.1)

    def run(self, line: str) -> str:
        """Type a command on an empty screen; what it printed, once the prompt is back."""
        self.press("C-l")
        self.until(lambda screen: screen == PROMPT)
        self.type(line)
        self.press("Enter")
        screen = self.until(lambda screen: screen.endswith(f"\n{PROMPT}"))
        return screen.partition("\n")[2].rpartition("\n")[0]
