"""Wakes threads that wait for new events.

A thread that appends notifies the others of its process. PostgreSQL's notifications do so for events of other
processes; without them, or when one was lost, the waiting thread polls.
"""

import threading
import time
from collections.abc import Callable


class Notifier:
    """The highest sequence number heard of, and the threads that wait for a higher one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._head = 0
        self._closed = False

    def notify(self, head: int) -> None:
        """There are events up to `head`."""
        with self._changed:
            if head > self._head:
                self._head = head
                self._changed.notify_all()

    def close(self) -> None:
        """Wake every waiting thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait(self, after_seq: int, timeout_s: float, poll_s: float, look: Callable[[], int]) -> bool:
        """Whether there is an event after `after_seq`, as soon as there is one, at the latest after the timeout."""
        deadline = time.monotonic() + timeout_s
        if self._head <= after_seq:
            # Another process may have written.
            self.notify(look())
        while True:
            with self._changed:
                left_s = deadline - time.monotonic()
                if self._head > after_seq or self._closed or left_s <= 0:
                    return self._head > after_seq
                notified = self._changed.wait(min(poll_s, left_s))
            if not notified:
                self.notify(look())
