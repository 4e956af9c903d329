"""Tokens: made, known again, revoked.

`yard_<id>_<secret>`: the id finds the row, the secret is 256 random bits of which only the hash is kept. A token is for
one user, with a role at a place of the tree of tenants, and ends by itself. It never gives more than its user has, it
ends at the latest with the token with which it was made, and is revoked together with it: a thief of a token gets
no further than its owner, and loses all of it at once.

A revocation holds at once in the process that took it. Other processes on the same store look each token up again
after `LOOK_S`, so there it holds within that time.
"""

import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import NamedTuple

from gpuyard.config.values import Access
from gpuyard.control.access.people import NO_UID, Person, UserDirectory
from gpuyard.control.access.rights import ROLES, Right, Role, may_give
from gpuyard.control.clock import time_text
from gpuyard.control.refusals import Forbidden, Impossible, NotFound, Refusal, Unacceptable
from gpuyard.control.replica.committer import Committer
from gpuyard.control.replica.labels import find_node
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.errors import quote, suggest
from gpuyard.model import NameUnbound, TokenMade, TokenRevoked
from gpuyard.quantities import span_words
from gpuyard.store import Store, StoreError, TokenRow
from gpuyard.wire.endpoints import Action
from gpuyard.wire.replies.people import RevokedReply, TokenReply, UnboundReply

_log = logging.getLogger(__name__)

LOOK_S = 0.5
"""How long what is known of a token holds before it is looked up again."""
TOUCH_MS = 300_000
"""How often it is noted that a token is used."""
KNOWN_MAX = 10_000
CODE_NOTE = "code for a browser"
"""The note of a row that is no token but a code."""
ID_LENGTH = 10
_TEXT = re.compile(r"yard_([a-z0-9]{10})_([0-9a-f]{64})")
_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


class Unknown(Refusal):
    """It is no token of this yard, or no longer one."""


class WantedToken(NamedTuple):
    """A token as it was asked for. A field that is None is chosen by the user that the token is for."""

    user: str
    role: str | None = None
    tenant: str | None = None
    lifetime_ms: int | None = None
    note: str = ""


class TokenService:
    """Where tokens are made and looked at. Any thread may use it."""

    def __init__(
        self,
        replica: Replica,
        committer: Committer,
        now_ms: Callable[[], int],
        access: Access,
        directory: UserDirectory,
        valid_ms: Callable[[], int],
    ) -> None:
        """`now_ms` is the time of the log; tokens end by `valid_ms`."""
        self._replica = replica
        self._committer = committer
        self._now_ms = now_ms
        self._valid_ms = valid_ms
        self._access = access
        self.directory = directory
        self._known: dict[bytes, tuple[Person, float]] = {}
        self._revoked = 0
        """Goes up with every revocation: what was read before it is not remembered after it."""

    def renew(self, access: Access, directory: UserDirectory) -> None:
        """Take up new people: every token is looked up again."""
        self._access = access
        self.directory = directory
        self._forget()

    # -- knowing them again --------------------------------------------------------------------------------------

    def remembered(self, text: str) -> Person | None:
        """The person with this token, if it was looked up a moment ago; None: `bearer` has to look it up."""
        known = self._known.get(_digest(text))
        if known is None or time.monotonic() - known[1] > LOOK_S or known[0].expires_ms <= self._valid_ms():
            return None
        return known[0]

    def bearer(self, text: str) -> Person:
        """The person with this token, as the store has it now. Raises `Unknown` for a token that is not valid."""
        match, revoked = _TEXT.fullmatch(text), self._revoked
        row = self._replica.store.tokens.find(match[1]) if match else None
        # Compared in any case, and in the same time wherever they differ.
        same = hmac.compare_digest(hash_secret(text), row.hash if row is not None else "0" * 64)
        if row is None or not same:
            raise Unknown("the token is not one of this yard")
        if row.revoked_ms:
            raise Unknown("the token was revoked", "Ask for a new one, or log in again.")
        if row.expires_ms <= self._valid_ms():
            raise Unknown(
                f"the token ended at {time_text(row.expires_ms)}", "Log in again, or ask for a new one."
            )
        if row.role == Role.COLLECTOR.word:
            person = Person(
                NO_UID, NO_UID, row.user, False, given=(_right(row),), token=row.id, expires_ms=row.expires_ms
            )
        else:
            person = self.directory.bearer(row.user, _right(row), row.id, row.expires_ms)
        now_ms = self._now_ms()
        if now_ms - row.used_ms > TOUCH_MS:
            self._touch(row.id, now_ms)
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        if revoked == self._revoked:
            self._known[_digest(text)] = (person, time.monotonic())
        return person

    def _touch(self, token_id: str, now_ms: int) -> None:
        try:
            self._replica.store.tokens.touch(token_id, now_ms)
        except StoreError as error:
            # On a full disk people can still read.
            _log.warning("the use of token %s was not noted: %s", token_id, error.message)

    # -- making them ---------------------------------------------------------------------------------------------

    def make(self, person: Person, asked: WantedToken) -> "Future[tuple[TokenRow, str]]":
        """A new token and its secret, which is nowhere else."""
        right = self._right(person, asked)
        lifetime_ms = asked.lifetime_ms or min(self._access.token_ms, self._access.token_ms_max)
        if lifetime_ms > self._access.token_ms_max:
            raise Unacceptable(
                f"a token may last at most {span_words(self._access.token_ms_max)}, not {span_words(lifetime_ms)}",
                "Ask for fewer days; `auth.token_lifetime_max` in yard.yaml says how long a token may last.",
            )
        expires_ms = self._valid_ms() + lifetime_ms
        if person.token:
            expires_ms = min(expires_ms, person.expires_ms)
        return self._issue(
            make_id(), asked.user, right, expires_ms, asked.note, person.signature, person.token
        )

    def login(
        self, user: str, right: Right, subject: str, proof: str, lifetime_ms: int
    ) -> "Future[tuple[TokenRow, str]]":
        """A token for someone whose identity provider vouches for them. One proof is good for one token."""
        self._check_user(user, right)
        # The id is made of the proof, and an id can be there only once.
        token_id = derive_token_id("login", proof)
        expires_ms = self._valid_ms() + lifetime_ms
        return self._issue(token_id, user, right, expires_ms, "login", f"{user} (login)", "", subject)

    def _issue(
        self,
        token_id: str,
        user: str,
        right: Right,
        expires_ms: int,
        note: str,
        by: str,
        made_with: str,
        subject: str = "",
    ) -> "Future[tuple[TokenRow, str]]":
        text = f"yard_{token_id}_{secrets.token_hex(32)}"

        def make(draft: Draft) -> tuple[TokenRow, str]:
            if self._replica.store.tokens.find(token_id) or any(row.id == token_id for row in draft.tokens):
                raise Impossible("this login was used already", "Log in again.")
            if made_with and not is_in_force(self._replica.store, made_with, draft):
                raise Forbidden("the token was revoked", "Log in again.")
            if subject:
                self._check_bound(user, subject, draft)
            now_ms = max(self._now_ms(), draft.state.now_ms)
            row = TokenRow(
                token_id,
                hash_secret(text),
                user,
                right.role.word,
                right.tenant,
                note,
                by,
                made_with,
                now_ms,
                expires_ms,
                subject=subject,
            )
            draft.add(TokenMade(now_ms, token_id, user, row.role, row.tenant, expires_ms, by, subject))
            draft.tokens.append(row)
            return row, text

        return self._committer.write(make)

    def _check_bound(self, user: str, subject: str, draft: Draft) -> None:
        """A name belongs to the first person to log in with it, and a person has one: the provider lets them choose."""
        issuer = subject.partition(" ")[0]
        rows = [*self._replica.store.tokens.logins(user, subject), *draft.tokens]
        unbound = {row.id for row in draft.tokens if not row.subject}
        bound = [
            (row.user, row.subject)
            for row in rows
            if row.subject.partition(" ")[0] == issuer and row.id not in unbound
        ]
        for name, holder in bound:
            if name == user and holder != subject:
                raise Forbidden(
                    f"{user} belongs here to another person, who logged in through the identity "
                    f"provider with this name first",
                    "Choose another name there, or ask an administrator of the yard to unbind it "
                    f"(yard token unbind {user}).",
                )
            if holder == subject and name != user:
                raise Forbidden(
                    f"you are {name} here, and cannot be {user} as well",
                    f"Take the name {name} again at the identity provider, or ask an administrator of the yard to "
                    f"unbind it (yard token unbind {name}).",
                )

    def _right(self, person: Person, asked: WantedToken) -> Right:
        """The right that is asked for, if the asker may give it and the token's user may have it."""
        if asked.role == Role.COLLECTOR.word:
            return self._of_collector(person, asked)
        limit = self.directory.limit(asked.user)
        if not self._for_whom(person, asked.user, limit):
            # In the same words whether or not there is such a person, and wherever that person is.
            raise _not_for(person, asked.user)
        role = ROLES.get(asked.role) if asked.role else limit.role if limit else Role.USER
        if role is None:
            raise Unacceptable(
                f"unknown role {quote(asked.role or '')}; {suggest(asked.role or '', ROLES, 'roles')}"
            )
        right = Right(role, self._place(asked, role, limit))
        if limit is not None and right.narrowed(limit) != right:
            raise Unacceptable(
                f"{asked.user} is {limit} in yard.yaml; a token cannot make more of them ({right})",
                "Ask for less, or change `auth.users` and put it in force with `yard apply`.",
            )
        if not may_give(person.rights, right):
            raise _not_for(person, f"{asked.user} as {right}")
        self._check_user(asked.user, right, named_here=True)
        return right

    def _of_collector(self, person: Person, asked: WantedToken) -> Right:
        """The right to hand in the samples of one node, which stands in the place of the user."""
        if not person.may(Action.MANAGE_NODES, ""):
            raise Forbidden(
                f"{person.name} may not make a token for a collector", "An admin of the whole yard makes it."
            )
        if asked.tenant:
            raise Unacceptable(
                "a collector's token is for a node, and holds at no tenant", "Leave --tenant out."
            )
        with self._replica.lock:
            self._replica.catch_up()
            find_node(self._replica.state, asked.user)
        return Right(Role.COLLECTOR)

    def _for_whom(self, person: Person, user: str, limit: Right | None) -> bool:
        """A token runs jobs as its user: so a tenant's admin gets none for people of other tenants."""
        if user == person.name or person.may(Action.SEE_ALL, ""):
            return True
        return limit is not None and person.may(Action.MAKE_TOKEN, limit.tenant)

    def _place(self, asked: WantedToken, role: Role, limit: Right | None) -> str:
        settings = self._replica.state.settings
        known = [tenant.path for tenant in settings.tenants]
        if asked.tenant is None:
            if limit is not None:
                return limit.tenant
            if role is Role.ADMIN:
                return ""
            if known:
                raise Unacceptable(
                    f"{asked.user} is not in `auth.users`, and no tenant is named",
                    f"Say where the token holds: --tenant {known[0]}, or --tenant / for the whole yard.",
                )
            return asked.user
        top = asked.tenant.split("/")[0]
        tops = sorted({path.split("/")[0] for path in known})
        if asked.tenant and known and top not in tops:
            choice = suggest(asked.tenant, dict.fromkeys([*known, *tops]), "tenants")
            raise Unacceptable(f"unknown tenant {quote(asked.tenant)}; {choice}")
        return asked.tenant

    def _check_user(self, user: str, right: Right, *, named_here: bool = False) -> None:
        try:
            self.directory.check(user, right, named_here=named_here)
        except Forbidden as error:
            raise Unacceptable(error.message, error.hint) from None

    # -- looking at them and taking them back --------------------------------------------------------------------

    def list(self, person: Person) -> list[TokenReply]:
        """Tokens of one's own, and those of the tenants where one may make them; no codes for browsers that ended."""
        now_ms = self._valid_ms()
        return [
            token_view(row)
            for row in self._replica.store.tokens.all()
            if _concerns(person, row)
            and not (row.note == CODE_NOTE and (row.revoked_ms or row.expires_ms <= now_ms))
        ]

    def revoke(self, person: Person, token_id: str) -> "Future[RevokedReply]":
        """Take a token back, and all that were made with it."""

        def make(draft: Draft) -> RevokedReply:
            row = self._replica.store.tokens.find(token_id)
            if row is None or not _concerns(person, row):
                raise NotFound(
                    f"there is no token {quote(token_id)}", "`yard token list` shows those there are."
                )
            now_ms = max(self._now_ms(), draft.state.now_ms)
            done = {each.id for each in draft.tokens if each.revoked_ms}
            ended = [
                each
                for each in (row, *self._replica.store.tokens.made_with(token_id))
                if not each.revoked_ms and each.id not in done
            ]
            _end(ended, person, now_ms, draft)
            return {"id": token_id, "revoked": [each.id for each in ended]}

        future = self._committer.write(make)
        future.add_done_callback(lambda _done: self._forget())
        return future

    def unbind(self, person: Person, user: str) -> "Future[UnboundReply]":
        """Free a name from the person who first logged in with it. That person's logins end with it."""

        def make(draft: Draft) -> UnboundReply:
            done = {each.id for each in draft.tokens if each.revoked_ms}
            new = [row for row in draft.tokens if row.user == user and row.subject]
            logins = [
                row for row in (*self._replica.store.tokens.logins_as(user), *new) if row.id not in done
            ]
            if not logins:
                raise NotFound(
                    f"nobody has logged in as {quote(user)} through an identity provider",
                    "`yard token list` shows the logins there were, with the note 'login'.",
                )
            now_ms = max(self._now_ms(), draft.state.now_ms)
            made = [each for row in logins for each in self._replica.store.tokens.made_with(row.id)]
            ended = [row for row in (*logins, *made) if not row.revoked_ms and row.id not in done]
            draft.add(NameUnbound(now_ms, user, person.signature))
            _end(ended, person, now_ms, draft)
            draft.tokens += [replace(row, subject="", revoked_ms=row.revoked_ms or now_ms) for row in logins]
            return {"user": user, "revoked": [each.id for each in ended]}

        future = self._committer.write(make)
        future.add_done_callback(lambda _done: self._forget())
        return future

    def _forget(self) -> None:
        self._revoked += 1
        self._known.clear()


def _not_for(person: Person, user: str) -> Forbidden:
    return Forbidden(
        f"{person.name} may not make a token for {user}",
        "Tenant admins make tokens for people in `auth.users` at or below their own place; "
        "an admin makes all others.",
    )


def revoke_all(store: Store, users: Collection[str], person: Person, now_ms: int, draft: Draft) -> None:
    """People are no longer in yard.yaml: their tokens end with the configuration that had them."""
    done = {each.id for each in draft.tokens if each.revoked_ms}
    rows = [row for row in (*store.tokens.all(), *draft.tokens) if row.user in users] if users else []
    _end([row for row in rows if not row.revoked_ms and row.id not in done], person, now_ms, draft)


def _end(ended: Sequence[TokenRow], person: Person, now_ms: int, draft: Draft) -> None:
    for each in ended:
        draft.add(TokenRevoked(now_ms, each.id, each.user, person.signature))
        draft.tokens.append(replace(each, revoked_ms=now_ms))


def _concerns(person: Person, row: TokenRow) -> bool:
    """Whether a person may see a token: it is their own, or one that they could have made."""
    own = row.user == person.name and row.role != Role.COLLECTOR.word
    return own or may_give(person.rights, _right(row))


def _right(row: TokenRow) -> Right:
    return Right(ROLES[row.role], row.tenant)


def token_view(row: TokenRow) -> TokenReply:
    """A token for listings: all but what opens doors."""
    return {
        "id": row.id,
        "user": row.user,
        "role": row.role,
        "tenant": row.tenant,
        "note": row.note,
        "made_by": row.made_by,
        "made_with": row.made_with or None,
        "created_ms": row.created_ms,
        "expires_ms": row.expires_ms,
        "used_ms": row.used_ms or None,
        "revoked_ms": row.revoked_ms or None,
    }


def make_id() -> str:
    """An id by chance."""
    return "".join(secrets.choice(_LETTERS) for _ in range(ID_LENGTH))


def derive_token_id(what: str, proof: str) -> str:
    """The id of what is made with a proof that is good for one of them."""
    number = int.from_bytes(hashlib.sha256(f"{what} {proof}".encode()).digest()[:8], "big")
    token_id = ""
    for _ in range(ID_LENGTH):
        number, place = divmod(number, len(_LETTERS))
        token_id += _LETTERS[place]
    return token_id


def is_in_force(store: Store, token_id: str, draft: Draft) -> bool:
    """Whether a token is there and not revoked, in the store and in a draft."""
    row = store.tokens.find(token_id)
    gone = any(each.id == token_id and each.revoked_ms for each in draft.tokens)
    return row is not None and not row.revoked_ms and not gone


def hash_secret(text: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
