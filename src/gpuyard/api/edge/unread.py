"""Answers to one user that are being made, or are made and not all read: together they take 16 MiB of the server.

An answer that may be large has room before it is made (`make_room`), so as many are made at once as have room together.
Made, it counts whole until its last byte is taken: what is left of it lies in the memory that was taken for all of it.
A stream counts with the piece that its client has not taken.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from gpuyard.api.messages.problems import Problem

UNREAD_MAX = 16 * 1024 * 1024
"""Bytes of answers to one user that the server holds because nobody reads them: then no further request is served."""
UNSENT = "gpuyard.unsent"
"""In the scope of a request: a call that says how many bytes its connection has yet to take."""
WAIT_S = 10.0
"""How long an answer waits until others of its user are made: a log may hang its reader."""
JOB_BYTES = 2048
"""What a job takes in a list of jobs, about."""
REPORT_BYTES = 1024 * 1024
"""What a report takes that is long: of some thousand rows."""
_MIB = 1024 * 1024


class Answer:
    """One answer that is under way."""

    __slots__ = ("_answers", "_made", "_size", "_waits", "unsent")

    def __init__(self, answers: "UserAnswers", unsent: Callable[[], int]) -> None:
        self._answers = answers
        self.unsent = unsent
        self._size = 0
        """What it takes: set aside until it is made, and then counted."""
        self._made = False
        self._waits = False
        """Whether it waits until its connection takes more."""

    def hold(self, message: Any) -> None:
        """Count a message that is about to be sent."""
        if message.get("type") == "http.response.start":
            self._made, self._size = True, _length(message.get("headers", ()))
            self._answers.changed.set()
        self._size = max(self._size, len(message.get("body", b"")))
        self._waits = True

    def let_go(self) -> None:
        """The connection has taken the message over."""
        self._waits = False

    def end(self) -> None:
        """It is complete, or there will be none."""
        self._answers.end(self, self._size if self._made else 0)

    def unread_bytes(self) -> int:
        """What of it is made and not all read."""
        return self._size if self._made and (self._waits or self.unsent()) else 0

    def expected_bytes(self) -> int:
        """What is set aside for it."""
        return 0 if self._made else self._size

    def expect(self, size: int) -> None:
        """Set so much aside."""
        self._size = size

    async def make_room(self, size: int) -> None:
        """Wait until there is room for it; raises a 429 where there is none."""
        await self._answers.make_room(self, min(size, UNREAD_MAX))


class UserAnswers:
    """All answers to one user. Used by the event loop alone."""

    __slots__ = ("_left", "_line", "_under_way", "_wait_s", "changed")

    def __init__(self, wait_s: float = WAIT_S) -> None:
        self._wait_s = wait_s
        self._under_way: set[Answer] = set()
        self._left: dict[Callable[[], int], int] = {}
        """Connections that had not taken all of an answer when it was complete, and what was made for them."""
        self._line = asyncio.Lock()
        self.changed = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._under_way or self._left)

    def begin(self, unsent: Callable[[], int]) -> Answer:
        """An answer to a request that has just come."""
        answer = Answer(self, unsent)
        self._under_way.add(answer)
        return answer

    def end(self, answer: Answer, size: int) -> None:
        """Of a complete answer, count what its connection has yet to take."""
        self._under_way.discard(answer)
        if answer.unsent():
            self._left[answer.unsent] = size + self._left.get(answer.unsent, 0)
        self.changed.set()

    def unread_bytes(self) -> int:
        """What is made and not all read."""
        self._left = {each: max(size, there) for each, size in self._left.items() if (there := each())}
        return sum(self._left.values()) + sum([each.unread_bytes() for each in self._under_way])

    def refusal(self) -> Problem | None:
        """Why no further request is served; None: it is."""
        if not self or self.unread_bytes() <= UNREAD_MAX:
            return None
        return _refusal(f"{UNREAD_MAX // _MIB} MiB of answers to you are not read yet")

    async def make_room(self, answer: Answer, size: int) -> None:
        """Set room aside for an answer, once others that are being made leave it; raises a 429 where none is left."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._wait_s
        async with self._line:
            while True:
                unread = self.unread_bytes()
                if unread + size > UNREAD_MAX:
                    raise _refusal(
                        f"{unread / _MIB:.1f} MiB of answers to you are not read yet, and this one may take "
                        f"{size / _MIB:.1f} of the {UNREAD_MAX // _MIB} MiB that a user has"
                    )
                coming = sum([each.expected_bytes() for each in self._under_way if each is not answer])
                if unread + coming + size <= UNREAD_MAX:
                    answer.expect(size)
                    return
                self.changed.clear()
                try:
                    async with asyncio.timeout_at(until_s):
                        await self.changed.wait()
                except TimeoutError:
                    raise _refusal(
                        f"answers of {coming / _MIB:.1f} MiB to you are being made, and this one may take "
                        f"{size / _MIB:.1f} of the {UNREAD_MAX // _MIB} MiB that a user has"
                    ) from None


_mine: ContextVar[Answer | None] = ContextVar("answer", default=None)
current = _mine.set
"""Name the answer that is made from here on."""


async def make_room(size: int) -> None:
    """Wait until there is room for the asker's answer, which may be so large; raises a 429 where there is none."""
    answer = _mine.get()
    if answer is not None:
        await answer.make_room(size)


def _length(headers: Any) -> int:
    for name, value in headers:
        if name == b"content-length":
            return int(value)
    return 0


def _refusal(detail: str) -> Problem:
    return Problem(
        429,
        detail,
        "Read these answers or close their connections, then ask again.",
        headers={"Retry-After": "1"},
    )
