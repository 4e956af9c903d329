"""Answers that are being made, or are made and not all read: those to one user take 16 MiB of the server, all 128 MiB.

An answer that may be large has room before it is made (`make_room`), so as many are made at once as have room together.
Made, it counts whole until its last byte is taken: what is left of it lies in the memory that was taken for all of it.
How large it becomes can only be estimated, so a long list is measured as it is made (`measure`), and each answer when
it is: one that is larger than what was set aside, and has no room, is dropped and refused. A stream counts with the
piece that its client has not taken, and waits for room before it goes on (`take_room`).

Of all the room that there is, a user may take as much as they leave free. So however many users read nothing, there is
room for one more, and the sum of all never passes the bound.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from gpuyard.api.messages.problems import Problem

UNREAD_MAX = 16 * 1024 * 1024
"""Bytes of answers to one user that the server holds because nobody reads them: then no further request is served."""
ALL_MAX = 8 * UNREAD_MAX
"""Bytes of answers to all users together, besides small ones."""
SMALL_BYTES = 8 * 1024
"""An answer of so many bytes is given in any case: health, a submission, a refusal."""
UNSENT = "gpuyard.unsent"
"""In the scope of a request: a call that says how many bytes its connection has yet to take."""
WAIT_S = 10.0
"""How long an answer waits until others of its user are made: a log may hang its reader."""
JOB_BYTES = 2048
"""What a job takes in a list of jobs, about."""
ROW_BYTES = 160
"""What it takes in the queue, about."""
REPORT_BYTES = 1024 * 1024
"""What a report takes that is long: of some thousand rows."""
_MIB = 1024 * 1024


class Answer:
    """One answer that is under way."""

    __slots__ = ("_answers", "_made", "_next", "_size", "_waits", "unsent")

    def __init__(self, answers: "UserAnswers", unsent: Callable[[], int]) -> None:
        self._answers = answers
        self.unsent = unsent
        self._size = 0
        """What it takes: set aside until it is made, and then counted."""
        self._made = False
        self._next = 0
        """What is set aside for the next piece of a stream."""
        self._waits = False
        """Whether it waits until its connection takes more."""

    def hold(self, message: Any) -> Problem | None:
        """Count a message that is about to be sent, or say why it has no room."""
        size = len(message.get("body", b""))
        if message.get("type") == "http.response.start":
            size = _length(message.get("headers", ()))
            if size > self._size and (refusal := self._answers.refuse_made(self, size)):
                return refusal
            self._made, self._size = True, size
            self._answers.changed()
        self._size, self._next = max(self._size, size), 0
        self._waits = True
        return None

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
        return self._next if self._made else self._size

    def expect(self, size: int) -> None:
        """Set so much aside."""
        if self._made:
            self._next = size
        else:
            self._size = size

    async def make_room(self, size: int) -> None:
        """Wait until there is room for it; raises a 429 or a 503 where there is none."""
        await self._answers.make_room(self, min(size, UNREAD_MAX))

    def measure(self, size: int) -> None:
        """Of an answer that is being made there are so many bytes; raises a 429 or a 503 where there is no room."""
        if size > self.expected_bytes():
            refusal = self._answers.refuse_made(self, size)
            if refusal is not None:
                raise refusal
            self.expect(size)

    def take_room(self, size: int) -> bool:
        """Set room aside for the next piece of a stream; whether there is any now."""
        # One piece may be larger than all that a user has: it comes when nothing else is there.
        size = min(size, UNREAD_MAX)
        if not self._answers.has_room(self, size):
            return False
        self.expect(size)
        return True


class AllAnswers:
    """The answers to all users of one server. Used by the event loop alone."""

    __slots__ = ("_most", "_users", "changed")

    def __init__(self, most: int = ALL_MAX) -> None:
        self._most = most
        self._users: set[UserAnswers] = set()
        """Those with an answer that is being made, or is not all read."""
        self.changed = asyncio.Event()

    def enter(self, user: "UserAnswers") -> None:
        """They have one."""
        self._users.add(user)

    def has_room(self, size: int, mine: int, besides: Answer | None = None) -> bool:
        """Whether there is room for an answer to a user who then has `mine` bytes: no more than they leave free.

        Without the answer that it is for, what is set aside for others does not count.
        """
        self._users = {each for each in self._users if each}
        taken = sum([each.unread_bytes() for each in self._users])
        if besides is not None:
            taken += sum([each.coming_bytes(besides) for each in self._users])
        return mine <= self._most - taken - size


class UserAnswers:
    """All answers to one user. Used by the event loop alone."""

    __slots__ = ("_all", "_left", "_line", "_under_way", "_wait_s")

    def __init__(self, answers: AllAnswers | None = None, wait_s: float = WAIT_S) -> None:
        self._all = answers or AllAnswers()
        self._wait_s = wait_s
        self._under_way: set[Answer] = set()
        self._left: dict[Callable[[], int], int] = {}
        """Connections that had not taken all of an answer when it was complete, and what was made for them."""
        self._line = asyncio.Lock()

    def __bool__(self) -> bool:
        return bool(self._under_way or self._left)

    def begin(self, unsent: Callable[[], int]) -> Answer:
        """An answer to a request that has just come."""
        answer = Answer(self, unsent)
        self._under_way.add(answer)
        self._all.enter(self)
        return answer

    def end(self, answer: Answer, size: int) -> None:
        """Of a complete answer, count what its connection has yet to take."""
        self._under_way.discard(answer)
        if answer.unsent():
            self._left[answer.unsent] = size + self._left.get(answer.unsent, 0)
        self.changed()

    def changed(self) -> None:
        """Let those look again that wait for room."""
        self._all.changed.set()

    def unread_bytes(self) -> int:
        """What is made and not all read."""
        self._left = {each: max(size, there) for each, size in self._left.items() if (there := each())}
        return sum(self._left.values()) + sum([each.unread_bytes() for each in self._under_way])

    def coming_bytes(self, besides: Answer) -> int:
        """What is set aside for answers that are not made yet, besides one."""
        return sum([each.expected_bytes() for each in self._under_way if each is not besides])

    def refusal(self) -> Problem | None:
        """Why no further request is served; None: it is."""
        if not self or self.unread_bytes() <= UNREAD_MAX:
            return None
        return _refusal(f"{UNREAD_MAX // _MIB} MiB of answers to you are not read yet")

    def has_room(self, answer: Answer, size: int) -> bool:
        """Whether an answer may be so large."""
        if size <= SMALL_BYTES:
            return True
        mine = self.unread_bytes() + self.coming_bytes(answer) + size
        return mine <= UNREAD_MAX and self._all.has_room(size, mine, answer)

    def refuse_made(self, answer: Answer, size: int) -> Problem | None:
        """Why there is no room for an answer that is made and of this size; None: there is."""
        if size <= SMALL_BYTES:
            return None
        unread = self.unread_bytes()
        if unread and unread + size > UNREAD_MAX:
            return _too_much(unread, "are not read yet", f"takes {size / _MIB:.1f}")
        if not self._all.has_room(size, unread + size, answer):
            return _crowded(f"takes {size / _MIB:.1f} MiB")
        return None

    async def make_room(self, answer: Answer, size: int) -> None:
        """Set room aside for an answer, once others that are being made leave it; raises a 429 where none is left to
        its user, and a 503 where none is left to anybody.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._wait_s
        takes = f"may take {size / _MIB:.1f}"
        async with self._line:
            while not self.has_room(answer, size):
                unread, coming = self.unread_bytes(), self.coming_bytes(answer)
                if unread + size > UNREAD_MAX:
                    raise _too_much(unread, "are not read yet", takes)
                if not self._all.has_room(size, unread + size):
                    raise _crowded(f"{takes} MiB")
                self._all.changed.clear()
                try:
                    async with asyncio.timeout_at(until_s):
                        await self._all.changed.wait()
                except TimeoutError:
                    if unread + coming + size > UNREAD_MAX:
                        raise _too_much(coming, "are being made", takes) from None
                    raise _crowded(f"{takes} MiB") from None
            answer.expect(size)


_mine: ContextVar[Answer | None] = ContextVar("answer", default=None)
current = _mine.set
"""Name the answer that is made from here on."""


async def make_room(size: int) -> None:
    """Wait until there is room for the asker's answer, which may be so large; raises a 429 or a 503 where none is."""
    answer = _mine.get()
    if answer is not None:
        await answer.make_room(size)


def measure(size: int) -> None:
    """Of the asker's answer there are so many bytes by now; raises a 429 or a 503 where there is no room for them."""
    answer = _mine.get()
    if answer is not None:
        answer.measure(size)


def take_room(size: int) -> bool:
    """Set room aside for the next piece of the asker's stream; whether there is any now."""
    answer = _mine.get()
    return answer is None or answer.take_room(size)


def _length(headers: Any) -> int:
    for name, value in headers:
        if name == b"content-length":
            return int(value)
    return 0


def _too_much(there: int, how: str, takes: str) -> Problem:
    return _refusal(
        f"{there / _MIB:.1f} MiB of answers to you {how}, and this one {takes} of the {UNREAD_MAX // _MIB} MiB "
        "that a user has"
    )


def _refusal(detail: str) -> Problem:
    return Problem(
        429,
        detail,
        "Read these answers or close their connections, then ask again.",
        headers={"Retry-After": "1"},
    )


def _crowded(takes: str) -> Problem:
    return Problem(
        503,
        f"others have not read what was answered to them, and this answer {takes}, which the server has no room for",
        "Ask again in 2 s, or for less: `limit` makes a list shorter.",
        kind="overloaded",
        headers={"Retry-After": "2"},
    )
