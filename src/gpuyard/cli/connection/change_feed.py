"""What `/changes` tells a command, in a thread of its own: the queue as it changes, or that something has happened.

A server that is away is looked for until it is back. Without the stream (an older server, no right to it) a command
reads its list again and again.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from gpuyard.api.client import Client, Refused
from gpuyard.api.connecting.mirror import Mirror
from gpuyard.errors import YardError

AGAIN_S = 1.0
"""Between two tries to reach a server that is away."""
LOOK_S = 10.0
CLOSE_S = 2.0
_NEVER = frozenset({403, 404, 422})
"""Answers of a server that has no such stream, or not for this user."""


class Stream:
    """A stream of `/changes`, found again whenever it is lost."""

    apart_s, ages_s = 1.0, 10.0

    def __init__(self, news: Callable[[], None] | None = None, again_s: float = AGAIN_S) -> None:
        """`news` is called in the thread, whenever something has changed and when the stream is lost; `again_s` is
        between two tries to reach a server that is away."""
        self.told = threading.Event()
        """Set where there is something new to show."""
        self._news = news or self.told.set
        self._again_s = again_s
        self._closing = threading.Event()
        self._stream: Client | None = None
        self.live = False
        """Whether the stream is there, and tells what happens."""
        self._thread = threading.Thread(target=self._run, name="followed", daemon=True)

    def start(self) -> None:
        """Begin to follow; once."""
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Stop, and wait until the thread has."""
        self._closing.set()
        if self._stream is not None:
            self._stream.hang_up()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                with Client(timeout_s=LOOK_S, patience_s=0) as stream:
                    self._stream = stream
                    if not self._follow(stream):
                        return
            except Refused as error:
                if error.status in _NEVER:
                    return
            except (OSError, YardError):
                pass
            finally:
                self.live = False
            self._news()
            self._closing.wait(self._again_s)

    def _follow(self, stream: Client) -> bool:
        """Whether it is worth another try after the stream has ended."""
        for name, data in stream.wakes():
            if self._closing.is_set():
                return False
            if name == "start" and not data.get("wakes"):
                # An older server, which tells of the queue alone.
                return False
            self.live = True
            self._news()
        return True


class Followed(Stream):
    """The queue of the yard, for as long as the stream lives."""

    apart_s, ages_s = 0.5, 0.0

    def __init__(self, news: Callable[[], None] | None = None) -> None:
        super().__init__(news)
        self._lock = threading.Lock()
        self._mirror = Mirror()
        self._head: dict[str, Any] = {}
        self._taken_s = 0.0

    def queue(self, tenant: str = "", user: str = "", states: tuple[str, ...] = ()) -> dict[str, Any] | None:
        """The queue as `GET /queue` would give it; None: the stream is not there."""
        with self._lock:
            if not self.live:
                return None
            rows = self._mirror.rows()
            at_ms = self._head["at_ms"] + round(1000 * (time.monotonic() - self._taken_s))
            head = {**self._head, **self._mirror.counts, "seq": self._mirror.seq, "at_ms": at_ms}
        if tenant or user or states:
            rows = [
                row
                for row in rows
                if (not tenant or f"{row[3]}/".startswith(f"{tenant}/"))
                and (not user or row[4] == user)
                and (not states or row[6] in states)
            ]
        return {**head, "rows": rows}

    def _follow(self, stream: Client) -> bool:
        with Client(timeout_s=LOOK_S, patience_s=0) as lists:
            self._fill(lists)
            for name, data in stream.changes(str(self._mirror.seq)):
                if self._closing.is_set():
                    return False
                with self._lock:
                    again = self._mirror.heed(name, data)
                if again:
                    self._fill(lists)
                self.live = True
                self._news()
        return True

    def _fill(self, lists: Client) -> None:
        found = lists.queue()
        with self._lock:
            self._mirror.fill(found)
            self._head = {name: found[name] for name in ("at_ms", "columns")}
            self._taken_s = time.monotonic()
