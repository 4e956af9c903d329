"""Group commit: one thread writes for everyone, so that one fdatasync serves all requests that wait for one.

Callers leave a ticket and get a future. Everything that waits is taken at once: submissions go into one transaction,
then requests about jobs into another. A future is done only when its part is on disk, and an error of the
store reaches every request with a part in that transaction; nothing of it was written.

Clients that were answered together come back together, but not at the same instant: before the disk is kept busy for
the first of them alone, the thread waits a moment, no longer than a write takes, for as many as there were last time.

Submissions are written without the replica's lock (the loop may hold it while it decides).
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from gpuyard.control.refusals import Overloaded, Refusal
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.errors import error_text
from gpuyard.garbage import strip_traceback
from gpuyard.store import Submission

_log = logging.getLogger(__name__)

WAITING_MAX = 20_000
"""Requests that may wait; more are refused, so that a flood does not fill the memory."""
BATCH_MAX = 1_000
"""Requests in one transaction: the loop has to get its turn in between."""
GATHER_S_MAX = 0.005
"""The longest wait for other requests of a batch; it is never longer than the last write took."""


Arrival = Callable[[int], Submission]
"""A submission on its way: makes it, given the time, or raises why it is not taken."""


class Receipt(Protocol):
    """Is told what became of a ticket, in the thread that writes: a future, or something lighter."""

    def done(self) -> bool:
        """Whether it has been told already."""

    def set_result(self, result: Any, /) -> None:
        """It is on disk, and this came of it."""

    def set_exception(self, error: BaseException, /) -> None:
        """It is not written, and why."""


R = TypeVar("R", bound=Receipt)


class Committer:
    """The writing thread. Any thread may leave tickets."""

    def __init__(self, replica: Replica, now_ms: Callable[[], int]) -> None:
        self._replica = replica
        self._now_ms = now_ms
        self.waiting_max = WAITING_MAX
        self._changed = threading.Condition()
        self._arrivals: deque[tuple[Arrival, Receipt]] = deque()
        self._errands: deque[tuple[Callable[[Draft], Any], Receipt]] = deque()
        self._closed = False
        self._sizes = (0, 0)
        """How many were served by each of the last two writes."""
        self._write_s = 0.0
        """How long the last write took."""
        self._thread = threading.Thread(target=self._run, name="yard-committer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def accept(self, arrival: Arrival, receipt: R) -> R:
        """Leave a submission; the receipt is told, with `Accepted`, when it is in the log, on disk."""
        self._leave(self._arrivals, arrival, receipt)
        return receipt

    def write(self, make: Callable[[Draft], Any]) -> "Future[Any]":
        """Leave something else to write: `make` adds to the draft, and what it returns is the future's result.

        If it raises, it must have added nothing.
        """
        future: Future[Any] = Future()
        self._leave(self._errands, make, future)
        return future

    def _leave(self, line: deque[tuple[Any, Receipt]], what: Any, receipt: Receipt) -> None:
        with self._changed:
            if self._closed:
                raise Overloaded("the yard is stopping", "Start it again with `yard up -d`.")
            if len(self._arrivals) + len(self._errands) >= self.waiting_max:
                raise Overloaded(f"{self.waiting_max} requests wait already", "Try again in a moment.")
            line.append((what, receipt))
            self._changed.notify()

    def close(self) -> None:
        """Write what is there, then end."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._round():
            pass

    def _round(self) -> bool:
        """Write what waits; False: nothing comes any more. A call of its own: what was written is not held until the
        next one comes.
        """
        with self._changed:
            while not (self._arrivals or self._errands or self._closed):
                self._changed.wait()
            self._gather()
            arrivals = _take(self._arrivals)
            errands = _take(self._errands)
        if not arrivals and not errands:
            return False
        began_s = time.monotonic()
        self._guarded(self._submit, arrivals)
        self._guarded(self._commit, errands)
        self._write_s = time.monotonic() - began_s
        self._sizes = (self._sizes[1], len(arrivals) + len(errands))
        return True

    def _gather(self) -> None:
        expected = min(max(self._sizes), BATCH_MAX)
        until_s = time.monotonic() + min(GATHER_S_MAX, self._write_s)
        while len(self._arrivals) + len(self._errands) < expected and not self._closed:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not self._changed.wait(left_s):
                return

    def _guarded(self, step: Callable[[list[Any]], None], tickets: list[Any]) -> None:
        """Whatever goes wrong, every request gets an answer and the thread goes on."""
        if not tickets:
            return
        try:
            step(tickets)
        except Exception as error:
            for _what, future in tickets:
                if not future.done():
                    future.set_exception(error)

    def _submit(self, tickets: list[tuple[Arrival, Receipt]]) -> None:
        now_ms = self._now_ms()
        good, batch = [], []
        for arrival, future in tickets:
            try:
                batch.append(arrival(now_ms))
            except Refusal as error:
                # Without the calls that raised it, which hold every submission of this round.
                future.set_exception(strip_traceback(error))
                continue
            good.append(future)
        if not batch:
            return
        try:
            answers = self._replica.store.submit(batch, now_ms)
        except Exception as error:
            _log.warning("%d submissions were not accepted: %s", len(batch), error_text(error))
            for future in good:
                future.set_exception(error)
            return
        for future, answer in zip(good, answers, strict=True):
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _commit(self, tickets: list[tuple[Callable[[Draft], Any], Receipt]]) -> None:
        results: list[tuple[Receipt, Any]] = []

        def make(draft: Draft) -> None:
            for errand, future in tickets:
                try:
                    results.append((future, errand(draft)))
                except Refusal as error:
                    future.set_exception(strip_traceback(error))
                except Exception as error:
                    future.set_exception(error)

        self._replica.commit(None, make)
        for future, result in results:
            future.set_result(result)


def _take(line: "deque[Any]") -> list[Any]:
    return [line.popleft() for _ in range(min(len(line), BATCH_MAX))]
