"""Open streams: answers that go on, each judged again whenever rights may have changed, and closed with the reason.

A followed log, the events, the changes, a way into a job: for each the gate let a person in, and a check let them
have it. Both are asked once more, of the same request, at every version of the configuration, when the token
that it came with is revoked or its browser signed out, and when the token ends. So nobody keeps in an open stream what
the next request would be refused, whichever server of the yard took the change.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from fastapi import Request
from fastapi.responses import StreamingResponse

from gpuyard.api.edge.peers import AGAIN
from gpuyard.api.edge.pulse import AsyncNotifier
from gpuyard.api.edge.throttle import run_in_thread
from gpuyard.api.messages.problems import Problem, find_problem
from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import check_ever
from gpuyard.control.serve import Yard
from gpuyard.wire.endpoints import Action

_log = logging.getLogger(__name__)

CLOSED = "closed"
"""The last event of a stream that is closed before its end, with the reason."""
APART_S = 0.2
"""Between two looks at the tokens of open streams, however much is written."""
RETRY_S = 1.0
"""How soon a stream is judged again that could not be, because the store is away."""
QUIET_S = 60.0
_AT_ONCE = 16

Check = Callable[[Person], object]
"""Raises why a person may not have the stream. Called in a thread."""


def asks_no_more(_person: Person) -> None:
    """The check of a stream for which the right to the action is enough."""


class OpenStream:
    """One stream."""

    def __init__(
        self, again: Callable[[], Awaitable[Person | Problem]], action: Action, check: Check
    ) -> None:
        self._again, self._action, self._check = again, action, check
        self.person: Person | None = None
        """The person as last judged; None: not yet."""
        self.why: Problem | None = None
        """Why it was closed; None: it was not."""
        self.closed = asyncio.Event()
        self._waits: asyncio.Task[Any] | None = None
        """The task that waits for the next piece."""

    async def ask(self) -> None:
        """Ask the gate and the check whether its asker may have it. Raises why not."""
        person = await self._again()
        if isinstance(person, Problem):
            raise person
        check_ever(person.name, person.rights, self._action)
        await run_in_thread(self._check, person)
        self.person = person

    async def judge(self) -> bool:
        """Ask again; whether there was an answer."""
        try:
            await self.ask()
        except Exception as error:
            problem = find_problem(error)
            if problem is None:
                _log.exception("an open stream could not be judged")
                problem = Problem(500, "the yard cannot tell whether you may still see this")
            elif problem.status >= 500:
                return False
            self.close(problem)
        return True

    def close(self, why: Problem) -> None:
        """End it, with the reason."""
        if self.why is None:
            self.why = why
            self.closed.set()
            if self._waits is not None:
                self._waits.cancel()

    def events(self, content: AsyncIterator[bytes]) -> StreamingResponse:
        """Server-sent events as an answer, as they come, for as long as the stream is open."""
        return StreamingResponse(
            self.pieces(content),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def pieces(self, content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Pieces as they come, and at last why there are no more, where the stream was closed."""
        while self.why is None:
            task = self._waits = asyncio.current_task()
            try:
                piece = await anext(content)
            except StopAsyncIteration:
                return
            except asyncio.CancelledError:
                # Cancelled to be closed, and by nobody else.
                if self.why is None or task is None or task.uncancel():
                    raise
                break
            finally:
                self._waits = None
            yield piece
        assert self.why is not None, "nothing else ends the loop"
        told = json.dumps({"status": self.why.status, "detail": self.why.detail, "hint": self.why.hint})
        yield f"event: {CLOSED}\ndata: {told}\n\n".encode()


class OpenStreams:
    """All open streams of one server. Made and used in one event loop."""

    def __init__(self, yard: Yard, pulse: AsyncNotifier) -> None:
        self._yard, self._pulse = yard, pulse
        self._loop = asyncio.get_running_loop()
        # A stream whose answer never began is held by nothing else.
        self._streams: WeakSet[OpenStream] = WeakSet()
        self._opened = asyncio.Event()
        self._renewed = asyncio.Event()
        yard.people.when_renewed(self._renew)
        self._task = self._loop.create_task(self._run())

    async def open(self, request: Request, action: Action, check: Check) -> OpenStream:
        """A stream for the asker, if the gate and the check let them have it."""
        stream = OpenStream(request.scope[AGAIN], action, check)
        # Known before it is judged: no change comes in between, as one may since the gate judged the request.
        self._streams.add(stream)
        await stream.ask()
        self._opened.set()
        return stream

    def close(self) -> None:
        """Judge no more."""
        self._task.cancel()

    def _renew(self, _access: object) -> None:
        with suppress(RuntimeError):
            # The loop of a server that has ended is closed.
            self._loop.call_soon_threadsafe(self._renewed.set)

    async def _run(self) -> None:
        retry, seq = False, self._pulse.seq
        while not self._pulse.closed:
            if not self._streams:
                self._opened.clear()
                await self._opened.wait()
            if self._pulse.seq == seq:
                # Else something was written while the last look went on.
                await self._news(RETRY_S if retry else self._left_s())
            seq = self._pulse.seq
            everything = retry or self._renewed.is_set()
            self._renewed.clear()
            try:
                meant = list(self._streams) if everything else await self._concerned()
                retry = not await _judged(meant)
            except Exception as error:
                if find_problem(error) is None:
                    _log.exception("open streams could not be judged")
                retry = True
            await asyncio.sleep(APART_S)

    async def _news(self, most_s: float) -> None:
        """Until the log has grown, people have changed, a token ends, or a stream was opened that may end sooner."""
        self._opened.clear()
        waits = [
            asyncio.ensure_future(each)
            for each in (self._pulse.next(most_s), self._renewed.wait(), self._opened.wait())
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _left_s(self) -> float:
        """Until the first token ends."""
        ends = [each.person.expires_ms for each in self._streams if each.person and each.person.expires_ms]
        return min([QUIET_S, *[max(0.0, (end_ms - self._yard.valid_ms()) / 1000) for end_ms in ends]])

    async def _concerned(self) -> list[OpenStream]:
        """Streams whose token is no longer valid."""
        by_token: dict[str, list[OpenStream]] = {}
        for stream in self._streams:
            if stream.person is not None and stream.person.token and stream.why is None:
                by_token.setdefault(stream.person.token, []).append(stream)
        if not by_token:
            return []
        ended = await run_in_thread(self._yard.store.tokens.ended, list(by_token), self._yard.valid_ms())
        return [stream for token in ended for stream in by_token[token]]


async def _judged(streams: Iterable[OpenStream]) -> bool:
    """Judge streams, some at a time; whether there was an answer for all of them."""
    left = [each for each in streams if each.why is None]
    whole = True
    for at in range(0, len(left), _AT_ONCE):
        whole = all(await asyncio.gather(*[each.judge() for each in left[at : at + _AT_ONCE]])) and whole
    return whole
