"""Tokens as rows: only the hash of the secret is kept, so reading the store gives nobody a token."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, bindparam, insert, select, update

from gpuyard.store.backend.access import Writes
from gpuyard.store.schema import TOKENS

_ONE = select(TOKENS).where(TOKENS.c.id == bindparam("token_id"))
TOKENS_MAX = 100_000
_IDS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token."""

    id: str
    hash: str
    user: str
    role: str
    tenant: str
    note: str
    made_by: str
    made_with: str
    """The token that it was made with; empty: none. It ends when that one is revoked."""
    created_ms: int
    expires_ms: int
    used_ms: int = 0
    revoked_ms: int = 0
    subject: str = ""
    """Of a login: the identity provider and its own name for the user."""


class Tokens:
    """The tokens of one store."""

    def __init__(self, backend: Writes) -> None:
        self._backend = backend

    def find(self, token_id: str) -> TokenRow | None:
        """One token, as it is now."""
        with self._backend.reading() as conn:
            row = conn.execute(_ONE, {"token_id": token_id}).mappings().first()
        return TokenRow(**row) if row is not None else None

    def ended(self, token_ids: Sequence[str], now_ms: int) -> list[str]:
        """Of these tokens those that are revoked, have ended or are not there."""
        found: set[str] = set()
        with self._backend.reading() as conn:
            for at in range(0, len(token_ids), _IDS_AT_ONCE):
                some = TOKENS.c.id.in_(token_ids[at : at + _IDS_AT_ONCE])
                query = select(TOKENS.c.id).where(
                    some, TOKENS.c.revoked_ms == 0, TOKENS.c.expires_ms > now_ms
                )
                found.update(conn.execute(query).scalars())
        return [token_id for token_id in token_ids if token_id not in found]

    def all(self) -> list[TokenRow]:
        """All tokens, the newest first."""
        query = select(TOKENS).order_by(TOKENS.c.created_ms.desc(), TOKENS.c.id).limit(TOKENS_MAX)
        with self._backend.reading() as conn:
            return [TokenRow(**row) for row in conn.execute(query).mappings()]

    def logins(self, user: str, subject: str) -> list[TokenRow]:
        """The first login with each pair of name and subject, of those with this name or this subject."""
        query = (
            select(TOKENS)
            .where(TOKENS.c.subject != "", (TOKENS.c.user == user) | (TOKENS.c.subject == subject))
            .order_by(TOKENS.c.created_ms, TOKENS.c.id)
        )
        found: dict[tuple[str, str], TokenRow] = {}
        with self._backend.reading() as conn:
            for row in conn.execute(query).mappings():
                found.setdefault((row["user"], row["subject"]), TokenRow(**row))
        return list(found.values())

    def logins_as(self, user: str) -> list[TokenRow]:
        """Every login that binds a name to a person."""
        query = select(TOKENS).where(TOKENS.c.user == user, TOKENS.c.subject != "").order_by(TOKENS.c.id)
        with self._backend.reading() as conn:
            return [TokenRow(**row) for row in conn.execute(query).mappings()]

    def made_with(self, token_id: str) -> list[TokenRow]:
        """Those made with this one, and those made with them."""
        found: dict[str, TokenRow] = {}
        with self._backend.reading() as conn:
            left = [token_id]
            while left:
                query = select(TOKENS).where(TOKENS.c.made_with.in_(left)).order_by(TOKENS.c.id)
                rows = [TokenRow(**row) for row in conn.execute(query).mappings()]
                left = [row.id for row in rows if row.id not in found]
                found |= {row.id: row for row in rows}
        return list(found.values())

    def touch(self, token_id: str, used_ms: int) -> None:
        """Note that it was used."""
        with self._backend.writing() as conn:
            conn.execute(update(TOKENS).where(TOKENS.c.id == token_id).values(used_ms=used_ms))


def put_tokens(conn: Connection, rows: Sequence[TokenRow]) -> None:
    """Write new tokens, revoke others and unbind their names, inside a transaction."""
    for row in rows:
        if row.revoked_ms:
            conn.execute(
                update(TOKENS)
                .where(TOKENS.c.id == row.id, TOKENS.c.revoked_ms == 0)
                .values(revoked_ms=row.revoked_ms)
            )
            conn.execute(
                update(TOKENS)
                .where(TOKENS.c.id == row.id, TOKENS.c.subject != row.subject)
                .values(subject=row.subject)
            )
        else:
            conn.execute(insert(TOKENS).values(**asdict(row)))
