"""Limits for a connection before its user is known: bytes of a head, time, and how many there are.

uvicorn limits none of these for the parser that is used here: a head without an end would fill the memory, and idle
connections would use up the descriptors that the loop and other requests need.
"""

import asyncio
import logging
import math
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gpuyard.api.edge.peers import PEER, find_peer
from gpuyard.api.edge.unread import UNSENT
from gpuyard.api.edge.upgrades import TAKE_OVER
from gpuyard.errors import error_text

_log = logging.getLogger(__name__)
_wire_log = logging.getLogger(f"{__name__}.wire")
"""Of uvicorn, which would write a line for whatever a stranger sends that is no HTTP: only its own failures."""
_wire_log.setLevel(logging.ERROR)

HEAD_BYTES_MAX = 64 * 1024
"""Bytes of a head, besides the last read of it."""
HEADERS_MAX = 100
PIPELINED_MAX = 16
"""Requests of one connection that have come before the one ahead of them is answered. A read of the socket may hold
thousands, which are all taken apart at once; programs that ask again wait for the answer first."""
HANDSHAKE_S = 10
RESERVE = 512
"""Descriptors for the loop, the store and the engine."""
KEEPALIVE = {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 15, socket.TCP_KEEPCNT: 4}
"""After a minute of silence the other machine is asked whether it is there, four times."""
ALONE_MAX = 512
"""Connections of one user of this machine, or from one address."""
BACKLOG = 256
"""Connections that wait to be taken. Beyond them the kernel lets a user of this machine wait: a longer line would be a
longer wait for everybody behind a user that floods it."""
UNSENT_BYTES = 128 * 1024
"""What the system takes of an answer before the client does: it takes megabytes by itself, which nobody counts."""
TAKE_S = 0.002
"""How long connections are taken before the loop does something else."""
WORDS_AT_ONCE = 4
"""Connections that are told why they are turned away, of those taken at once. Whatever asks the kernel something lets
other threads go first for a moment, and in a flood those moments add up."""
BEAT_S = 0.004
SERVED_A_BEAT = 2
"""New connections of one user or address that are served in a beat: 500 in a second; the others wait in their line."""
FULL_S = 1.0
"""How long a door stays closed when the machine has no descriptor left."""


class RequestTimes(NamedTuple):
    """How long a request may take to come."""

    head_s: float = 20.0
    body_s: float = 60.0
    take_s: float = 60.0
    """How long a whole answer is held for a client that takes nothing of it."""
    look_s: float = 2.0
    """How often to look for connections that are out of time."""


TIMES = RequestTimes()


class ConnectionCounts:
    """The connections of one server, counted."""

    def __init__(self, descriptors: int, alone_max: int = ALONE_MAX) -> None:
        self._in_all_max = max(64, descriptors - RESERVE)
        # A quarter is reserved for the users of this machine.
        self._remote_max = self._in_all_max * 3 // 4
        self._alone_max = min(alone_max, self._in_all_max // 2)
        self._from: dict[str, int] = {}
        self._local = self._remote = 0

    def enter(self, whence: str, *, local: bool, bound: bool) -> str:
        """Count a connection, or say why it is one too many. `bound`: whether its user is held to their share."""
        mine = self._from.get(whence, 0)
        if bound and mine >= self._alone_max:
            return f"{whence} has {mine} connections already"
        if self._local + self._remote >= self._in_all_max or (not local and self._remote >= self._remote_max):
            return "the yard has as many connections as it can serve"
        self._from[whence] = mine + 1
        self._local += local
        self._remote += not local
        return ""

    def leave(self, whence: str, *, local: bool) -> None:
        """It is closed."""
        left = self._from[whence] - 1
        if left:
            self._from[whence] = left
        else:
            del self._from[whence]
        self._local -= local
        self._remote -= not local


class TooMuch(Exception):
    """The head of a request has no end in sight."""


class PeerProtocol(HttpToolsProtocol):
    """HTTP within bounds, with the user at the other end of a Unix socket in the scope of every request."""

    guest: "CountedConnection"
    times = TIMES
    _closed = False
    _taken_over = False
    _until_s = math.inf
    """When what has begun to come must have come."""
    _unread = 0
    """Bytes since the parser last produced anything."""
    _left = 0
    """Bytes of answers that were not taken at the last look."""
    _took_s = 0.0
    """When some were taken, or none were left."""
    _answering: Any = None
    """The request that is being answered; `cycle` is the last one that has come."""

    def connection_made(self, transport: Any) -> None:
        """The connection has been counted at the door; its time runs."""
        super().connection_made(transport)
        self.logger = _wire_log
        self._until_s = self.loop.time() + self.times.head_s

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no longer, and answer nothing more."""
        self.guest.leave()
        self.pipeline.clear()
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)
        # Each refers to the connection: without them its head and body are freed now, and not by the collector.
        self.cycle = self.scope = self._answering = None  # type: ignore[assignment]
        self.headers = []

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        """Read on, unless too many bytes have led to nothing."""
        if self._closed:
            return
        self._unread += len(data)
        super().data_received(data)
        if self._unread > HEAD_BYTES_MAX:
            self._refuse("431 Request Header Fields Too Large", "the head of the request is too long")

    def on_message_begin(self) -> None:
        """A request: its scope is new, and its time runs."""
        super().on_message_begin()
        self._unread = 0
        self._until_s = self.loop.time() + self.times.head_s
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope[TAKE_OVER] = self._take_over
        scope[UNSENT] = self.transport.get_write_buffer_size
        if self.guest.peer is not None:
            scope[PEER] = self.guest.peer

    def on_headers_complete(self) -> None:
        """The head is there; the body may take longer."""
        if len(self.headers) > HEADERS_MAX or len(self.pipeline) >= PIPELINED_MAX:
            # The parser makes a 400 of it.
            raise TooMuch
        self._unread = 0
        self._until_s += self.times.body_s
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is there."""
        self._unread = 0
        self._until_s = math.inf
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """An upgrade is for the handler of the request to take or to leave."""

    def _take_over(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Give the connection to the handler of the request: HTTP is over on it."""
        self._until_s = math.inf
        self._taken_over = True
        self._unset_keepalive_if_required()
        # What the layers above still send is for nobody.
        self.cycle.disconnected = self.cycle.response_complete = True
        reader = asyncio.StreamReader()
        protocol = _TakenOver(reader, self)
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        _notice_death(self.transport.get_extra_info("socket"))
        return reader, asyncio.StreamWriter(self.transport, protocol, reader, self.loop)

    def check_time(self, now_s: float) -> None:
        """Close it if its time is up."""
        if now_s > self._until_s:
            self._refuse("408 Request Timeout", "the request did not come in time")
        left, before = self.transport.get_write_buffer_size(), self._left
        self._left = left
        if not left or not before or left < before or not self._holds_whole_answer():
            self._took_s = now_s
        elif now_s > self._took_s + self.times.take_s:
            self.transport.abort()

    def _holds_whole_answer(self) -> bool:
        """A stream, a terminal or a forwarded port holds a piece only, and may stand still for as long as it likes."""
        answered: Any = self._answering
        if self._taken_over or answered is None:
            return False
        # One that has not begun may wait for the answer before it on this connection to be taken.
        return bool(answered.response_complete or not answered.response_started)

    def _refuse(self, status: str, why: str) -> None:
        if self._closed or self.transport.is_closing():
            return
        self._closed = True
        answered: Any = self.cycle
        if answered is None or answered.response_complete or not answered.response_started:
            self.transport.write(_refusal(status, why))
        self.transport.close()


def _refusal(status: str, why: str) -> bytes:
    text = why.encode("ascii", "replace")
    head = f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {len(text)}"
    return head.encode() + b"\r\nconnection: close\r\n\r\n" + text


class CountedConnection:
    """A connection as it is counted: whose it is, until it is closed."""

    __slots__ = ("_crowd", "_whence", "peer")

    def __init__(self, crowd: ConnectionCounts, whence: str, peer: tuple[int, int] | None) -> None:
        self._crowd = crowd
        self._whence = whence
        self.peer = peer
        """The user at the other end of a Unix socket, as the kernel says."""

    def leave(self) -> None:
        """It is closed; said twice, it counts once."""
        if self._whence:
            self._crowd.leave(self._whence, local=self.peer is not None)
            self._whence = ""


class Acceptor:
    """Takes connections at one listening socket: all that wait, and those beyond the limits for next to nothing.

    The loop's own servers take one connection each time round. Where a round is long, a user that connects again and
    again would keep everybody else waiting in the line. Here such a user waits in a line of their own.
    """

    def __init__(
        self,
        listener: socket.socket,
        crowd: ConnectionCounts,
        protocol: Callable[[], PeerProtocol],
        tls: ssl.SSLContext | None = None,
        peer_of: Callable[[socket.socket], tuple[int, int] | None] = find_peer,
    ) -> None:
        """`peer_of` tells the user and the group of the process at the other end, if it is on this machine."""
        self._listener, self._peer_of = listener, peer_of
        self._crowd = crowd
        self._protocol = protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._coming: set[asyncio.Task[None]] = set()
        self._lines: dict[str, deque[tuple[socket.socket, CountedConnection]]] = {}
        """Connections that were taken and are not served yet, of those that had one served within the last beat."""
        self._closed = False
        listener.setblocking(False)
        if listener.family != socket.AF_UNIX:
            # Connections have it from their listener.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        listener.listen(BACKLOG)
        self._open()

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The one that it listens at."""
        return (self._listener,)

    def close(self) -> None:
        """Take no more connections."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener)
            for line in self._lines.values():
                for connection, guest in line:
                    guest.leave()
                    connection.close()
            self._lines.clear()

    async def wait_closed(self) -> None:
        """Nothing is left to wait for: the connections are the server's."""

    def _open(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener, self._take)

    def _take(self) -> None:
        until_s = self._loop.time() + TAKE_S
        words = WORDS_AT_ONCE
        while self._loop.time() < until_s:
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.warning("no connection can be taken for a moment: %s", error_text(error))
                self._loop.remove_reader(self._listener)
                self._loop.call_later(FULL_S, self._open)
                return
            peer = self._peer_of(connection)
            if peer is None:
                whence, bound = address[0], True
            else:
                whence, bound = f"user {peer[0]}", peer[0] not in (0, os.geteuid())
            refusal = self._crowd.enter(whence, local=peer is not None, bound=bound)
            if refusal:
                _turn_away(connection, refusal if self._tls is None and words > 0 else "")
                words -= 1
                continue
            connection.setblocking(False)
            guest = CountedConnection(self._crowd, whence, peer)
            line = self._lines.get(whence)
            if line is not None:
                line.append((connection, guest))
                continue
            self._begin(connection, guest)
            if bound:
                if not self._lines:
                    self._loop.call_later(BEAT_S, self._beat)
                self._lines[whence] = deque()

    def _begin(self, connection: socket.socket, guest: CountedConnection) -> None:
        coming = self._loop.create_task(self._serve(connection, guest))
        self._coming.add(coming)
        coming.add_done_callback(self._coming.discard)

    def _beat(self) -> None:
        """Begin to serve some of each line."""
        for whence, line in list(self._lines.items()):
            if not line:
                del self._lines[whence]
            for _ in range(min(SERVED_A_BEAT, len(line))):
                self._begin(*line.popleft())
        if self._lines:
            self._loop.call_later(BEAT_S, self._beat)

    async def _serve(self, connection: socket.socket, guest: CountedConnection) -> None:
        def made() -> PeerProtocol:
            protocol = self._protocol()
            protocol.guest = guest
            return protocol

        try:
            await self._loop.connect_accepted_socket(
                made, connection, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S if self._tls else None
            )
        except OSError as error:
            # It hung up, or does not speak TLS.
            _log.debug("a connection came to nothing: %s", error_text(error))
            guest.leave()
            connection.close()


def _turn_away(connection: socket.socket, why: str) -> None:
    """Say why, if it fits, and hang up."""
    with suppress(OSError), connection:
        if why:
            connection.send(_refusal("503 Service Unavailable", why), socket.MSG_DONTWAIT)


class _TakenOver(asyncio.StreamReaderProtocol):
    """A connection that speaks HTTP no longer, and is counted all the same."""

    def __init__(self, reader: asyncio.StreamReader, before: PeerProtocol) -> None:
        super().__init__(reader)
        self._before = before

    def connection_lost(self, exc: Exception | None) -> None:
        """End what goes on here, and then the connection."""
        super().connection_lost(exc)
        self._before.connection_lost(exc)


def _notice_death(connection: Any) -> None:
    """Let the kernel find out that the other machine is gone: a terminal may be silent for days."""
    if connection is not None and connection.family != socket.AF_UNIX:
        with socket.socket(fileno=os.dup(connection.fileno())) as real:
            real.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in KEEPALIVE.items():
                real.setsockopt(socket.IPPROTO_TCP, option, value)


async def look_after(connections: set[Any], look_s: float = TIMES.look_s) -> None:
    """Close connections that are out of time, for as long as the server runs."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(look_s)
        now_s = loop.time()
        for connection in list(connections):
            connection.check_time(now_s)
