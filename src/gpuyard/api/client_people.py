"""The part of the client that is about people: who asks, tokens, login, the audit trail."""

import json
from typing import Any

from gpuyard.api.calling import API, Caller


class PeopleCalls(Caller):
    """Calls that a `Client` has besides those about jobs and nodes."""

    def me(self) -> dict[str, Any]:
        """Who asks, and what they may do."""
        found: dict[str, Any] = self._call("GET", f"{API}/me")
        return found

    def tokens(self) -> list[dict[str, Any]]:
        """Tokens that concern you, without their secrets."""
        found: list[dict[str, Any]] = self._call("GET", f"{API}/tokens")["tokens"]
        return found

    def make_token(
        self,
        user: str,
        *,
        role: str | None = None,
        tenant: str | None = None,
        days: int | None = None,
        note: str = "",
    ) -> dict[str, Any]:
        """A new token; its `secret` is told this once."""
        wanted = {"user": user, "role": role, "tenant": tenant, "days": days, "note": note}
        body = json.dumps({name: value for name, value in wanted.items() if value is not None}).encode()
        made: dict[str, Any] = self._call("POST", f"{API}/tokens", body)
        return made

    def revoke_token(self, token_id: str) -> dict[str, Any]:
        """Take a token back, and those that were made with it."""
        if not token_id.isascii() or not token_id.isalnum():
            token_id = "-"
        done: dict[str, Any] = self._call("DELETE", f"{API}/tokens/{token_id}")
        return done

    def unbind_name(self, user: str) -> dict[str, Any]:
        """Let a name go that somebody's first login bound; that person's logins end."""
        done: dict[str, Any] = self._call("DELETE", f"{API}/logins/{_quoted(user)}")
        return done

    def audit(self, *, user: str = "", limit: int = 100, cursor: str | None = None) -> dict[str, Any]:
        """What everybody did, newest first."""
        parts = {"user": user, "limit": str(limit), "cursor": cursor or ""}
        query = "&".join(f"{name}={_quoted(value)}" for name, value in parts.items() if value)
        found: dict[str, Any] = self._call("GET", f"{API}/audit?{query}")
        return found

    def ways_to_log_in(self) -> dict[str, Any]:
        """Whether a login is needed, and with which identity provider."""
        found: dict[str, Any] = self._call("GET", f"{API}/login")
        return found

    def log_in(self, id_token: str, nonce: str) -> dict[str, Any]:
        """Trade what the identity provider said for a token."""
        body = json.dumps({"id_token": id_token, "nonce": nonce}).encode()
        made: dict[str, Any] = self._call("POST", f"{API}/login/oidc", body)
        return made


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" if not chr(byte).isalnum() else chr(byte) for byte in text.encode())
