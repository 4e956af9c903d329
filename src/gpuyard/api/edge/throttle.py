"""The throttle: after taking much of the server's time, a user waits before each request while others ask.

No request is refused, unless its user has not read much of what was answered before. While other users ask, a user has
few requests under way at once, of which one computes in a thread, and a fifth of the time: the sum of the CPU time that
their requests took in the event loop and in threads, and of the cost of writing their jobs. While no other user asks, a
user has all the time, with only a few more under way: requests that pile up wait here, and not in front of another
user's. A user with an unanswered request counts as asking. Requests without a known user have a tenth, by address, at
any time. Root and the owner of the server are not held back, and each process counts for itself.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread

from gpuyard.api.edge import unread
from gpuyard.api.edge.unread import UNSENT, AllAnswers, UserAnswers
from gpuyard.api.messages.problems import Problem
from gpuyard.control.access.people import Person
from gpuyard.control.reading.publisher import own_write_s

SHARE = 0.2
STRANGERS_SHARE = 0.1
"""Seconds of a core in a second."""
BURST_S = 0.15
"""How much more a user may take at once, after a while without a request."""
LONG_BURST_S = 0.6
"""The same of long lists, which have an account of their own: the whole queue now and then, also of 200,000 jobs."""
DEBT_S_MAX = 2.0
"""The largest debt: what was taken beyond it while no other user asked is forgotten."""
OTHERS_S = 2.0
"""How long after a request its user counts as asking."""
STRANGER_S = 0.0005
"""The cost of a connection before its request is read, about."""
STRETCH_S = 0.002
"""How long one connection's messages are seen to at a stretch, before the event loop does something else."""
JOB_S = 0.00006
"""The cost of writing a job to the log and folding it, about."""
ARRAY_IDS = 500
"""Tasks from which on an array waits for the cost of the one before it, also if both were sent at the same moment."""
AT_ONCE = 4
"""Requests of one user under way at a time while others ask; a request counts until its answer begins."""
ALONE_AT_ONCE = 8
"""The same while no other user asks: a new user's request finds no more than these in front of it."""
ROOM_S_MIN, ROOM_S_MAX = 0.05, 1.0
"""Between two looks of a stream that waits for room."""
_ACCOUNTS_MAX = 2_000

T = TypeVar("T")
App = Callable[[Any, Any, Any], Awaitable[None]]


class TimeAccount:
    """The time that one user has taken lately."""

    __slots__ = (
        "answers",
        "at_s",
        "burst_s",
        "debt_s",
        "freed",
        "heeds",
        "line",
        "long",
        "name",
        "now_s",
        "one_thread",
        "share",
        "typical_s",
        "under_way",
        "wrote_s",
    )

    def __init__(
        self,
        name: str,
        share: float,
        now_s: Callable[[], float],
        heeds: Callable[[], bool],
        burst_s: float = BURST_S,
        answers: AllAnswers | None = None,
    ) -> None:
        self.name = name
        self.share = share
        self.burst_s = burst_s
        self.now_s = now_s
        self.heeds = heeds
        """Whether they have to wait for others now."""
        self.at_s = now_s()
        self.debt_s = 0.0
        self.typical_s = 0.0
        """What one of their requests takes, about: charged when it begins, and corrected when it ends."""
        self.under_way = 0
        self.wrote_s = self.at_s
        """When they were last told that something is written; before their account was opened nobody knows."""
        self.answers = UserAnswers(answers)
        self.line = asyncio.Lock()
        """Requests of one user go in one by one, in the order in which they came."""
        self.freed = asyncio.Event()
        self.one_thread = asyncio.Lock()
        """Threads of one process take turns, so several that compute for one user save nothing and hold up others."""
        self.long: TimeAccount | None = None
        """An account for their long lists, with the same share, so that these hold up no other request of theirs."""

    def charge(self, seconds: float) -> None:
        """Count what was taken."""
        self.debt_s += seconds

    def left_s(self) -> float:
        """The time that is still to be paid off."""
        now_s = self.now_s()
        self.debt_s = min(DEBT_S_MAX, max(0.0, self.debt_s - (now_s - self.at_s) * self.share))
        self.at_s = now_s
        return self.debt_s - self.burst_s

    async def rest(self, spare_s: float = 0.0) -> None:
        """Wait until they may take `spare_s` again, or no other user asks any longer."""
        while (left_s := self.left_s() + spare_s) > 0 and self.heeds():
            await asyncio.sleep(min(OTHERS_S, left_s / self.share))

    def answered(self) -> None:
        """One request less is under way."""
        self.under_way -= 1
        self.freed.set()


_mine: ContextVar[TimeAccount | None] = ContextVar("account", default=None)
_heeds: ContextVar[Callable[[], bool]] = ContextVar("heeds", default=lambda: True)


def others_ask() -> bool:
    """Whether another user than the asker has asked for something of late, as far as anybody knows."""
    return _heeds.get()()


def charge(seconds: float) -> None:
    """Charge the asker for work that will be done elsewhere."""
    account = _mine.get()
    if account is not None:
        account.charge(seconds)


async def yield_to_others() -> None:
    """Let other users go first, amid a long answer, if the asker has used up their part of the time.

    The asker's other requests go first too: half of the burst is left to them.
    """
    account = _mine.get()
    if account is not None:
        await account.rest(BURST_S / 2)


async def wait_for_room(
    size: int, most_s: float = math.inf, stops: Callable[[], bool] = lambda: False
) -> bool:
    """Wait until there is room for the next piece of the asker's stream, or it stops; whether there is."""
    until_s, pause_s = time.monotonic() + most_s, ROOM_S_MIN
    while not unread.take_room(size):
        if stops() or time.monotonic() >= until_s:
            return False
        await asyncio.sleep(pause_s)
        pause_s = min(ROOM_S_MAX, 2 * pause_s)
        await yield_to_others()
    return True


async def run_metered(work: Callable[[], Awaitable[None]]) -> None:
    """Work in a task of its own, charged to the asker as the request is."""
    account = _mine.get()
    await (work() if account is None else _Meter(account, work()))


class Pace:
    """Gives way to others amid work that need not wait for anything: messages that have come already."""

    def __init__(self, stretch_s: float = STRETCH_S) -> None:
        self._stretch_s = stretch_s
        self._began_s = time.monotonic()

    async def keep(self) -> None:
        """Let others go first, if this has gone on for a while."""
        if time.monotonic() - self._began_s > self._stretch_s:
            await yield_to_others()
            await asyncio.sleep(0)
            self._began_s = time.monotonic()


async def run_in_thread(
    work: Callable[..., T], *args: Any, among: CapacityLimiter | None = None, **kwargs: Any
) -> T:
    """Work in another thread, charged to the asker; `among` limits how many run at a time."""
    return await _in_thread(_mine.get(), among, work, *args, **kwargs)


async def run_in_one_thread(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """As `run_in_thread`, for work that computes and waits for nothing: one at a time for each user while
    others ask.
    """
    return await _in_one_thread(_mine.get(), work, *args, **kwargs)


async def run_at_leisure(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """As `run_in_one_thread`, for a piece of a long list, once the asker may take more of the time for such lists."""
    account = _mine.get()
    if account is not None:
        if account.long is None:
            account.long = TimeAccount(
                account.name, account.share, account.now_s, account.heeds, LONG_BURST_S
            )
            account.long.one_thread = account.one_thread
        account = account.long
        await account.rest()
    return await _in_one_thread(account, work, *args, **kwargs)


async def _in_one_thread(account: TimeAccount | None, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    if account is None or not account.heeds():
        return await _in_thread(account, None, work, *args, **kwargs)
    async with account.one_thread:
        return await _in_thread(account, None, work, *args, **kwargs)


async def _in_thread(
    account: TimeAccount | None,
    among: CapacityLimiter | None,
    work: Callable[..., T],
    *args: Any,
    **kwargs: Any,
) -> T:
    def measured() -> T:
        if account is None:
            return work(*args, **kwargs)
        began_s = time.thread_time()
        try:
            return work(*args, **kwargs)
        finally:
            account.charge(time.thread_time() - began_s)

    return await to_thread.run_sync(measured, limiter=among)


class Throttle:
    """The accounts of one server process. Used by the event loop alone."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._accounts: dict[str, TimeAccount] = {}
        self._answers = AllAnswers()
        self._last = ("", float("-inf"))
        """The user of the last request, and its time."""
        self._before = float("-inf")
        """The time of the last request of another user."""

    def heard(self, name: str) -> None:
        """Note a request of a user."""
        now_s = self._now_s()
        if name != self._last[0]:
            self._before = self._last[1]
        self._last = (name, now_s)

    def _others_ask(self, name: str, now_s: float) -> bool:
        at_s = self._before if self._last[0] == name else self._last[1]
        return now_s - at_s < OTHERS_S or any(
            [one.under_way > 0 for one in self._accounts.values() if one.share == SHARE and one.name != name]
        )

    async def user(self, name: str, app: App, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request of a known user, in their turn."""
        self.heard(name)
        account = self._account(name, SHARE, lambda: self._others_ask(name, self._now_s()))
        await self._serve(account, app, scope, receive, send)

    async def administrator(self, app: App, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request of an administrator, whose time is not counted."""
        self.heard("")
        _heeds.set(lambda: self._others_ask("", self._now_s()))
        await app(scope, receive, send)

    async def stranger(self, address: str, app: App, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request without a known user."""
        account = self._account(f"@{address}", STRANGERS_SHARE, lambda: True)
        account.charge(STRANGER_S)
        await self._serve(account, app, scope, receive, send)

    def _account(self, name: str, share: float, heeds: Callable[[], bool]) -> TimeAccount:
        account = self._accounts.get(name)
        if account is None:
            if len(self._accounts) >= _ACCOUNTS_MAX:
                self._accounts = {
                    each: one
                    for each, one in self._accounts.items()
                    if one.line.locked() or one.answers or one.left_s() > -BURST_S
                }
            account = self._accounts[name] = TimeAccount(
                name, share, self._now_s, heeds, answers=self._answers
            )
        return account

    async def _turn(self, account: TimeAccount) -> None:
        """Wait for one's turn."""
        async with account.line:
            while True:
                await account.rest()
                if account.under_way < (AT_ONCE if account.heeds() else ALONE_AT_ONCE):
                    return
                account.freed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(OTHERS_S):
                        await account.freed.wait()

    async def _serve(self, account: TimeAccount, app: App, scope: Any, receive: Any, send: Any) -> None:
        if account.line.locked() or account.under_way >= AT_ONCE or account.left_s() > 0:
            await self._turn(account)
        refusal = account.answers.refusal()
        if refusal is not None:
            await refusal.response()(scope, receive, send)
            return
        expected_s, writes = account.typical_s, scope["method"] != "GET"
        answered = refused = False
        answer = account.answers.begin(scope.get(UNSENT, _nothing_unsent))
        account.charge(expected_s)
        account.under_way += 1

        async def sent(message: Any) -> None:
            nonlocal answered, refused
            if refused:
                # What was made has no room: it is dropped as it comes.
                return
            no_room = answer.hold(message)
            if not answered:
                answered = True
                account.answered()
                if writes:
                    account.wrote_s = self._now_s()
            if no_room is not None:
                refused = True
                await no_room.response()(scope, receive, send)
                return
            await send(message)
            answer.let_go()

        _mine.set(account)
        unread.current(answer)
        _heeds.set(account.heeds)
        own_write_s.set(account.wrote_s)
        before_s = account.debt_s
        try:
            await _Meter(account, app(scope, receive, sent))
        finally:
            if not answered:
                account.answered()
                if writes:
                    # What was not answered may be written all the same.
                    account.wrote_s = self._now_s()
            answer.end()
            took_s = max(0.0, account.debt_s - before_s)
            account.debt_s = max(0.0, account.debt_s - expected_s)
            account.typical_s += 0.2 * (took_s - account.typical_s)


def _nothing_unsent() -> int:
    return 0


class _Meter:
    """An awaitable that charges its steps in the event loop to an account."""

    def __init__(self, account: TimeAccount, work: Awaitable[None]) -> None:
        self._account = account
        self._work = work

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._work.__await__()
        send: Callable[[Any], Any] = steps.send
        value: Any = None
        while True:
            # Of the processor, not by the clock: a user must not pay for the time in which another user's threads ran.
            began_s = time.thread_time()
            try:
                waits_for = send(value)
            except StopIteration:
                return
            finally:
                self._account.charge(time.thread_time() - began_s)
            try:
                value = yield waits_for
                send = steps.send
            except BaseException as error:
                value, send = error, steps.throw


class OneEach:
    """One thing at a time for each person, in the order in which they came. Used by the event loop alone."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, person: Person) -> AsyncIterator[None]:
        """Wait for the person's turn; it lasts as long as the context."""
        lock, there = self._lines.get(person.key, (asyncio.Lock(), 0))
        self._lines[person.key] = (lock, there + 1)
        try:
            async with lock:
                yield
        finally:
            lock, there = self._lines.pop(person.key)
            if there > 1:
                self._lines[person.key] = (lock, there - 1)


WAITING_MAX = 8
"""Requests of one kind that one person may have waiting."""
ALL_WAITING_MAX = 64
"""The same for all users together."""


class Turns:
    """The turns of one kind of request that takes long: one at a time for each person, and few at a time in all.

    A user with too many of them waiting gets an answer at once: try again later. Used by the event loop alone.
    """

    def __init__(self, what: str, at_once: int, retry_s: int = 2) -> None:
        self._what = what
        self._at_once = at_once
        self._retry_s = retry_s
        self._free = asyncio.Semaphore(at_once)
        self._locks: dict[str, asyncio.Lock] = {}
        self._there: Counter[str] = Counter()

    @asynccontextmanager
    async def of(self, person: Person) -> AsyncIterator[None]:
        """Wait for a turn; it lasts as long as the context. Raises a 429 where too many wait."""
        name = person.key
        if self._there[name] > WAITING_MAX:
            raise self._too_many(f"{person.name} has {WAITING_MAX} {self._what} waiting already")
        if self._there.total() >= ALL_WAITING_MAX + self._at_once:
            raise self._too_many(f"{ALL_WAITING_MAX} {self._what} wait already")
        self._there[name] += 1
        lock = self._locks.setdefault(name, asyncio.Lock())
        try:
            async with lock, self._free:
                yield
        finally:
            self._there[name] -= 1
            if not self._there[name]:
                del self._there[name], self._locks[name]

    def _too_many(self, text: str) -> Problem:
        return Problem(
            429,
            text,
            f"These requests take a while, and each user may have one at a time. Ask again in "
            f"{self._retry_s} s.",
            headers={"Retry-After": str(self._retry_s)},
        )
