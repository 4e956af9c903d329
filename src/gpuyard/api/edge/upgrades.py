"""An answer that makes a WebSocket of its connection.

A request for one is a request like any other: it has passed the gate, its origin is ours, its asker is known and has
the right, and what refuses it is an answer of HTTP. Only then the connection is taken over from the HTTP server.
"""

import asyncio
import select
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from fastapi import Request, Response

from gpuyard.api.connecting.websocket import (
    BINARY,
    CLOSE,
    NORMAL,
    NOT_TEXT,
    PING,
    PONG,
    TEXT,
    BadFrame,
    Unframer,
    answer_key,
    closing_content,
    make_frame,
)
from gpuyard.api.edge.throttle import STRETCH_S, Pace, run_metered
from gpuyard.api.messages.frames import Refusal
from gpuyard.api.messages.problems import Problem
from gpuyard.engines.machine.keeper_link import STALLED_S, let_go

TAKE_OVER = "gpuyard.take-over"
"""In the scope of a request: a call that gives the connection away, as a reader and a writer."""
_READ_BYTES = 64 * 1024
_VERSION = "13"
_PROTOCOL = "yard"
"""What a page of the console offers beside its key, and is answered with: a browser hangs up without an answer."""
_WAITING_MAX = 32
"""Messages that have come and are not seen to: then the client has to wait."""


class LinkLimits(NamedTuple):
    """How long the other end of a connection is waited for."""

    last_s: float = 1.0
    """How long a client may take to be told why the connection ends."""
    stalled_s: float = STALLED_S
    """How long the other side of a connection that is to close may take nothing of what is left for it."""
    stuck_s: float = 5.0
    """How long what a client sent last may be on its way into a job after it has gone, without any progress."""
    stretch_s: float = STRETCH_S
    """How long messages that have come already are seen to before others have their turn."""


LIMITS = LinkLimits()

Take = Callable[[bytes | str], Any]
"""Makes of a message what is meant by it, or raises `Refusal`."""


def read_key(request: Request) -> str:
    """The key of a request for a WebSocket; `Problem`: it is none."""
    headers = request.headers
    key = headers.get("sec-websocket-key", "")
    if headers.get("upgrade", "").lower() != "websocket" or not key or TAKE_OVER not in request.scope:
        raise Problem(
            426,
            "this is served only over a WebSocket",
            "`yard attach`, `yard shell`, `yard forward` and `yard cp` open one.",
            headers={"Upgrade": "websocket", "Sec-WebSocket-Version": _VERSION},
        )
    if headers.get("sec-websocket-version") != _VERSION:
        raise Problem(
            426,
            f"this is version {_VERSION} of WebSocket",
            headers={"Upgrade": "websocket", "Sec-WebSocket-Version": _VERSION},
        )
    return key


def choose_protocol(request: Request) -> str:
    """The protocol that the client offered and that is spoken; empty: it offered none."""
    offered = request.headers.get("sec-websocket-protocol", "").split(",")
    return _PROTOCOL if _PROTOCOL in [each.strip() for each in offered] else ""


def _hung_up(writer: asyncio.StreamWriter) -> bool:
    """Whether the other end has closed its connection, though not all of what it sent was read."""
    if writer.is_closing():
        return True
    poll = select.poll()
    poll.register(writer.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


class Link:
    """The server's end of a WebSocket."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        take: Take,
        limits: LinkLimits = LIMITS,
    ) -> None:
        self._limits = limits
        self._reader, self._writer, self._take = reader, writer, take
        self._inbox: asyncio.Queue[Any] = asyncio.Queue(_WAITING_MAX)
        self.gone = asyncio.Event()
        """Set when no more of the client is read: it is gone, or sent what it must not."""
        self.fault: Refusal | None = None
        """What it must not have sent."""
        self._close = closing_content(NORMAL)
        self._reads = asyncio.get_running_loop().create_task(run_metered(self._read))

    async def _read(self) -> None:
        try:
            await self._take_in()
        except Refusal as fault:
            self.fault = fault
        except UnicodeDecodeError:
            self.fault = Refusal(NOT_TEXT, "a message of text is not UTF-8")
        except BadFrame as error:
            self.fault = Refusal(error.code, str(error))
        except OSError:
            # The client has gone without a word.
            pass
        finally:
            self.gone.set()
        await self._inbox.put(None)

    async def _take_in(self) -> None:
        """All that the client sends, until it hangs up."""
        unframer, pace = Unframer(masked=True), self.pace()
        while data := await self._reader.read(_READ_BYTES):
            for kind, content in unframer.take(data):
                if kind == CLOSE:
                    return
                if kind == PING:
                    self._writer.write(make_frame(PONG, content))
                    # A client that takes no answers is not read either.
                    await self._writer.drain()
                elif kind in (BINARY, TEXT):
                    await self._put(self._take(content if kind == BINARY else content.decode()))
                await pace.keep()

    async def _put(self, message: Any) -> None:
        """Hand on a message. While none is seen to, nothing is read, and only the socket knows that the client went."""
        with suppress(asyncio.QueueFull):
            self._inbox.put_nowait(message)
            return
        put = asyncio.ensure_future(self._inbox.put(message))
        try:
            while not (await asyncio.wait({put}, timeout=self._limits.stuck_s))[0]:
                if _hung_up(self._writer):
                    raise ConnectionResetError("the client has gone, and nobody takes what it sent")
        finally:
            put.cancel()

    def pace(self) -> Pace:
        """The pace of work on messages, in either direction."""
        return Pace(self._limits.stretch_s)

    async def receive(self) -> Any:
        """The next message, as it was taken; None: no more come."""
        return await self._inbox.get()

    async def send(self, content: bytes | str) -> None:
        """Send a message, and wait while the client takes too few of them."""
        if self.gone.is_set():
            return
        kind, data = (TEXT, content.encode()) if isinstance(content, str) else (BINARY, content)
        self._writer.write(make_frame(kind, data))
        try:
            await self._writer.drain()
        except OSError:
            self.gone.set()

    async def tell(self, last: str, code: int, reason: str) -> None:
        """Send a last message, and say at the close why it is one. A client that takes nothing is not waited for."""
        self._close = closing_content(code, reason)
        # A connection that the client has closed takes nothing more.
        with suppress(OSError, RuntimeError, TimeoutError):
            self._writer.write(make_frame(TEXT, last.encode()))
            async with asyncio.timeout(self._limits.last_s):
                await self._writer.drain()

    async def close(self) -> None:
        """Say goodbye and hang up."""
        self._reads.cancel()
        with suppress(OSError, RuntimeError, TimeoutError):
            self._writer.write(make_frame(CLOSE, self._close))
            if self.fault is not None:
                # What lies here unread when the connection goes would keep the client from reading why it goes.
                async with asyncio.timeout(self._limits.last_s):
                    while await self._reader.read(_READ_BYTES):
                        pass
        await let_go(self._writer, self._limits.stalled_s)


class Upgraded(Response):
    """The answer: from here on the connection is a WebSocket, for as long as the work on it lasts."""

    def __init__(
        self, key: str, work: Callable[[Link], Awaitable[None]], take: Take, protocol: str = ""
    ) -> None:
        super().__init__(status_code=101)
        self._key, self._protocol = key, protocol
        self._work, self._take = work, take

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Take the connection over, and work."""
        reader, writer = scope[TAKE_OVER]()
        head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        if self._protocol:
            head += f"Sec-WebSocket-Protocol: {self._protocol}\r\n"
        writer.write(f"{head}Sec-WebSocket-Accept: {answer_key(self._key)}\r\n\r\n".encode())
        # The HTTP server sends nothing any more; the layers in between learn that the request is answered.
        await send({"type": "http.response.start", "status": 101, "headers": []})
        link = Link(reader, writer, self._take)
        try:
            await self._work(link)
        finally:
            await link.close()
