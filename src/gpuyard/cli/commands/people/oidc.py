"""Login through an identity provider, as a program on the user's machine does it (RFC 8252).

Authorization code with PKCE: the browser goes to the provider and comes back to a port of this machine with a code that
is worth nothing without the verifier that never left here. What the provider says about the user is traded for a token
of the yard, which the yard can revoke.
"""

import base64
import hashlib
import http.server
import json
import secrets
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError

from gpuyard.errors import BadInput, YardError, error_text

WAIT_S = 300.0
_FETCH_S = 15.0
_PAGE = b"<!doctype html><meta charset=utf-8><title>gpuyard</title><p>%s You can close this page."


def log_in(url: str, ca: str, browser: bool) -> str:
    """A token of the yard, after a login at its identity provider."""
    from gpuyard.api.client import Client

    with Client(url, "none", ca=ca) as yard:
        oidc = yard.ways_to_log_in()["oidc"]
        if oidc is None:
            raise BadInput(f"{url} has no identity provider", "Ask for a token, and log in without --oidc.")
        nonce = secrets.token_urlsafe(32)
        id_token = _id_token(oidc, nonce, browser)
        return str(yard.log_in(id_token, nonce)["secret"])


def _id_token(oidc: Mapping[str, Any], nonce: str, browser: bool) -> str:
    from gpuyard.cli.terminal.streams import print_notice

    issuer = oidc["issuer"]
    provider = _json(f"{issuer}/.well-known/openid-configuration")
    if str(provider.get("issuer", "")).rstrip("/") != issuer:
        raise YardError(f"{issuer} calls itself {provider.get('issuer')!r}")
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    with _Listener() as listener:
        back = f"http://127.0.0.1:{listener.server_port}/callback"
        asked = {
            "response_type": "code", "client_id": oidc["client_id"], "redirect_uri": back, "scope": oidc["scopes"],
            "state": state, "nonce": nonce, "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        address = f"{provider['authorization_endpoint']}?{urllib.parse.urlencode(asked)}"
        print_notice(f"log in at:\n{address}")
        if browser:
            import webbrowser

            webbrowser.open(address)
        answer = listener.answer()
    if answer.get("state") != state:
        raise YardError("the answer belongs to another login", "Try again.")
    if "code" not in answer:
        raise YardError(
            f"the identity provider refused: {answer.get('error_description') or answer.get('error')}"
        )
    asked = {
        "grant_type": "authorization_code", "code": answer["code"], "redirect_uri": back,
        "client_id": oidc["client_id"], "code_verifier": verifier,
    }  # fmt: skip
    told = _json(str(provider["token_endpoint"]), urllib.parse.urlencode(asked).encode())
    if not isinstance(told.get("id_token"), str):
        raise YardError("the identity provider gave no ID token", "`auth.oidc.scopes` must hold openid.")
    return str(told["id_token"])


class _Listener(http.server.HTTPServer):
    """A port of this machine that takes one answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.found: dict[str, str] | None = None

    def answer(self) -> dict[str, str]:
        """What came back through the browser."""
        until_s = time.monotonic() + WAIT_S
        while self.found is None:
            self.timeout = until_s - time.monotonic()
            if self.timeout <= 0:
                raise YardError(f"no login was finished within {WAIT_S:.0f} s", "Try again.")
            self.handle_request()
        return self.found


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Listener

    def do_GET(self) -> None:
        """The browser comes back."""
        parts = urllib.parse.urlsplit(self.path)
        if parts.path != "/callback":
            self.send_error(404)
            return
        self.server.found = dict(urllib.parse.parse_qsl(parts.query))
        done = b"You are logged in." if "code" in self.server.found else b"You are not logged in."
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(_PAGE % done)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what happens next shows what came."""


def _json(address: str, body: bytes | None = None) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(address, body, timeout=_FETCH_S) as answer:
            found = json.load(answer)
    except HTTPError as error:
        text = error.read(500).decode("utf-8", "replace")
        raise YardError(f"the identity provider answered {error.code}: {text}") from error
    except (URLError, OSError, ValueError) as error:
        raise YardError(f"the identity provider cannot be asked at {address}: {error_text(error)}") from error
    if not isinstance(found, dict):
        raise YardError(f"the identity provider's answer at {address} makes no sense")
    return found
