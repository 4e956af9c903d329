"""How the client speaks with a server: where it is, what goes over the wire, and what a refusal becomes.

The groups of calls that make up `Client` build on this one class.
"""

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gpuyard.api.connecting.finding import find, sockets_of
from gpuyard.api.connecting.http import BadAnswer, Connection, Head
from gpuyard.errors import BadInput, YardError
from gpuyard.wire.endpoints import Endpoint

TIMEOUT_S = 60.0
PATIENCE_S = 10.0
"""How long a lost connection is tried to be made again."""
FOLLOW_PATIENCE_S = 30.0
"""The same for a client that follows a job: a yard that is started again takes seconds, and the job goes on."""
FIRST_PAUSE_S = 0.05
_STREAM_TIMEOUT_S = 60.0
"""The server says something at least every 15 seconds."""


class NoServer(YardError):
    """No server answers."""

    exit_code = 4


class Refused(YardError):
    """The server said no."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(
            str(body.get("detail") or body.get("title") or "refused"), str(body.get("hint") or "")
        )
        self.status = status
        self.body = body
        self.exit_code = 2 if 400 <= status < 500 else 1


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
                    "the token holds a line break, a blank or a sign that no token has",
                    "Copy it whole and alone: it begins with yard_ and is one word.",
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
        head, content = self._exchange(endpoint.method, endpoint.address(**values), sent, headers or {})
        if head.status >= 400:
            raise _refused(head, content)
        return json.loads(content)

    def _piece_of_log(self, path: str) -> tuple[bytes, int]:
        """A piece of a log, and the offset at which to read on; -1: the server does not say."""
        head, content = self._exchange("GET", path, None, {})
        if head.status >= 400:
            raise _refused(head, content)
        return content, int(head.headers.get("x-next-offset", "-1"))

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
                    raise _nobody(self._address, error) from error
                time.sleep(pause_s)
                pause_s = min(1.0, 2 * pause_s)

    def _moved(self) -> bool:
        """Whether another server of this yard is there, on this machine; it is the one to ask from now on."""
        others = [each for each in sockets_of(self._data) if each != self._address] if self._local else []
        if others:
            self._address = others[0]
        return bool(others)

    def _upgraded(self, path: str) -> tuple[socket.socket, bytes]:
        """A connection of its own that is a WebSocket from now on, and what has come of it already."""
        from gpuyard.api.connecting.websocket import accepted  # noqa: PLC0415 (few commands need it)

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
                raise _refused(head, connection.body(head))
            if head.headers.get("sec-websocket-accept") != accepted(key):
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
                raise _refused(head, connection.body(head))
            buffer = b""
            for piece in connection.pieces(head):
                buffer += piece
                while b"\n\n" in buffer:
                    block, _, buffer = buffer.partition(b"\n\n")
                    fields = [line.partition(b": ") for line in block.split(b"\n")]
                    found = {name: value for name, _, value in fields if name}
                    if b"data" in found:
                        yield found.get(b"event", b"message").decode(), json.loads(found[b"data"])
        finally:
            connection.close()


def _refused(head: Head, content: bytes) -> Refused:
    with suppress(ValueError):
        body = json.loads(content)
        if isinstance(body, dict):
            return Refused(head.status, body)
    return Refused(head.status, {"detail": f"the server answered {head.status}"})


def _nobody(address: tuple[str, int] | str, error: OSError) -> NoServer:
    where = address if isinstance(address, str) else f"{address[0]}:{address[1]}"
    if isinstance(address, str) and isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return NoServer("no yard is running here: start one with `yard up -d`")
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
