"""What the event loop hears from other threads: that the log has grown, and what became of what it left to them.

One thread waits for the store, and many watchers wait without a thread each. What they tell at a time wakes the loop
once.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any


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


class LoopReceipt:
    """What the event loop waits for; any thread may tell it, once, what became of it."""

    __slots__ = ("_receipts", "future", "told")

    def __init__(self, receipts: "Receipts", future: "asyncio.Future[Any]") -> None:
        self._receipts = receipts
        self.future = future
        """Of the event loop."""
        self.told = False

    def done(self) -> bool:
        """Whether it has been told."""
        return self.told

    def set_result(self, result: Any, /) -> None:
        """All went well, and this came of it."""
        self.told = True
        self._receipts.tell(self.future, result, None)

    def set_exception(self, error: BaseException, /) -> None:
        """It went wrong, and why."""
        self.told = True
        self._receipts.tell(self.future, None, error)


class Receipts:
    """Receipts of one event loop: however many are told before it looks, they wake it once.

    A future of a thread that is wrapped for the loop has locks of its own and wakes the loop by itself, which takes
    more of the processor than to judge a job.
    """

    def __init__(self) -> None:
        self._come: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._woken = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def expect(self) -> LoopReceipt:
        """One more that will be told. Called in the event loop."""
        self._loop = asyncio.get_running_loop()
        return LoopReceipt(self, self._loop.create_future())

    def tell(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        """Send it on its way; called in any thread."""
        self._come.append((future, result, error))
        # What is put there after the loop has said that it looks finds this false, and wakes it again.
        if not self._woken:
            self._woken = True
            assert self._loop is not None, "nothing is told that was not expected"
            # A loop that has ended has nobody who waits.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False
        while self._come:
            future, result, error = self._come.popleft()
            if future.done():
                # The client has gone.
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
