"""Login through an OpenID Connect provider: what it says about someone, checked, and what that means here.

The command line does the talking (authorization code with PKCE, `cli/commands/people/oidc.py`).
The server gets the ID token and trusts nothing in it but what the provider's own keys have signed: the issuer, that it
is meant for this client, that it has not ended, and that it answers this very login (the nonce, which is good once).
"""

import json
import logging
import re
import threading
import time
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode

from gpuyard.config.access import USER
from gpuyard.config.values import Oidc
from gpuyard.control.access.people import UserDirectory
from gpuyard.control.access.rights import ROLES, Right
from gpuyard.control.access.tokens import Unknown
from gpuyard.control.refusals import Forbidden, Overloaded
from gpuyard.errors import YardError, printable_text, quote
from gpuyard.extras import install_text
from gpuyard.wire.replies.people import OidcReply, ProviderReply

if TYPE_CHECKING:
    from jwt import PyJWKClient

_log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Only algorithms that need the provider's private key: with any other, anyone who knows the client could sign."""
FETCH_S = 5.0
KEYS_S = 600.0
CLOCKS_S = 30
"""How far apart the clocks of the provider and of this server may be."""
_DOCUMENT_BYTES_MAX = 1 << 20
_SAID_CHARS_MAX = 200


class Vouched(NamedTuple):
    """A person that the identity provider vouches for."""

    name: str
    right: Right
    subject: str
    """The provider and its own name for them, which stays theirs when they choose another."""


class Provider:
    """The identity provider of a yard. Any thread may use it."""

    def __init__(self, oidc: Oidc, directory: UserDirectory, clocks_s: int = CLOCKS_S) -> None:
        """`clocks_s`: how far the clocks of both may be apart."""
        try:
            import jwt  # noqa: F401, PLC0415 (an extra, and slow to import)
        except ModuleNotFoundError as error:
            raise YardError(
                f"login through an identity provider needs the Python package {error.name}",
                f"Install it with: {install_text('auth')}",
            ) from error
        self._oidc, self._clocks_s = oidc, clocks_s
        self._directory = directory
        self._lock = threading.Lock()
        self._keys: tuple[float, PyJWKClient] | None = None
        self._document: tuple[float, dict[str, Any]] | None = None

    @property
    def session_ms(self) -> int:
        """How long a login lasts."""
        return self._oidc.session_ms

    def described(self) -> OidcReply:
        """What a client needs to know to log in."""
        return {"issuer": self._oidc.issuer, "client_id": self._oidc.client_id, "scopes": self._oidc.scopes}

    def where(self) -> ProviderReply:
        """Where a browser is sent for a login, and what it asks for there."""
        return {
            "url": self._address("authorization_endpoint"),
            "client_id": self._oidc.client_id,
            "scopes": self._oidc.scopes,
        }

    def redeemed(self, code: str, verifier: str, back: str) -> str:
        """The ID token for a code that a browser came back with; the provider gives it for this verifier alone."""
        asked = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": back,
            "client_id": self._oidc.client_id, "code_verifier": verifier,
        }  # fmt: skip
        told = fetched(self._address("token_endpoint"), urlencode(asked).encode("ascii"))
        if not isinstance(told.get("id_token"), str):
            raise Unknown(
                "the identity provider gave no ID token", "`auth.oidc.scopes` in yard.yaml must hold openid."
            )
        return str(told["id_token"])

    def vouched(self, id_token: str, nonce: str) -> "Vouched":
        """The person that the provider vouches for, and what they may do here."""
        claims = self._checked(id_token, nonce)
        name = claims.get(self._oidc.user_claim)
        if not isinstance(name, str) or not name:
            raise Forbidden(
                f"the identity provider does not say {self._oidc.user_claim!r}",
                "Set `auth.oidc.user_claim` in yard.yaml to a claim that it gives.",
            )
        if not re.fullmatch(USER, name):
            raise Forbidden(f"{quote(name[:80])} cannot be the name of a user here")
        if self._oidc.user_claim == "email" and claims.get("email_verified") is False:
            raise Forbidden(f"the address {quote(name)} is not verified by the identity provider")
        return Vouched(name, self._right(name, claims), f"{self._oidc.issuer} {claims['sub']}")

    def _right(self, name: str, claims: dict[str, Any]) -> Right:
        """What they have in `users`; else the first group of the file that they are in."""
        own = self._directory.limit(name)
        if own is not None:
            return own
        theirs = claims.get(self._oidc.groups_claim, [])
        theirs = [theirs] if isinstance(theirs, str) else theirs if isinstance(theirs, list) else []
        for group, account in self._oidc.groups.items():
            if group in theirs:
                return Right(ROLES[account.role], account.tenant)
        raise Forbidden(
            f"{quote(name)} is known to the identity provider, and not to this yard",
            "An administrator adds them to `auth.users`, or one of their groups to `auth.oidc.groups`, in yard.yaml.",
        )

    def _checked(self, id_token: str, nonce: str) -> dict[str, Any]:
        import jwt  # noqa: PLC0415

        try:
            key = self._key_client().get_signing_key_from_jwt(id_token)
            claims: dict[str, Any] = jwt.decode(
                id_token,
                key,
                algorithms=list(ALGORITHMS),
                audience=self._oidc.client_id,
                issuer=self._oidc.issuer,
                leeway=self._clocks_s,
                options={"require": ["exp", "iat", "iss", "aud", "sub", "nonce"]},
            )
        except jwt.PyJWKClientConnectionError as error:
            raise _away(self._oidc.issuer, error) from error
        except jwt.PyJWTError as error:
            raise Unknown(f"the ID token is not accepted: {error}", "Log in again.") from error
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if several else self._oidc.client_id) != self._oidc.client_id:
            raise Unknown("the ID token was made for another client", "Log in again.")
        if claims["nonce"] != nonce:
            raise Unknown("the ID token answers another login", "Log in again.")
        return claims

    def _key_client(self) -> "PyJWKClient":
        """The provider's keys, by its own description; fetched again after a while, and for a key not seen before."""
        import jwt  # noqa: PLC0415

        with self._lock:
            if self._keys is None or time.monotonic() - self._keys[0] > KEYS_S:
                address = self._address("jwks_uri")
                client = jwt.PyJWKClient(address, timeout=int(FETCH_S), lifespan=KEYS_S)
                self._keys = (time.monotonic(), client)
            return self._keys[1]

    def _address(self, name: str) -> str:
        """One of the provider's addresses, by its own description, which is fetched again after a while."""
        known = self._document
        if known is None or time.monotonic() - known[0] > KEYS_S:
            document = fetched(f"{self._oidc.issuer}/.well-known/openid-configuration")
            if str(document.get("issuer", "")).rstrip("/") != self._oidc.issuer:
                raise _away(self._oidc.issuer, f"it calls itself {document.get('issuer')!r}")
            self._document = known = (time.monotonic(), document)
        address = str(known[1].get(name, ""))
        if not address.startswith(("https://", self._oidc.issuer)):
            raise _away(self._oidc.issuer, f"its {name} is {address!r}, which is not https")
        return address


def fetched(address: str, body: bytes | None = None) -> dict[str, Any]:
    """A JSON document, or what a form is answered with."""
    try:
        with urllib.request.urlopen(address, body, timeout=FETCH_S) as answer:
            document = json.loads(answer.read(_DOCUMENT_BYTES_MAX))
    except HTTPError as error:
        if body is None or error.code != 400:
            raise _away(address, error) from error
        raise Unknown(
            "the identity provider does not take the code of this login", "Log in again."
        ) from error
    except (URLError, OSError, ValueError) as error:
        raise _away(address, error) from error
    if not isinstance(document, dict):
        raise _away(address, "its answer is no JSON object")
    return document


def _away(address: str, why: object) -> Overloaded:
    """What the provider answers is another's text, also where it is told to the client."""
    where, said = printable_text(address, _SAID_CHARS_MAX), printable_text(str(why), _SAID_CHARS_MAX)
    _log.warning("the identity provider cannot be asked at %s: %s", where, said)
    return Overloaded(f"the identity provider cannot be asked at {where}: {said}", "Try again later.")
