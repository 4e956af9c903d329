"""How the client speaks with a server: where it is, what goes over the wire, and what a refusal becomes.

The groups of calls that make up `Client` build on `Caller`. Below it is as much of HTTP/1.1 as a client of our own
server needs, over TCP or a Unix socket: the standard library's client takes longer to import than a command has to
answer, and knows no Unix sockets.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gpuyard.api.connecting.finding import answering, find, find_sockets
from gpuyard.control.places import likely_data
from gpuyard.errors import BadInput, YardError
from gpuyard.wire.endpoints import DESCRIPTION, Endpoint

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


TIMEOUT_S = 60.0
PATIENCE_S = 10.0
"""How long a lost connection is tried to be made again."""
FOLLOW_PATIENCE_S = 30.0
"""The same for a client that follows a job: a yard that is started again takes seconds, and the job goes on."""
FIRST_PAUSE_S = 0.05
_STREAM_TIMEOUT_S = 60.0
"""The server says something at least every 15 seconds."""


# -- the client of a server -------------------------------------------------------------------------------------------


class NoServer(YardError):
    """No server answers."""

    exit_code = 4


class StreamClosed(YardError):
    """The server has closed what was open: the right to it was taken away, or the token ended."""

    exit_code = 6

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__(f"the yard closed this: {told.get('detail', '')}", str(told.get("hint") or ""))


class Refused(YardError):
    """The server said no."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(
            str(body.get("detail") or body.get("title") or "refused"), str(body.get("hint") or "")
        )
        self.status = status
        self.body = body
        self.exit_code = 2 if 400 <= status < 500 else 1


_replies_are: list[type[dict[str, Any]]] = [dict]
"""What the objects of replies become: those of programs are plain, as any library takes them."""
_ODD = {
    "detail": "an id or a name is empty or has a / in it, as none has",
    "hint": "Ids are positive numbers such as 17, or 12_3 for a task.",
}
_OLDER = "the server is of an older release than this command"
_UPGRADE = "Upgrade the yard, and start it again with that release: `yard down`, then `yard up -d`."


class OlderServer(YardError, KeyError):
    """A reply lacks a field, as that of a release from before there was one."""

    def __str__(self) -> str:
        # Not as KeyError has it, in quotes.
        return self.message


class _Reply(dict[str, Any]):
    """An object of a reply, for commands."""

    def __missing__(self, key: str) -> Any:
        raise OlderServer(f"{_OLDER}: its reply has no {key!r}", _UPGRADE)


@contextmanager
def telling_older_servers() -> Iterator[None]:
    """While a command runs, a field that a reply lacks is told as that of an older server."""
    _replies_are.append(_Reply)
    try:
        yield
    finally:
        _replies_are.pop()


class Caller:
    """A connection to a yard. Not to be shared between threads."""

    def __init__(
        self,
        server: str = "",
        token: str = "",
        *,
        data: Path | None = None,
        ca: str = "",
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        follow_patience_s: float = FOLLOW_PATIENCE_S,
    ) -> None:
        self._timeout_s = timeout_s
        self._follow_patience_s = follow_patience_s
        self._patience_s = patience_s
        self._connection: Connection | None = None
        self._stream: Connection | None = None
        self._hung_up = False
        place = find(server, token, data, ca)
        self._data = data
        self._local = place.local
        self._address = place.address
        self._tls = place.tls
        self.server = place.url
        self._headers = {"Host": place.host, "Accept": "application/json"}
        if place.token:
            if not place.token.isascii() or not place.token.isprintable() or " " in place.token:
                raise BadInput(
                    "the token holds a line break, a space or a character that no token has",
                    "Copy the whole token and nothing else: it is one word that begins with yard_.",
                )
            self._headers["Authorization"] = f"Bearer {place.token}"

    @property
    def here(self) -> bool:
        """Whether the yard is on this machine: it is asked through its socket, and both see the same files."""
        return isinstance(self._address, str)

    def again(self) -> Self:
        """Another connection to the same place, for another thread."""
        from copy import copy  # noqa: PLC0415 (few commands need it)

        other = copy(self)
        other._connection = other._stream = None
        return other

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def hang_up(self) -> None:
        """End the stream that is read in another thread; the one thing that another thread may ask for."""
        self._hung_up = True
        if self._stream is not None:
            self._stream.shut_down()

    # -- the wire ------------------------------------------------------------------------------------------------

    def _connected(self, timeout_s: float) -> Connection:
        secret = "Authorization" in self._headers
        return Connection(self._address, timeout_s, self._tls, secret=secret)

    def ask_for(
        self,
        endpoint: Endpoint,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **values: Any,
    ) -> Any:
        """The answer of an endpoint; `values` go into its path and its query."""
        sent = None if body is None else json.dumps(body).encode()
        path = endpoint.address(**values)
        head, content = self._exchange(endpoint.method, path, sent, headers or {})
        if head.status >= 400:
            raise _refused(path, head, content)
        return _read(content)

    def _content(self, path: str) -> tuple[Head, bytes]:
        """An answer that is not JSON."""
        head, content = self._exchange("GET", path, None, {})
        if head.status >= 400:
            raise _refused(path, head, content)
        return head, content

    def _piece_of_log(self, path: str) -> tuple[bytes, dict[str, str]]:
        """A piece of a log, and where to read on: an older server knows no cursor, and ignores one."""
        head, content = self._content(path)
        told = {name: head.headers.get(f"x-next-{name}", "") for name in ("cursor", "offset")}
        return content, {name: value for name, value in told.items() if value}

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[Head, bytes]:
        """One request and its answer; again on a new connection if the old one is lost, for a while."""
        sent = {**self._headers, **headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        until_s = time.monotonic() + self._patience_s
        pause_s, tried = FIRST_PAUSE_S, False
        while True:
            try:
                if self._connection is None:
                    self._connection = self._connected(self._timeout_s)
                tried = True
                head = self._connection.send(method, path, sent, body)
                return head, self._connection.body(head)
            except OSError as error:
                self.close()
                # First connection failed: no server. Lost later: retry.
                if not (self._moved() or tried) or time.monotonic() + pause_s > until_s:
                    # A command goes to no yard that it did not mean: it names the other one.
                    others = list(likely_data())[1:] if self._local and self._data is None else []
                    raise _nobody(self._address, error, others) from error
                time.sleep(pause_s)
                pause_s = min(1.0, 2 * pause_s)

    def _moved(self) -> bool:
        """Whether another server of this yard is there, on this machine; it is the one to ask from now on."""
        others = [each for each in find_sockets(self._data) if each != self._address] if self._local else []
        if others:
            self._address = others[0]
        return bool(others)

    def _upgraded(self, path: str) -> tuple[socket.socket, bytes]:
        """A connection of its own that is a WebSocket from now on, and what has come of it already."""
        from gpuyard.api.connecting.websocket import answer_key  # noqa: PLC0415 (few commands need it)

        try:
            connection = self._connected(self._timeout_s)
        except OSError:
            self._moved()
            raise
        try:
            from binascii import b2a_base64  # noqa: PLC0415 (few commands need it)

            key = b2a_base64(os.urandom(16), newline=False).decode()
            headers = {
                **self._headers,
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": key,
            }
            head = connection.send("GET", path, headers, None)
            if head.status != 101:
                raise _refused(path, head, connection.body(head))
            if head.headers.get("sec-websocket-accept") != answer_key(key):
                raise BadAnswer("the server does not speak WebSocket")
            return connection.given_away()
        except BaseException:
            connection.close()
            raise

    def _events(self, path: str, body: bytes | None = None) -> Iterator[tuple[str, Any]]:
        """Server-sent events of a connection of their own."""
        try:
            connection = self._stream = self._connected(_STREAM_TIMEOUT_S)
        except OSError:
            self._moved()
            raise
        try:
            headers = {**self._headers, "Accept": "text/event-stream", "Content-Type": "application/json"}
            head = connection.send("GET" if body is None else "POST", path, headers, body)
            if head.status != 200:
                raise _refused(path, head, connection.body(head))
            buffer = b""
            for piece in connection.pieces(head):
                buffer += piece
                while b"\n\n" in buffer:
                    block, _, buffer = buffer.partition(b"\n\n")
                    fields = [line.partition(b": ") for line in block.split(b"\n")]
                    found = {name: value for name, _, value in fields if name}
                    if b"data" not in found:
                        continue
                    name, data = found.get(b"event", b"message").decode(), _read(found[b"data"])
                    if name == "closed":
                        raise StreamClosed(data)
                    yield name, data
        finally:
            connection.close()


def _read(content: bytes) -> Any:
    try:
        return json.loads(content, object_pairs_hook=_replies_are[-1])
    except ValueError:
        raise YardError(
            "the answer does not come from a yard",
            "Check the address: `yard whoami` shows which one the commands use.",
        ) from None


def _refused(path: str, head: Head, content: bytes) -> Refused:
    with suppress(ValueError):
        body = json.loads(content)
        if isinstance(body, dict):
            if str(body.get("hint")).startswith(DESCRIPTION):
                # No handler had it: the path is of another release, or what was typed made it another one.
                words = path.partition("?")[0]
                odd = "%2F" in words or "//" in words
                body |= _ODD if odd else {"detail": f"{_OLDER}: {body.get('detail')}", "hint": _UPGRADE}
            return Refused(head.status, body)
    return Refused(head.status, {"detail": f"the server answered {head.status}"})


def _nobody(address: tuple[str, int] | str, error: OSError, others: Sequence[Path] = ()) -> NoServer:
    where = address if isinstance(address, str) else f"{address[0]}:{address[1]}"
    if isinstance(address, str) and isinstance(error, FileNotFoundError | ConnectionRefusedError):
        other = answering(others)
        hint = (
            f"The machine's yard answers: YARD_DATA={other} before the command asks that one."
            if other
            else ""
        )
        return NoServer("no yard is running here: start one with `yard up -d`", hint)
    if type(error).__name__ == "SSLCertVerificationError":
        return NoServer(
            f"the certificate of {where} is not trusted: {getattr(error, 'verify_message', error)}",
            "Name the file that signed it: YARD_CA, or `yard login --ca FILE`.",
        )
    if isinstance(error, TimeoutError):
        return NoServer(
            f"the yard at {where} is there and does not answer",
            "It is stopped or overloaded: look at its log, yard.log in its data folder, and at `top`.",
        )
    if getattr(error, "reason", "") == "WRONG_VERSION_NUMBER":
        return NoServer(f"{where} does not speak TLS", "Say http:// instead of https://, or another port.")
    return NoServer(
        f"no yard answers at {where}: {error.strerror or error}", "Is it running? `yard up -d` starts one."
    )
