"""Terminals of jobs over a WebSocket: the server passes frames on between a client and the job, over its engine's link.

The client says what it wants in a first message, as JSON. From then on binary messages are frames of the keeper
(`engines/node/visits/frames.py`), a letter and its content; `api/messages/frames.py` has checked all of them before
they come here. Text is news of the yard: how the job stands while it waits, and how it ended. A terminal at which
nothing happens costs nothing here.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from fastapi import Request, Response

from gpuyard.api.connecting.websocket import NORMAL
from gpuyard.api.edge.open_streams import OpenStream, OpenStreams
from gpuyard.api.edge.pulse import AsyncNotifier
from gpuyard.api.edge.routes import Handlers
from gpuyard.api.edge.throttle import charge, run_in_thread
from gpuyard.api.edge.upgrades import Link, Upgraded, choose_protocol, read_key
from gpuyard.api.handlers.streams import LOOK_S_MAX, LOOK_S_MIN, FollowedJob, end_view, left_out
from gpuyard.api.messages.frames import UNFIT, Asked, ClientMessages, Refusal
from gpuyard.control.access.people import Person
from gpuyard.control.refusals import Forbidden
from gpuyard.control.replica.labels import Label, parse_label
from gpuyard.control.serve import Yard
from gpuyard.engines.contract import EngineError, HasTerminals, LinkEnd, Permanent, TerminalLink
from gpuyard.engines.node.visits import frames
from gpuyard.errors import YardError
from gpuyard.log_lines import person_extra
from gpuyard.model import AttemptState, JobState
from gpuyard.wire import endpoints
from gpuyard.wire.endpoints import Action
from gpuyard.wire.replies.jobs import OneJob

_log = logging.getLogger(__name__)

HELLO_S = 20.0
"""How long a client may take to say what it wants."""
KEEPER_S = 5.0
"""How long a keeper may take to be there, for a job that runs."""
KEEPER_LOOK_S = 0.02
PIECE_BYTES = 64 * 1024
TURN_S = 0.0001
"""What passing on a message costs, about."""
_WAYS_IN = {
    "attach": "attach",
    "shell": "shell",
    "forward": "forward",
    "read": "cp, out of the job",
    "write": "cp, into the job",
    "run": "shell, for a command",
    "signal": "a signal",
}
"""By what a client asks for, what the audit trail says of it."""
_ONCE = frozenset({"forward", "read", "write", "run", "signal"})
"""What is not begun once more where it was cut off: half a copy, a command."""
_AGAIN_S = 600.0
"""A page of a notebook is many connections: the same way into a job is written down once in this time."""
_NOTED_MAX = 10_000
_ABOUT_RUNNING = frozenset({JobState.RUNNING.value, JobState.SUSPENDED.value})


def handlers(yard: Yard) -> Handlers:
    """Terminals."""
    return {endpoints.TERMINAL: _Terminals(yard).terminal}


class _Refused(Exception):
    """Why a client does not get what it asked for."""


class _Terminals:
    """Handlers."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._noted: dict[tuple[str, int, int, str], float] = {}
        """When which person was last noted for which attempt, by which way."""

    async def terminal(self, request: Request, id: str) -> Response:
        """The job's terminal, a shell, a port or files, over a WebSocket."""
        label = parse_label(id)
        pulse: AsyncNotifier = request.app.state.pulse
        streams: OpenStreams = request.app.state.streams
        stream = await streams.open(request, Action.ENTER_JOB, lambda person: self._check(label, person))
        key = read_key(request)

        async def work(link: Link) -> None:
            await self._serve(link, pulse, stream, label)

        return Upgraded(key, work, ClientMessages().take, choose_protocol(request))

    def _check(self, label: Label, person: Person) -> None:
        """Raise why a person may not enter a job."""
        _job, _attempt, owner, tenant = self._yard.views.attempt(label, person.sight)
        if not person.may(Action.ENTER_JOB, tenant, owner):
            raise Forbidden(
                f"job {label} is {owner}'s",
                "Only its owner and an admin may enter it: what is done there is done as the owner.",
            )

    async def _serve(self, link: Link, pulse: AsyncNotifier, stream: OpenStream, label: Label) -> None:
        visited = asyncio.ensure_future(self._visited(link, pulse, stream, label))
        closed = asyncio.ensure_future(stream.closed.wait())
        try:
            await asyncio.wait({visited, closed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (visited, closed):
                each.cancel()
        await asyncio.wait({visited})
        told = visited.result() if not visited.cancelled() else None
        if link.fault is not None:
            told = link.fault
        more = {}
        if stream.why is not None:
            told, more = Refusal(UNFIT, stream.why.detail, stream.why.hint), {"closed": True}
        if told is not None:
            news = {"detail": told.detail, "hint": told.hint, **more}
            await link.tell(_news("error", news), told.code, told.detail)

    async def _visited(
        self, link: Link, pulse: AsyncNotifier, stream: OpenStream, label: Label
    ) -> Refusal | None:
        """Do what the client asks for, to its end; why that could not be done, if so."""
        try:
            async with asyncio.timeout(HELLO_S):
                asked: Asked | None = await link.receive()
        except TimeoutError:
            return Refusal(
                UNFIT, f"the first message, which names the request, did not arrive within {HELLO_S:g} s"
            )
        try:
            if asked is not None:
                await _Visit(self._yard, link, pulse, stream, label, asked, self._note).run()
        except (_Refused, YardError, EngineError) as error:
            return Refusal(NORMAL, str(error), getattr(error, "hint", ""))
        return None

    async def _note(self, person: Person, job_id: int, attempt: int, do: str) -> None:
        """Write down that a person comes into a job, before they do."""
        if do not in _WAYS_IN:
            # To learn of the job's end is no way in.
            return
        what = (person.signature, job_id, attempt, do)
        now = time.monotonic()
        if now < self._noted.get(what, -_AGAIN_S) + _AGAIN_S:
            return
        _log.info("%s: %s, job %s", person.name, _WAYS_IN[do], job_id, extra=person_extra(person.name))
        await asyncio.wrap_future(self._yard.requests.enter(person, job_id, _WAYS_IN[do]))
        if len(self._noted) >= _NOTED_MAX:
            self._noted.clear()
        self._noted[what] = now


def _news(name: str, data: Any) -> str:
    return json.dumps({"event": name, "data": data})


class _Visit:
    """One client, from its first message to its last."""

    def __init__(
        self,
        yard: Yard,
        link: Link,
        pulse: AsyncNotifier,
        stream: OpenStream,
        label: Label,
        asked: Asked,
        note: Callable[[Person, int, int, str], Awaitable[None]],
    ) -> None:
        self._yard, self._link, self._pulse, self._stream, self._label = yard, link, pulse, stream, label
        self._asked, self._note = asked.said(), note
        self._own = asked.do == "attach" and asked.session in ("", frames.OWN)
        """Whether it is the job's own terminal: then the job's start and its end are waited for."""
        self._begun = False
        """Whether the keeper has begun with what was asked for."""
        self._attempt = 0
        self._seen = asked.seen

    async def run(self) -> None:
        """Wait for the job, connect the client with its keeper, and at last say how the job ended."""
        stands, look_s, waited_s = FollowedJob(self._yard), LOOK_S_MIN, 0.0
        while not self._pulse.closed and not self._link.gone.is_set():
            view = await run_in_thread(self._yard.views.brief, self._label)
            if self._attempt and view["attempts"] > self._attempt:
                self._seen, waited_s = 0, 0.0
            self._attempt = view["attempts"]
            if view["ended_ms"] is not None:
                await self._end(view)
                return
            told = await stands.news(view) if self._own else None
            if told:
                await self._link.send(_news("standing", told))
            if view["state"] in _ABOUT_RUNNING:
                keeper = await run_in_thread(self._reach, view)
                if keeper is not None:
                    waited_s = 0.0
                    assert self._stream.person is not None, "a stream is open for somebody"
                    await self._note(self._stream.person, view["id"], self._attempt, self._asked["do"])
                    if await self._relay(keeper, view) and not self._own:
                        return
                    if self._begun and self._asked["do"] in _ONCE:
                        raise _Refused(f"this was cut off: job {self._label} has ended, or is about to")
                elif not self._own and waited_s > KEEPER_S:
                    raise _Refused(await run_in_thread(self._unanswered))
                look_s = KEEPER_LOOK_S if waited_s < KEEPER_S else LOOK_S_MAX
            elif not self._own:
                raise _Refused(
                    f"job {self._label} is {view['state']}: there is nothing to enter until it runs"
                )
            await self._pause(look_s)
            waited_s += look_s
            look_s = min(LOOK_S_MAX, 1.5 * look_s)

    def _unanswered(self) -> str:
        """Why nobody answers inside a job that has room."""
        view = self._yard.views.job(self._label)
        if "array" not in view and view["attempt_state"] == AttemptState.STARTING.value:
            why = f": {view['reason']}" if view["reason"] else ""
            return f"job {self._label} is STARTING{why}; there is nothing to enter until it runs"
        return (
            f"what runs job {self._label} has not answered in {KEEPER_S:g} s: "
            "its machine is busy, or it was started by an earlier release; try again"
        )

    def _reach(self, view: OneJob) -> TerminalLink | None:
        engine, key = self._yard.attempts.at(view, view["attempts"])
        if not isinstance(engine, HasTerminals):
            raise _Refused(f"job {self._label} runs where there are no terminals")
        try:
            return engine.terminal(key, own=self._own)
        except Permanent as error:
            raise _Refused(f"job {self._label} cannot be entered: {error}") from error

    async def _pause(self, s: float) -> None:
        """Until something has happened, the client is gone, or the time is up."""
        news = asyncio.ensure_future(self._pulse.next(s))
        gone = asyncio.ensure_future(self._link.gone.wait())
        await asyncio.wait((news, gone), return_when=asyncio.FIRST_COMPLETED)
        for each in (news, gone):
            each.cancel()

    async def _end(self, view: OneJob) -> None:
        """What the client has not seen yet, from the log, and how the job ended."""
        if not self._own:
            raise _Refused(f"job {self._label} has ended")
        cursor, ended = str(self._seen or 0), False
        unseen = self._seen is not None and self._attempt
        at = await run_in_thread(self._yard.attempts.at, view, self._attempt) if unseen else None
        while at is not None and not ended and not self._link.gone.is_set():
            piece = await run_in_thread(at.engine.log, at.key, "stdout", cursor, PIECE_BYTES)
            if content := piece.content or left_out(piece.left_out):
                await self._link.send(frames.DATA + content)
            cursor, ended = piece.after, not content
        await self._link.send(_news("end", end_view(view)))

    async def _relay(self, job: TerminalLink, view: OneJob) -> bool:
        """Pass on both ways; whether the session has ended, and not only the link."""
        down = asyncio.ensure_future(self._down(job))
        others = [asyncio.ensure_future(each) for each in (self._up(job), self._link.gone.wait())]
        try:
            await asyncio.wait((down, *others), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (down, *others):
                each.cancel()
            await self._leave(job, view)
        ended = down.done() and not down.cancelled() and down.exception() is None
        return ended and down.result() is not LinkEnd.LOST

    async def _leave(self, job: TerminalLink, view: OneJob) -> None:
        """Let go of the job. What runs in it for a person without a right to it goes with them."""
        if self._stream.why is None:
            await job.close()
        elif self._asked["do"] == "shell":
            # The name by which it would be found has not come yet.
            with suppress(TimeoutError):
                async with asyncio.timeout(KEEPER_S):
                    await job.send(frames.END)
            await job.close()
        else:
            # What they have sent and nobody has read is for nobody.
            await job.close(drop=True)
            if self._asked["do"] == "attach" and not self._own:
                await self._hang_up(view)

    async def _hang_up(self, view: OneJob) -> None:
        """End a shell. By a link of its own: over the other one it would come behind what the shell does not read."""
        job = await run_in_thread(self._reach, view)
        if job is not None:
            asked = {"do": "attach", "session": self._asked["session"], "seen": self._seen}
            with suppress(TimeoutError):
                async with asyncio.timeout(KEEPER_S):
                    await job.send(frames.HELLO, json.dumps(asked).encode())
                    await job.send(frames.END)
            await job.close()

    async def _down(self, job: TerminalLink) -> LinkEnd:
        """What comes from the job, up to the end of the link; how that was."""
        pace = self._link.pace()
        while True:
            await pace.keep()
            kind, content, end = await job.receive()
            if end is LinkEnd.LOST:
                return end
            charge(TURN_S)
            if kind == frames.HELLO:
                told = json.loads(content)
                self._begun, self._seen = True, told.get("offset")
                # A shell that was opened is found again by its name.
                if told.get("session", frames.OWN) != frames.OWN:
                    self._asked = {**self._asked, "do": "attach", "session": told["session"]}
            elif kind == frames.DATA and self._seen is not None:
                self._seen += len(content)
            await self._link.send(kind + content)
            if end is not None:
                return end

    async def _up(self, job: TerminalLink) -> None:
        """What the client says, what it wants first."""
        await job.send(frames.HELLO, json.dumps({**self._asked, "seen": self._seen}).encode())
        while (frame := await self._link.receive()) is not None:
            charge(TURN_S)
            await job.send(*frame)
