"""Identifies the asker: by the kernel for a Unix socket, by a token for TCP, by a cookie for a browser.

A thin layer below the API: the kernel is asked once for each connection (`connections.py`), a door turns its answer,
or the token, into a person, and the gate lets them in with their name on the request, or answers 401, 403 or 429.
"""

import hmac
import os
import socket
import struct
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Protocol

from gpuyard.api.edge.rates import Rates
from gpuyard.api.edge.throttle import App, Throttle, run_in_thread
from gpuyard.api.messages.problems import Problem, find_problem
from gpuyard.control.access.browsers import BrowserService
from gpuyard.control.access.people import Person, find_person
from gpuyard.control.access.tokens import TokenService, Unknown
from gpuyard.control.refusals import Forbidden
from gpuyard.errors import YardError
from gpuyard.wire.endpoints import (
    ASSET,
    DESCRIPTION,
    ENDPOINTS,
    LOGIN_BROWSER,
    LOGIN_OIDC,
    LOGIN_OIDC_CODE,
    LOGIN_PROVIDER,
    Action,
)

_HERE = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})


class Origins:
    """The names of one server; a web page of another site is refused.

    A browser on this machine reaches the port as its user's own programs do, on behalf of any page that is open in it.
    It says which page (`Origin`), and by which name it found this server (`Host`): a name of another site may have been
    made to point to this machine. No browser comes over the Unix socket.
    """

    def __init__(self, host: str = "") -> None:
        """`host`: the address of this machine alone at which the server listens; empty: any name will do."""
        spelled = f"[{host}]" if ":" in host else host
        self._names = _HERE | {spelled.lower().encode()} if host else frozenset()

    def refusal(self, headers: list[tuple[bytes, bytes]]) -> Problem | None:
        """Why a request over TCP is not served; None: it is."""
        host, origin, forwarded = b"", b"", b""
        for name, value in headers:
            if name == b"host":
                host = value.strip().lower()
            elif name == b"origin":
                origin = value.strip().lower()
            elif name == b"x-forwarded-host":
                forwarded = value.strip().lower()
        if self._names and _without_port(host) not in self._names:
            return Problem(
                421,
                f"this yard serves its own machine, and is not called {_shown(host)}",
                "Call it 127.0.0.1 or localhost; `yard up --auth` is for other names.",
            )
        if origin and (origin.partition(b"://")[2] or b"null") not in (host, forwarded):
            return Problem(
                403,
                f"a page of {_shown(origin)} may not ask this yard",
                "Behind a proxy, let it pass on the header Host, or set X-Forwarded-Host.",
            )
        return None


def _without_port(host: bytes) -> bytes:
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() else host


def _shown(text: bytes) -> str:
    return repr(text[:100].decode("latin-1"))


PEER = "gpuyard.peer"
PERSON = "gpuyard.person"
AGAIN = "gpuyard.again"
"""In the scope of a request: a call that identifies its sender once more, for answers that go on."""
LOGIN_PATHS = frozenset({each.path for each in (LOGIN_OIDC, LOGIN_OIDC_CODE, LOGIN_PROVIDER, LOGIN_BROWSER)})
_ASSETS = ASSET.path.partition("{")[0]

OPEN_PATHS = frozenset({DESCRIPTION, *(each.path for each in ENDPOINTS if each.action is Action.ANYBODY)})
"""Paths that any client may ask for that can reach the server."""

_PEERS_MAX = 1024
_known = lru_cache(maxsize=_PEERS_MAX)(find_person)


def find_peer(connection: Any) -> tuple[int, int] | None:
    """User and group of the process at the other end of a Unix socket; None: it is another kind of socket."""
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    # Event loops hand out stand-ins with little more than a file number.
    with socket.socket(fileno=os.dup(connection.fileno())) as real:
        found = real.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, gid = struct.unpack("3i", found)
    return uid, gid


class Authenticator(Protocol):
    """How people are known."""

    def known(self, scope: Any) -> Person | Problem | None:
        """The asker, or why they are not let in; None: they have to be looked up."""

    async def looked_up(self, scope: Any) -> Person | Problem:
        """The same, from the store."""

    async def again(self, scope: Any) -> Person | Problem:
        """The same later on, with nothing taken from what was known before."""


class LocalAuthenticator:
    """Without `--auth`: users of this machine, and the holder of the one token, who acts as its owner."""

    def __init__(
        self, token: str, owner: tuple[int, int], placed: Callable[[Person], Person] = lambda person: person
    ) -> None:
        """`placed` gives a user the tenants that are theirs."""
        self._token = token.encode()
        self._owner = owner
        self._placed = placed

    def known(self, scope: Any) -> Person | Problem | None:
        """By the socket or the token."""
        peer = scope.get(PEER) or self._by_token(scope["headers"])
        if peer is None:
            return _nobody(
                "the request does not say who asks, or its token is not this yard's",
                "Set YARD_TOKEN to what is in the file `token` of its data folder (in HTTP: `Authorization: Bearer`).",
            )
        person = _known(*peer)
        if os.geteuid() != 0 and not person.admin:
            return Problem(
                403,
                f"this yard is {_known(os.geteuid(), os.getegid()).name}'s own",
                "Start one with `yard up -d`.",
            )
        return self._placed(person)

    async def looked_up(self, scope: Any) -> Person | Problem:
        """Nothing has to be."""
        raise NotImplementedError

    async def again(self, scope: Any) -> Person | Problem:
        """The kernel's word and the token stay what they are; the tenants may be others."""
        found = self.known(scope)
        assert found is not None, "nobody has to be looked up"
        return found

    def _by_token(self, headers: list[tuple[bytes, bytes]]) -> tuple[int, int] | None:
        token = _bearer(headers)
        return self._owner if token is not None and hmac.compare_digest(token, self._token) else None


class TokenAuthenticator:
    """With `--auth`: tokens, and over the socket users of this machine that yard.yaml lists."""

    def __init__(self, token_service: TokenService) -> None:
        self._token_service = token_service
        self._known: dict[tuple[int, int], Person | Problem] = {}

    def forget(self) -> None:
        """Others may be let in from now on."""
        self._known = {}

    def known(self, scope: Any) -> Person | Problem | None:
        """A token looked up a moment ago, or the socket."""
        token = _bearer(scope["headers"])
        if token is not None:
            return self._token_service.remembered(token.decode("latin-1"))
        peer = scope.get(PEER)
        if peer is not None:
            found = self._known.get(peer)
            if found is None:
                if len(self._known) >= _PEERS_MAX:
                    self._known = {}
                found = self._known[peer] = self._peer(*peer)
            return found
        return _nobody(
            "the request does not say who asks",
            "Log in with `yard login`, or send `Authorization: Bearer` and a token.",
        )

    async def again(self, scope: Any) -> Person | Problem:
        """The token from the store, or the socket by the people that are in force now."""
        if _bearer(scope["headers"]) is None and PEER in scope:
            return await run_in_thread(self._peer, *scope[PEER])
        return await self.looked_up(scope)

    def _peer(self, uid: int, gid: int) -> Person | Problem:
        try:
            return self._token_service.directory.local(uid, gid)
        except Forbidden as error:
            return Problem(403, error.message, error.hint)

    async def looked_up(self, scope: Any) -> Person | Problem:
        """The token, as the store has it now. If the store does not answer, the request is refused."""
        text = (_bearer(scope["headers"]) or b"").decode("latin-1")
        try:
            return await run_in_thread(self._token_service.bearer, text)
        except Unknown as error:
            return _nobody(
                error.message, error.hint or "Log in with `yard login`.", 'Bearer error="invalid_token"'
            )
        except YardError as error:
            problem = find_problem(error)
            if problem is None:
                raise
            return problem


Quick = Callable[[str, str], App | None]
"""Finds an application that bypasses routing, by method and path: for requests so frequent that routing costs."""


class AuthMiddleware:
    """Lets known people in, with their name on the request."""

    def __init__(
        self,
        app: Any,
        door: Authenticator,
        quick: Quick | None = None,
        rates: Rates | None = None,
        origins: Origins | None = None,
    ) -> None:
        self._app = app
        self._origins = origins or Origins()
        self._door = door
        self._rates = rates
        self._throttle = Throttle()
        self._quick = quick

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request, or the server's start and stop."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if PEER not in scope:
            foreign = self._origins.refusal(scope["headers"])
            if foreign is not None:
                await self._throttle.stranger(_address(scope), foreign.response(), scope, receive, send)
                return
        found = self._door.known(scope)
        if scope["path"] in OPEN_PATHS or scope["path"].startswith(_ASSETS):
            await self._open(scope, found, receive, send)
            return
        if found is None:
            found = await self._door.looked_up(scope)
        if isinstance(found, Problem):
            await self._throttle.stranger(_address(scope), found.response(), scope, receive, send)
            return
        scope[PERSON] = found
        scope[AGAIN] = partial(self._door.again, scope)
        app = (self._quick and self._quick(scope["method"], scope["path"])) or self._app
        if found.admin:
            await self._throttle.administrator(app, scope, receive, send)
            return
        if self._rates is None:
            await self._throttle.user(found.name, app, scope, receive, send)
            return
        refusal = self._rates.enter(found.name, scope["method"])
        if refusal is not None:
            await refusal.response()(scope, receive, send)
            return
        try:
            await self._throttle.user(found.name, app, scope, receive, send)
        finally:
            self._rates.leave(found.name)

    async def _open(self, scope: Any, found: Person | Problem | None, receive: Any, send: Any) -> None:
        if isinstance(found, Person):
            scope[PERSON] = found
        if self._rates is not None and scope["path"] in LOGIN_PATHS:
            refusal = self._rates.login(_address(scope))
            if refusal is not None:
                await refusal.response()(scope, receive, send)
                return
        if isinstance(found, Person) and found.admin:
            await self._app(scope, receive, send)
        else:
            await self._throttle.stranger(_address(scope), self._app, scope, receive, send)


def _address(scope: Any) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _bearer(headers: list[tuple[bytes, bytes]]) -> bytes | None:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer":
                return token.strip()
    return None


def _nobody(detail: str, hint: str, challenge: str = "Bearer") -> Problem:
    return Problem(401, detail, hint, headers={"WWW-Authenticate": challenge})


def get_asker(scope: Any) -> Person:
    """The asker."""
    person: Person = scope[PERSON]
    return person


def find_asker(scope: Any) -> Person | None:
    """The asker, on a path that needs no login."""
    return scope.get(PERSON)


# -- signed-in browsers ------------------------------------------------------------------------------------------------

KEY_HEADER = "yard-page"
KEY_PROTOCOL = "yard-page."
"""Before the key, among the protocols that a WebSocket offers."""
_SAFE = ("GET", "HEAD", "OPTIONS")


def cookie_name(yard: str) -> str:
    """Browsers send the cookies of one machine to all its ports: each yard has a name of its own."""
    return f"yard_{''.join(filter(str.isalnum, yard))[:16].lower()}"


class BrowserAuthenticator:
    """The door for browsers, before the one for everybody else: by a cookie and the key that the page keeps.

    A request with a token, or over the Unix socket, is not a browser's and goes on to the door behind this one. What
    changes something, or opens a WebSocket, must say by which page it was sent: browsers always do. A page cannot put
    a header of its own on a WebSocket, so the key comes with the protocols that it offers.
    """

    def __init__(self, behind: Authenticator, browsers: BrowserService, yard: str) -> None:
        self._behind = behind
        self._browsers = browsers
        self._cookie = f"{cookie_name(yard)}=".encode()

    def known(self, scope: Any) -> Person | Problem | None:
        """Nobody in a browser is known without a look: a session that has ended is refused at once."""
        if self._cookie_of(scope) is None:
            return self._behind.known(scope)
        changes = scope["method"] not in _SAFE or any([name == b"upgrade" for name, _ in scope["headers"]])
        if changes and not any([name == b"origin" for name, _ in scope["headers"]]):
            return Problem(
                403,
                "the request does not say which page sent it",
                "A program sends `Authorization: Bearer` and a token instead of a browser's cookie.",
            )
        return None

    async def looked_up(self, scope: Any) -> Person | Problem:
        """The session, as the store has it now."""
        cookie = self._cookie_of(scope)
        if cookie is None:
            return await self._behind.looked_up(scope)
        key = _key_of(scope["headers"])
        try:
            return await run_in_thread(self._browsers.person, cookie.decode("latin-1"), key)
        except Unknown as error:
            return Problem(401, error.message, error.hint, headers={"WWW-Authenticate": "Bearer"})
        except YardError as error:
            problem = find_problem(error)
            if problem is None:
                raise
            return problem

    async def again(self, scope: Any) -> Person | Problem:
        """The session, or the door behind."""
        if self._cookie_of(scope) is None:
            return await self._behind.again(scope)
        return await self.looked_up(scope)

    def _cookie_of(self, scope: Any) -> bytes | None:
        """The cookie of this yard; None: the request is not a browser's, or comes with something better."""
        if PEER in scope:
            return None
        found = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                return None
            if name == b"cookie":
                for each in value.split(b";"):
                    if each.strip().startswith(self._cookie):
                        found = each.strip()[len(self._cookie) :]
        return found


def _key_of(headers: list[tuple[bytes, bytes]]) -> str:
    """The page's half of the session; empty: it has sent none."""
    offered = ""
    for name, value in headers:
        if name == KEY_HEADER.encode():
            return value.decode("latin-1")
        if name == b"sec-websocket-protocol":
            offered = value.decode("latin-1")
    keys = [each.strip() for each in offered.split(",") if each.strip().startswith(KEY_PROTOCOL)]
    return keys[0][len(KEY_PROTOCOL) :] if keys else ""
