"""Work beside the loop, round by round, in a thread of its own that ends with the server."""

import threading
from collections.abc import Callable


class Rounds:
    """Calls a function again and again, each time after the pause that the round before asked for."""

    def __init__(self, name: str, take: Callable[[], float]) -> None:
        """`take` is one round, and gives the seconds until the next one. What it raises ends the thread."""
        self._take = take
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._pause_s = 0.0

    def start(self, first_s: float) -> None:
        """Begin after this many seconds."""
        self._pause_s = first_s
        self._thread.start()

    def rest(self, pause_s: float) -> bool:
        """Pause within a round; whether it is time to break off."""
        return self._closing.wait(pause_s)

    def close(self, wait_s: float = 30.0) -> None:
        """Finish the round under way, wait for it at most this long, and begin no more."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=wait_s)

    def _run(self) -> None:
        while not self.rest(self._pause_s):
            self._pause_s = self._take()
