"""People over HTTP: the asker, their tokens, and login."""

import asyncio

from fastapi import Request, Response

from gpuyard.api.edge.peers import get_asker
from gpuyard.api.edge.routes import Handlers, answer
from gpuyard.api.edge.throttle import run_in_thread
from gpuyard.api.messages.bodies import OPEN_BODY_BYTES_MAX, parse_object, read_bytes
from gpuyard.api.messages.schemas import OidcCode, OidcLogin, TokenRequest, check_value, read_body
from gpuyard.control.access.oidc import Provider
from gpuyard.control.access.people import NO_UID, Person
from gpuyard.control.access.rights import list_allowed
from gpuyard.control.access.tokens import TokenService, WantedToken, token_view
from gpuyard.control.admission.admit import find_home
from gpuyard.control.refusals import Impossible
from gpuyard.control.serve import Yard
from gpuyard.model.units import DAY_MS
from gpuyard.store import TokenRow
from gpuyard.wire import endpoints
from gpuyard.wire.replies.people import LoginReply, MeReply, NewTokenReply, TokensReply


def handlers(yard: Yard) -> Handlers:
    """Tokens and login."""
    api = _People(yard)
    return {
        endpoints.ME: api.me,
        endpoints.TOKENS: api.tokens,
        endpoints.MAKE_TOKEN: api.make,
        endpoints.REVOKE: api.revoke,
        endpoints.UNBIND: api.unbind,
        endpoints.LOGIN_WAYS: api.ways,
        endpoints.LOGIN_OIDC: api.login,
        endpoints.LOGIN_PROVIDER: api.provider,
        endpoints.LOGIN_OIDC_CODE: api.login_by_code,
    }


class _People:
    """Handlers."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard

    @property
    def _token_service(self) -> TokenService:
        if self._yard.token_service is None:
            raise Impossible(
                "this yard knows people by the machine's users, and has no tokens",
                "Start it with `yard up --auth`.",
            )
        return self._yard.token_service

    async def me(self, request: Request) -> Response:
        """The person who asks: name, roles and tenants."""
        person = get_asker(request.scope)
        told: MeReply = {
            "user": person.name,
            "runs_as": None if person.uid == NO_UID else person.login or person.name,
            "rights": [{"role": right.role.word, "tenant": right.tenant} for right in person.rights],
            "allowed": [list_allowed(right) for right in person.rights],
            "home": await run_in_thread(self._home, person),
            "token": person.token or None,
            "expires_ms": person.expires_ms or None,
            "auth": self._yard.token_service is not None,
        }
        return answer(told)

    def _home(self, person: Person) -> str:
        with self._yard.replica.lock:
            self._yard.replica.catch_up()
            return find_home(person, self._yard.replica.state)

    async def tokens(self, request: Request) -> Response:
        """Your own tokens, and those of the tenants that you administer."""
        told: TokensReply = {
            "tokens": await run_in_thread(self._token_service.list, get_asker(request.scope))
        }
        return answer(told)

    async def make(self, request: Request) -> Response:
        """The secret is in this answer and nowhere else."""
        wanted = await read_body(TokenRequest, request, required=True)
        lifetime_ms = None if wanted.days is None else wanted.days * DAY_MS
        asked = WantedToken(wanted.user, wanted.role, wanted.tenant, lifetime_ms, wanted.note)
        future = await run_in_thread(self._token_service.make, get_asker(request.scope), asked)
        return _told(*await asyncio.wrap_future(future))

    async def revoke(self, request: Request, id: str) -> Response:
        """The token stops working at once, and so do those that were made with it."""
        return answer(await asyncio.wrap_future(self._token_service.revoke(get_asker(request.scope), id)))

    async def unbind(self, request: Request, user: str) -> Response:
        """The next login with the name binds it."""
        return answer(await asyncio.wrap_future(self._token_service.unbind(get_asker(request.scope), user)))

    async def ways(self) -> Response:
        """Whether a login is needed, and the identity provider, if there is one."""
        oidc = self._yard.oidc
        told: LoginReply = {
            "auth": self._yard.token_service is not None,
            "oidc": oidc.described() if oidc else None,
        }
        return answer(told)

    async def login(self, request: Request) -> Response:
        """An ID token works once."""
        oidc = self._oidc
        wanted = check_value(OidcLogin, parse_object(await read_bytes(request, OPEN_BODY_BYTES_MAX)))
        return await self._logged_in(oidc, wanted.id_token, wanted.nonce)

    async def provider(self) -> Response:
        """Where the console sends the browser."""
        return answer(await run_in_thread(self._oidc.where))

    async def login_by_code(self, request: Request) -> Response:
        """For the console, whose page may ask no other host than this one. The code works once."""
        oidc = self._oidc
        wanted = check_value(OidcCode, parse_object(await read_bytes(request, OPEN_BODY_BYTES_MAX)))
        id_token = await run_in_thread(oidc.redeemed, wanted.code, wanted.verifier, wanted.redirect_uri)
        return await self._logged_in(oidc, id_token, wanted.nonce)

    @property
    def _oidc(self) -> Provider:
        if self._yard.oidc is None:
            raise Impossible("this yard has no identity provider", "Log in with a token: `yard login`.")
        return self._yard.oidc

    async def _logged_in(self, oidc: Provider, id_token: str, nonce: str) -> Response:
        vouched = await run_in_thread(oidc.vouched, id_token, nonce)
        future = self._token_service.login(*vouched, nonce, oidc.session_ms)
        return _told(*await asyncio.wrap_future(future))


def _told(row: TokenRow, secret: str) -> Response:
    told: NewTokenReply = {**token_view(row), "secret": secret}
    return answer(told, 201, {"Cache-Control": "no-store"})
