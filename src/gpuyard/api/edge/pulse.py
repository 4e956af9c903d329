"""News for clients that watch over HTTP: one thread waits for the store, many watchers wait without a thread each."""

import asyncio
import threading
from collections.abc import Callable


class AsyncNotifier:
    """Tells the event loop that the log has grown. Made and used in one event loop."""

    def __init__(self, wait: Callable[[int, float], bool], head: Callable[[], int]) -> None:
        self._wait = wait
        self._head = head
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._stopping = threading.Event()
        self.seq = 0
        """The last event that it has seen, while somebody watches."""
        self._watchers = 0
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name="yard-pulse", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether the server is stopping."""
        return self._stopping.is_set()

    async def next(self, timeout_s: float) -> None:
        """Come back when the log has grown, at the latest after the timeout."""
        self._watchers += 1
        self._wanted.set()
        try:
            # Not `wait_for`: where the news come with a cancellation, Python 3.11 lets it forget the cancellation.
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            pass
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._wanted.clear()

    def close(self) -> None:
        """Let all watchers go."""
        self._stopping.set()
        self._wanted.set()
        self._beat()

    def close_soon(self) -> None:
        """The same, from a signal handler."""
        self._loop.call_soon_threadsafe(self.close)

    def _beat(self) -> None:
        # Release readers that wait now; later ones wait for the next beat.
        self._news.set()
        self._news = asyncio.Event()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wanted.wait()
            try:
                grown = self._wait(self.seq, 0.5)
                if grown:
                    self.seq = self._head()
            except Exception:  # The store is away: watchers look by themselves after their timeout.
                grown = False
                self._stopping.wait(1.0)
            if grown and not self._stopping.is_set():
                try:
                    self._loop.call_soon_threadsafe(self._beat)
                except RuntimeError:
                    return
