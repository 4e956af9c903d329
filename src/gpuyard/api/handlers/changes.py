"""`GET /changes`: the rows of the queue as they change, for every user that may list it, as server-sent events.

One task has the next model published, a few times a second at most, and only while somebody follows. A follower is its
own loop over `control.reading.changes`: it is told what it lacks when it can take more, so that none of them holds
anything back for another.
"""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable

from anyio import to_thread
from fastapi import Request, Response

from gpuyard.api.edge.open_streams import OpenStreams
from gpuyard.api.edge.peers import get_asker
from gpuyard.api.edge.pulse import AsyncNotifier
from gpuyard.api.edge.routes import Handlers, read_number
from gpuyard.api.edge.throttle import charge, run_in_thread, yield_to_others
from gpuyard.api.handlers.streams import QUIET_S, STILL_HERE, encode_event, signs_until_room
from gpuyard.api.messages.problems import Problem
from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import Sight
from gpuyard.control.reading.changes import ORDER_S, Told
from gpuyard.control.reading.model import Model
from gpuyard.control.refusals import Forbidden
from gpuyard.control.serve import Yard
from gpuyard.errors import YardError
from gpuyard.wire import endpoints
from gpuyard.wire.endpoints import Action

_log = logging.getLogger(__name__)

APART_S = 0.2
"""Between two models that are published for followers, however much happens."""
LOOK_S = 1.0
"""How often the reasons are looked at, which change without an event."""
TURN_S = 0.0001
"""What a look costs in the event loop, about."""
IDLE_S = 5.0
"""How often such a follower is looked after while nothing happens."""
WAKES_S = 1.0
"""Between two times that a follower is told that something has happened."""
_AFTER = re.compile(r"[0-9]{1,18}(-[0-9a-f]{1,32})?")


def handlers(yard: Yard) -> Handlers:
    """What changes in the queue."""
    return {endpoints.CHANGES: _Changes(yard).changes}


class _Changes:
    """The handler."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._beat: Beat | None = None
        self._making: dict[tuple[int, tuple[str, ...]], asyncio.Future[Told | None]] = {}
        """Texts that are being made for the followers of one sight that stand at one version."""

    async def changes(self, request: Request) -> Response:
        """Rows of the queue as they change after `after` (or `Last-Event-ID`). Default: from now on.

        `start` gives the position of the stream. `rows` has rows as in the queue, without places in line, and the ids
        of jobs that have ended (`gone`). `order` has the ids of jobs that wait and that are set aside, each run of ids
        as its first and last id; a new job waits behind them until the next `order`. `again` means that more has
        changed than the server keeps: read the list again, and ignore rows whose `seq` is below the list's.

        With `rows=0` the stream has only `seq`, whenever the log has grown and at most once a second, for a list that
        is then read again; `start` says so (`wakes`).
        """
        after = request.headers.get("last-event-id") or request.query_params.get("after") or ""
        if after and not _AFTER.fullmatch(after):
            raise Problem(
                422, f"after is {after[:40]!r}, which is not a place in this stream", "Give `seq` of a list."
            )
        pulse: AsyncNotifier = request.app.state.pulse
        streams: OpenStreams = request.app.state.streams
        sight = get_asker(request.scope).sight

        def sees_as_before(person: Person) -> None:
            if person.sight != sight:
                raise Forbidden(
                    f"{person.name} may now see the jobs of other tenants",
                    "Follow again, to receive what you may see now.",
                )

        open_ = await streams.open(request, Action.SEE_QUEUE, sees_as_before)
        if not read_number("rows", request.query_params.get("rows", "1"), 0, 1):
            return open_.events(self.wake(pulse))
        if self._beat is None or self._beat.pulse is not pulse:
            reading = self._yard.views.reading
            self._beat = Beat(pulse, lambda: reading.latest(spoken=True))
        return open_.events(self.follow(self._beat, sight, after))

    async def follow(self, beat: "Beat", sight: Sight, after: str) -> AsyncIterator[bytes]:
        """What one follower is told."""
        window = self._yard.views.reading.window
        await run_in_thread(self._yard.views.reading.latest)
        version, model, on = window.start(after)
        ordered, ordered_s = 0, float("-inf")
        yield encode_event(
            "start",
            {"seq": model.seq, "run": window.run, "columns": endpoints.QUEUE_COLUMNS},
            f"{model.seq}-{window.run}",
        )
        if not on:
            yield encode_event("again", {"seq": model.seq})
        beat.followers += 1
        quiet_s = time.monotonic()
        try:
            while not beat.pulse.closed:
                now_s = time.monotonic()
                charge(TURN_S)
                await yield_to_others()
                told = window.ready(version, sight) or await self._lacks(version, sight)
                if told is None:
                    version, model, _on = window.start("")
                    yield encode_event("again", {"seq": model.seq})
                    ordered, quiet_s = 0, now_s
                else:
                    version = told.version
                    if told.text:
                        async for sign in signs_until_room(len(told.text), beat.pulse):
                            yield sign
                        yield encode_event("rows", told.text, f"{told.seq}-{window.run}")
                        quiet_s = now_s
                if now_s - ordered_s >= ORDER_S:
                    ordered_s = now_s
                    ordered, _seq, text = window.order(ordered, now_s)
                    if text:
                        async for sign in signs_until_room(len(text), beat.pulse):
                            yield sign
                        yield encode_event("order", text)
                if now_s - quiet_s > QUIET_S:
                    quiet_s = now_s
                    yield STILL_HERE
                await beat.next(version)
        finally:
            beat.followers -= 1

    async def _lacks(self, version: int, sight: Sight) -> Told | None:
        """What followers lack, made once for all of them: a beat wakes them together."""
        key = (version, sight.tenants)
        making = self._making.get(key)
        if making is None:
            window = self._yard.views.reading.window
            making = self._making[key] = asyncio.ensure_future(run_in_thread(window.since, version, sight))
            making.add_done_callback(lambda _made: self._making.pop(key))
        # A follower that goes away takes the text from none of the others.
        return await asyncio.shield(making)

    async def wake(self, pulse: AsyncNotifier) -> AsyncIterator[bytes]:
        """The number of the last event, whenever it is another: nothing is published for that."""
        seq = await run_in_thread(self._yard.store.head)
        yield encode_event("start", {"seq": seq, "wakes": True}, seq)
        quiet_s = time.monotonic()
        while not pulse.closed:
            if pulse.seq > seq:
                charge(TURN_S)
                await yield_to_others()
                seq, quiet_s = pulse.seq, time.monotonic()
                yield encode_event("seq", {"seq": seq}, seq)
                # However much happens, and however many readers there are: one read of a list a second.
                await asyncio.sleep(WAKES_S)
            elif time.monotonic() - quiet_s > QUIET_S:
                quiet_s = time.monotonic()
                yield STILL_HERE
            else:
                # Nobody looks by themselves: that would cost as much as to read a short list again and again.
                await pulse.next(IDLE_S)


class Beat:
    """Has models published while somebody follows, and tells all followers of each. Used in one event loop."""

    def __init__(self, pulse: AsyncNotifier, publish: Callable[[], Model], apart_s: float = APART_S) -> None:
        self.pulse = pulse
        self._apart_s = apart_s
        self._publish = publish
        self.followers = 0
        self._version = 0
        self._news = asyncio.Event()
        self._woken_s = float("-inf")
        self._task: asyncio.Task[None] | None = None

    async def next(self, version: int) -> None:
        """Come back when there is a model after this one, at the latest after about `LOOK_S`."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        if self._version <= version:
            await self._news.wait()

    async def _run(self) -> None:
        try:
            while self.followers and not self.pulse.closed:
                await self._turn()
        except Exception:
            _log.exception("nothing was published for followers")
            await asyncio.sleep(LOOK_S)
        finally:
            self._wake()

    async def _turn(self) -> None:
        """Publish once, and wake the followers: all at once, for one timer is cheaper than one of each."""
        began_s = time.monotonic()
        try:
            model = await to_thread.run_sync(self._publish)
        except YardError as error:
            # The store is away: followers wait until it is back.
            _log.warning("nothing was published for followers: %s", error.message)
            await asyncio.sleep(LOOK_S)
            self._wake()
            return
        if model.version > self._version or began_s - self._woken_s >= LOOK_S:
            self._version = model.version
            self._wake()
        await asyncio.sleep(max(0.0, self._apart_s - (time.monotonic() - began_s)))
        await self.pulse.next(LOOK_S)

    def _wake(self) -> None:
        self._woken_s = time.monotonic()
        self._news.set()
        self._news = asyncio.Event()
