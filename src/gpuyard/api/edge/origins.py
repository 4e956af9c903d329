"""Refuses requests that a web page of another site makes through a user's browser.

A browser on this machine reaches the port as its user's own programs do, on behalf of any page that is open in it. It
says which page (`Origin`), and by which name it found this server (`Host`): a page of another site is refused, and so
is a name of another site that was made to point to this machine. No browser comes over the Unix socket.
"""

from gpuyard.api.messages.problems import Problem

_HERE = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})


class Origins:
    """The names of one server."""

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
