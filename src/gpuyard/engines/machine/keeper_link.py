"""A terminal's link where it is a connection to a keeper on this machine (`engines/node/visits`)."""

import asyncio
import math
import socket
from contextlib import suppress

from gpuyard.engines.contract import LinkEnd, LinkFrame
from gpuyard.engines.node.visits import frames

STALLED_S = 10.0
"""How long the other side of a connection that is to close may take nothing of what is left for it."""
_ENDS = {frames.EXIT: LinkEnd.DONE, frames.ERROR: LinkEnd.REFUSED}


class KeeperLink:
    """Over a connected socket, which is its own from here on."""

    def __init__(self, keeper: socket.socket) -> None:
        self._keeper = keeper
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._opening = asyncio.Lock()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with self._opening:
            if self._streams is None:
                self._keeper.setblocking(False)
                most = frames.FRAME_BYTES_MAX
                self._streams = await asyncio.open_unix_connection(sock=self._keeper, limit=most)
            return self._streams

    async def send(self, kind: bytes, content: bytes = b"") -> None:
        """Pass it on, at the pace of the keeper."""
        with suppress(OSError):
            _reader, writer = await self._open()
            writer.write(frames.make_frame(kind, content))
            await writer.drain()

    async def receive(self) -> LinkFrame:
        """What the keeper says next. That it has gone is said for it."""
        try:
            reader, _writer = await self._open()
            kind, size = frames.HEAD.unpack(await reader.readexactly(frames.HEAD.size))
            return LinkFrame(kind, await reader.readexactly(size), _ENDS.get(kind))
        except (asyncio.IncompleteReadError, OSError):
            return LinkFrame(b"", b"", LinkEnd.LOST)

    async def close(self, *, drop: bool = False) -> None:
        """Let go of the keeper."""
        if self._streams is None:
            self._keeper.close()
        elif drop:
            self._streams[1].transport.abort()
        else:
            await let_go(self._streams[1])


async def let_go(writer: asyncio.StreamWriter, stalled_s: float = STALLED_S) -> None:
    """Close a connection once the other side has taken what is left for it, or takes nothing of it any more."""
    transport = writer.transport
    with suppress(OSError, RuntimeError):
        writer.close()
    closed = asyncio.gather(writer.wait_closed(), return_exceptions=True)
    left, before = transport.get_write_buffer_size(), math.inf
    try:
        while not closed.done() and left < before:
            await asyncio.wait({closed}, timeout=stalled_s)
            left, before = transport.get_write_buffer_size(), left
    finally:
        if not closed.done():
            transport.abort()
