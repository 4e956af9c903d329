"""Identifies the person in a signed-in browser: by its cookie and the key that its page keeps.

A request with a token, or over the Unix socket, is not a browser's and goes on to the door behind this one. What
changes something, or opens a WebSocket, must say by which page it was sent: browsers always do. A page cannot put a
header of its own on a WebSocket, so the key comes with the protocols that it offers.
"""

from typing import Any

from gpuyard.api.edge.peers import PEER, Authenticator
from gpuyard.api.edge.throttle import in_thread
from gpuyard.api.messages.problems import Problem, problem_of
from gpuyard.control.access.browsers import BrowserService
from gpuyard.control.access.people import Person
from gpuyard.control.access.tokens import Unknown
from gpuyard.errors import YardError

KEY_HEADER = "yard-page"
KEY_PROTOCOL = "yard-page."
"""Before the key, among the protocols that a WebSocket offers."""
_SAFE = ("GET", "HEAD", "OPTIONS")


def cookie_name(yard: str) -> str:
    """Browsers send the cookies of one machine to all its ports: each yard has a name of its own."""
    return f"yard_{''.join(filter(str.isalnum, yard))[:16].lower()}"


class BrowserAuthenticator:
    """The door for browsers, before the one for everybody else."""

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
            return await in_thread(self._browsers.person, cookie.decode("latin-1"), key)
        except Unknown as error:
            return Problem(401, error.message, error.hint, headers={"WWW-Authenticate": "Bearer"})
        except YardError as error:
            problem = problem_of(error)
            if problem is None:
                raise
            return problem

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
