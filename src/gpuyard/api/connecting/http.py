"""As much of HTTP/1.1 as a client of our own server needs, over TCP or a Unix socket.

The standard library's client takes longer to import than a command has to answer, and knows no Unix sockets.
"""

import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

HEAD_BYTES_MAX = 64 * 1024
PIECE_BYTES = 256 * 1024


class BadAnswer(ConnectionError):
    """The answer is not HTTP, or stopped half-way."""


class Head:
    """Status and headers of an answer, names in lower case."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.headers = status, headers


def _connect(door: socket.socket, path: str, timeout_s: float) -> None:
    """Connect to a socket of this machine. Where too many wait before the server, the kernel keeps a place among them.

    A socket with a time limit of Python's own would be refused at once instead.
    """
    seconds, rest = divmod(int(timeout_s * 1_000_000), 1_000_000)
    limit = seconds.to_bytes(8, sys.byteorder) + rest.to_bytes(8, sys.byteorder)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    try:
        door.connect(path)
    except BlockingIOError:
        raise TimeoutError(f"the server at {path} takes no connections") from None
    door.settimeout(timeout_s)


class Connection:
    """One connection, used for one request after the other."""

    def __init__(
        self,
        address: tuple[str, int] | str,
        timeout_s: float,
        tls: "ssl.SSLContext | None" = None,
        *,
        secret: bool = False,
    ) -> None:
        """`secret`: a token goes over it, which no other user of this machine may read."""
        if isinstance(address, str):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            self._socket = socket.create_connection(address, timeout_s)
        try:
            if isinstance(address, str):
                _connect(self._socket, address, timeout_s)
            else:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if tls is None and secret:
                    from gpuyard.api.connecting.listeners import check_listener  # noqa: PLC0415 (few commands need it)

                    check_listener(self._socket)
                if tls is not None:
                    self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
        except BaseException:
            self._socket.close()
            raise
        self._buffer = b""

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def given_away(self) -> tuple[socket.socket, bytes]:
        """The connection itself, for another protocol, and what has come of that already."""
        self._socket.settimeout(None)
        return self._socket, self._buffer

    def shut_down(self) -> None:
        """Hang up from another thread: a read here finds the end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Head:
        """Ask, and read the answer's head. The body has to be read before the next request."""
        lines = [f"{method} {path} HTTP/1.1", *[f"{name}: {value}" for name, value in headers.items()]]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))
        return self._head()

    def _head(self) -> Head:
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise BadAnswer("the answer's head is too long")
            self._more()
        text, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *rest = text.decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/1.") or not status[:3].isdecimal():
            raise BadAnswer(f"not an HTTP answer: {first[:80]!r}")
        pairs = [line.partition(":") for line in rest]
        head = Head(int(status[:3]), {name.strip().lower(): value.strip() for name, _, value in pairs})
        return self._head() if head.status == 100 else head

    def body(self, head: Head) -> bytes:
        """The whole body."""
        return b"".join(self.pieces(head))

    def pieces(self, head: Head) -> Iterator[bytes]:
        """The body, piece by piece as it comes."""
        if head.headers.get("transfer-encoding", "").lower() == "chunked":
            yield from self._chunks()
            return
        left = int(head.headers.get("content-length", "0"))
        while left:
            if not self._buffer:
                self._more()
            piece, self._buffer = self._buffer[:left], self._buffer[left:]
            left -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while True:
            size = int(self._line().partition(b";")[0], 16)
            if not size:
                while self._line():
                    pass
                return
            while len(self._buffer) < size + 2:
                self._more()
            piece, self._buffer = self._buffer[:size], self._buffer[size + 2 :]
            yield piece

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _more(self) -> None:
        more = self._socket.recv(PIECE_BYTES)
        if not more:
            raise BadAnswer("the server hung up")
        self._buffer += more
