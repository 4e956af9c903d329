"""Browsers: signed in with a code that works once, known again by two halves of a secret.

`yard open` asks for a code in the name of its user. The browser trades the code for a session: one half of its
secret is a cookie that no script can read, the other half is kept by the page and sent as a header. Cookies do not
tell the ports of a machine apart, so a cookie alone may reach a server of somebody else; what a page keeps is for its
own origin alone. Neither half opens anything by itself.

Codes and sessions are rows of the table of tokens, so every process on the store knows them, they end with the token
with which they were made, and the audit shows them. Their texts have other beginnings than a token's, and the hash is
made of the whole text: none of them passes for another.
"""

import hmac
import re
import secrets
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import NamedTuple

from gpuyard.control.access.people import Person, find_person_named
from gpuyard.control.access.people_in_force import PeopleInForce
from gpuyard.control.access.rights import EVERYTHING, ROLES, Right, Role
from gpuyard.control.access.tokens import (
    CODE_NOTE,
    Unknown,
    derive_token_id,
    hash_secret,
    is_in_force,
    make_id,
)
from gpuyard.control.refusals import Forbidden, Impossible, Unacceptable
from gpuyard.control.replica.committer import Committer
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.model import TokenMade, TokenRevoked
from gpuyard.model.units import DAY_MS, SECOND_MS
from gpuyard.store import TokenRow

CODE_MS = 60 * SECOND_MS
"""How long a code works."""
CODES_MAX = 20
"""Codes that one person has made for themselves while a code works: each is a row of the tokens and of the audit trail,
for good."""
SESSION_MS = 7 * DAY_MS
"""How long a browser stays signed in, at most."""
_CODE = re.compile(r"yardcode_([a-z0-9]{10})_[0-9a-f]{64}")
_COOKIE = re.compile(r"([a-z0-9]{10})\.([0-9a-f]{64})")
_KEY = re.compile(r"[0-9a-f]{64}")


class BrowserSession(NamedTuple):
    """A browser that was signed in, with both halves of its secret, which are nowhere else."""

    row: TokenRow
    cookie: str
    key: str


class BrowserService:
    """Where codes and sessions are made and looked at. Any thread may use it."""

    def __init__(
        self, replica: Replica, committer: Committer, now_ms: Callable[[], int], people: PeopleInForce
    ) -> None:
        self._replica = replica
        self._committer = committer
        self._now_ms = now_ms
        self._people = people
        self._made: dict[str, deque[int]] = {}
        """When each person's latest codes were made. Used by the thread that writes alone."""

    @property
    def _kind(self) -> str:
        """What a session's text begins with: one of a yard without `--auth` is none with it, and the other way."""
        return "yardhere" if self._people.token_service is None else "yardpage"

    def code(self, person: Person) -> "Future[tuple[TokenRow, str]]":
        """A code that signs a browser in as this person, once."""
        right = person.rights[0]
        if self._people.token_service is None:
            right = Right(Role.ADMIN if person.admin else Role.USER)
        else:
            try:
                self._people.directory.check(person.name, right, by_kernel=_by_kernel(person))
            except Forbidden as error:
                raise Unacceptable(error.message, error.hint) from None
        code_id = make_id()
        text = f"yardcode_{code_id}_{secrets.token_hex(32)}"

        def make(draft: Draft) -> tuple[TokenRow, str]:
            if person.token and not is_in_force(self._replica.store, person.token, draft):
                raise Forbidden("the token was revoked", "Log in again.")
            now_ms = max(self._now_ms(), draft.state.now_ms)
            ends_ms = self._people.valid_ms() + CODE_MS
            self._count(person, now_ms)
            row = TokenRow(
                code_id,
                hash_secret(text),
                person.name,
                right.role.word,
                right.tenant,
                CODE_NOTE,
                person.signature,
                person.token,
                now_ms,
                min(ends_ms, person.expires_ms or ends_ms),
            )
            _add(draft, row)
            return row, text

        return self._committer.write(make)

    def _count(self, person: Person, now_ms: int) -> None:
        """Count a code that is made; refuse it where there are too many."""
        if person.admin:
            return
        made = self._made.setdefault(person.name, deque(maxlen=CODES_MAX))
        if len(made) == CODES_MAX and now_ms - made[0] < CODE_MS:
            raise Impossible(
                f"{person.name} has made {CODES_MAX} codes for browsers within {CODE_MS // SECOND_MS} s",
                "Use one of them, or ask again in a minute.",
            )
        made.append(now_ms)

    def redeem(self, code: str) -> "Future[BrowserSession]":
        """Trade a code for a session. Raises `Unknown` for a code that is not valid, or no longer."""
        store, match = self._replica.store, _CODE.fullmatch(code)
        row = store.tokens.find(match[1]) if match else None
        same = hmac.compare_digest(hash_secret(code), row.hash if row is not None else "0" * 64)
        if row is None or not same:
            raise Unknown("the code is not one of this yard", _ANOTHER)
        secret, key = secrets.token_hex(32), secrets.token_hex(32)
        # The id is made of the code, and an id can be there only once: two processes cannot both take one code.
        session_id = derive_token_id("browser", code)

        def make(draft: Draft) -> BrowserSession:
            now_ms, valid_ms = max(self._now_ms(), draft.state.now_ms), self._people.valid_ms()
            if not is_in_force(store, row.id, draft) or store.tokens.find(session_id) is not None:
                raise Unknown("the code was used already", _ANOTHER)
            if row.expires_ms <= valid_ms:
                raise Unknown(f"the code has ended: it works for {CODE_MS // SECOND_MS} s", _ANOTHER)
            ends_ms = valid_ms + SESSION_MS
            if row.made_with:
                if not is_in_force(store, row.made_with, draft):
                    raise Unknown("the token that the code was made with was revoked", _ANOTHER)
                made_with = store.tokens.find(row.made_with)
                ends_ms = min(ends_ms, made_with.expires_ms if made_with is not None else valid_ms)
            made = replace(
                row,
                id=session_id,
                hash=hash_secret(f"{self._kind}_{session_id}_{secret}_{key}"),
                note="browser",
                created_ms=now_ms,
                expires_ms=ends_ms,
            )
            draft.add(TokenRevoked(now_ms, row.id, row.user, f"{row.user} (used)"))
            draft.tokens.append(replace(row, revoked_ms=now_ms))
            _add(draft, made)
            return BrowserSession(made, f"{session_id}.{secret}", key)

        return self._committer.write(make)

    def person(self, cookie: str, key: str) -> Person:
        """The person in a signed-in browser, as the store has it now. Raises `Unknown` for one that is not."""
        match, half = _COOKIE.fullmatch(cookie), _KEY.fullmatch(key)
        row = self._replica.store.tokens.find(match[1]) if match and half else None
        text = f"{self._kind}_{match[1]}_{match[2]}_{key}" if match else ""
        same = hmac.compare_digest(hash_secret(text), row.hash if row is not None else "0" * 64)
        if row is None or not same:
            raise Unknown("this browser is not signed in", _ANOTHER)
        if row.revoked_ms or row.expires_ms <= self._people.valid_ms():
            raise Unknown("this browser was signed out", _ANOTHER)
        if self._people.token_service is not None:
            right = Right(ROLES[row.role], row.tenant)
            # Whom the kernel knew as an administrator of the machine made it over the socket, without a token.
            by_kernel = not row.made_with and right == EVERYTHING[0]
            return self._people.directory.bearer(row.user, right, row.id, row.expires_ms, by_kernel=by_kernel)
        found = find_person_named(row.user)
        if found is None:
            raise Unknown(f"{row.user} is no longer a user of this machine")
        return self._people.directory.placed(replace(found, token=row.id, expires_ms=row.expires_ms))

    def sign_out(self, person: Person) -> "Future[None]":
        """End the session with which this person came; with another kind of token there is nothing to end."""

        def make(draft: Draft) -> None:
            row = self._replica.store.tokens.find(person.token) if person.token else None
            if row is None or row.note != "browser" or not is_in_force(self._replica.store, row.id, draft):
                return
            now_ms = max(self._now_ms(), draft.state.now_ms)
            made = [each for each in self._replica.store.tokens.made_with(row.id) if not each.revoked_ms]
            for each in (row, *made):
                draft.add(TokenRevoked(now_ms, each.id, each.user, person.signature))
                draft.tokens.append(replace(each, revoked_ms=now_ms))

        return self._committer.write(make)


_ANOTHER = "In a terminal, `yard open` signs a browser in."


def _by_kernel(person: Person) -> bool:
    """Whether the kernel says that a person is root or of the server's own account: they came over the socket."""
    return person.admin and not person.token


def _add(draft: Draft, row: TokenRow) -> None:
    draft.add(
        TokenMade(row.created_ms, row.id, row.user, row.role, row.tenant, row.expires_ms, row.made_by, "")
    )
    draft.tokens.append(row)
