"""An answer that makes a WebSocket of its connection.

A request for one is a request like any other: it has passed the gate, its origin is ours, its asker is known and has
the right, and what refuses it is an answer of HTTP. Only then the connection is taken over from the HTTP server.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from fastapi import Request, Response

from gpuyard.api.connecting.websocket import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    BadFrame,
    Unframer,
    accepted,
    framed,
)
from gpuyard.api.messages.problems import Problem

TAKE_OVER = "gpuyard.take-over"
"""In the scope of a request: a call that gives the connection away, as a reader and a writer."""
_READ_BYTES = 64 * 1024
_VERSION = "13"
_PROTOCOL = "yard"
"""What a page of the console offers beside its key, and is answered with: a browser hangs up without an answer."""
_WAITING_MAX = 32
"""Messages that have come and are not seen to: then the client has to wait."""


def key_of(request: Request) -> str:
    """The key of a request for a WebSocket; `Problem`: it is none."""
    headers = request.headers
    key = headers.get("sec-websocket-key", "")
    if headers.get("upgrade", "").lower() != "websocket" or not key or TAKE_OVER not in request.scope:
        raise Problem(
            426,
            "this is served over a WebSocket alone",
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


def protocol_of(request: Request) -> str:
    """The protocol that the client offered and that is spoken; empty: it offered none."""
    offered = request.headers.get("sec-websocket-protocol", "").split(",")
    return _PROTOCOL if _PROTOCOL in [each.strip() for each in offered] else ""


class Link:
    """The server's end of a WebSocket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._inbox: asyncio.Queue[bytes | str] = asyncio.Queue(_WAITING_MAX)
        self.gone = asyncio.Event()
        """Set when the client is gone."""
        self._reads = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        unframer = Unframer(masked=True)
        try:
            while data := await self._reader.read(_READ_BYTES):
                for kind, content in unframer.take(data):
                    if kind == CLOSE:
                        return
                    if kind == PING:
                        self._writer.write(framed(PONG, content))
                    elif kind == BINARY:
                        await self._inbox.put(content)
                    elif kind == TEXT:
                        await self._inbox.put(content.decode(errors="replace"))
        except (OSError, BadFrame):
            # Whatever it was that came, no more of it is read.
            pass
        finally:
            self.gone.set()

    async def receive(self) -> bytes | str:
        """The next message. It may never come: wait for `gone` too."""
        return await self._inbox.get()

    async def send(self, content: bytes | str) -> None:
        """Send a message, and wait while the client takes too few of them."""
        if self.gone.is_set():
            return
        kind, data = (TEXT, content.encode()) if isinstance(content, str) else (BINARY, content)
        self._writer.write(framed(kind, data))
        try:
            await self._writer.drain()
        except OSError:
            self.gone.set()

    async def close(self) -> None:
        """Say goodbye and hang up."""
        self._reads.cancel()
        with suppress(OSError, RuntimeError):
            self._writer.write(framed(CLOSE, (1000).to_bytes(2, "big")))
            self._writer.close()


class Upgraded(Response):
    """The answer: from here on the connection is a WebSocket, for as long as the work on it lasts."""

    def __init__(self, key: str, work: Callable[[Link], Awaitable[None]], protocol: str = "") -> None:
        super().__init__(status_code=101)
        self._key, self._protocol = key, protocol
        self._work = work

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Take the connection over, and work."""
        reader, writer = scope[TAKE_OVER]()
        head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        if self._protocol:
            head += f"Sec-WebSocket-Protocol: {self._protocol}\r\n"
        writer.write(f"{head}Sec-WebSocket-Accept: {accepted(self._key)}\r\n\r\n".encode())
        # The HTTP server sends nothing any more; the layers in between learn that the request is answered.
        await send({"type": "http.response.start", "status": 101, "headers": []})
        link = Link(reader, writer)
        try:
            await self._work(link)
        finally:
            await link.close()
