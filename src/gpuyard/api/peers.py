"""Who is at the other end: the kernel's word for a Unix socket, the token for TCP.

A thin layer below the API: the protocol class asks the kernel once for each connection, the gate turns what it
learned, or the token, into a person, or answers 401.
"""

import hmac
import os
import socket
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gpuyard.api.problems import Problem
from gpuyard.control.people import Person, person

PEER = "gpuyard.peer"
PERSON = "gpuyard.person"

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/version", "/api/v1/openapi.json"})
"""What anyone may ask who can reach the server at all."""

_known = lru_cache(maxsize=1024)(person)


class PeerProtocol(HttpToolsProtocol):
    """HTTP, with the user at the other end of a Unix socket in the scope of every request."""

    _peer: tuple[int, int] | None = None

    def connection_made(self, transport: Any) -> None:
        """Ask the kernel, once."""
        super().connection_made(transport)
        self._peer = peer_of(transport.get_extra_info("socket"))

    def on_message_begin(self) -> None:
        """A request: its scope is new."""
        super().on_message_begin()
        if self._peer is not None:
            scope: dict[str, Any] = self.scope  # type: ignore[assignment]
            scope[PEER] = self._peer


def peer_of(connection: Any) -> tuple[int, int] | None:
    """User and group of the process at the other end of a Unix socket; None: it is another kind of socket."""
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    # Event loops hand out stand-ins that know little more than their number.
    with socket.socket(fileno=os.dup(connection.fileno())) as real:
        found = real.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, gid = struct.unpack("3i", found)
    return uid, gid


class Gate:
    """Lets in whoever is known, with their name on the request."""

    def __init__(
        self, app: Any, token: str, owner: tuple[int, int], quick: Mapping[tuple[str, str], Any] | None = None
    ) -> None:
        self._app = app
        self._token = token.encode()
        self._owner = owner
        self._quick = quick or {}
        """Applications of their own for a method and a path that are asked for so often that routing them costs."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request, or the server's start and stop."""
        if scope["type"] == "http":
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal.response()(scope, receive, send)
                return
            quick = self._quick.get((scope["method"], scope["path"]))
            if quick is not None:
                await quick(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Any) -> Problem | None:
        if scope["path"] in OPEN_PATHS:
            return None
        peer = scope.get(PEER) or self._by_token(scope["headers"])
        if peer is None:
            return Problem(
                401,
                "the request does not say who asks, or its token is not this yard's",
                "Send `Authorization: Bearer` and the token, which is in the file `token` of the data folder.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        who = _known(*peer)
        if os.geteuid() != 0 and not who.admin:
            return Problem(
                403,
                f"this yard is {_known(os.geteuid(), os.getegid()).name}'s own",
                "Start one with `yard up -d`.",
            )
        scope[PERSON] = who
        return None

    def _by_token(self, headers: list[tuple[bytes, bytes]]) -> tuple[int, int] | None:
        for name, value in headers:
            if name == b"authorization":
                scheme, _, token = value.partition(b" ")
                if scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token):
                    return self._owner
        return None


def asker(scope: Any) -> Person:
    """Who asks."""
    who: Person = scope[PERSON]
    return who
