"""Browsers over HTTP: a code for one, the session that it is traded for, and the end of that."""

import asyncio

from fastapi import Request, Response

from gpuyard.api.edge.peers import cookie_name, get_asker
from gpuyard.api.edge.routes import Handlers, answer
from gpuyard.api.edge.throttle import run_in_thread
from gpuyard.api.handlers.front import console_files
from gpuyard.api.messages.bodies import OPEN_BODY_BYTES_MAX, parse_object, read_bytes
from gpuyard.api.messages.schemas import BrowserLogin, check_value
from gpuyard.control.serve import Yard
from gpuyard.wire import endpoints
from gpuyard.wire.replies.people import BrowserCodeReply, BrowserReply, SignedOutReply

_NEVER_KEPT = {"Cache-Control": "no-store"}


def handlers(yard: Yard) -> Handlers:
    """Codes and sessions."""
    api = _Browsers(yard)
    return {
        endpoints.BROWSER_CODE: api.code,
        endpoints.LOGIN_BROWSER: api.sign_in,
        endpoints.LOGOUT: api.sign_out,
    }


class _Browsers:
    """Handlers."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard

    async def code(self, request: Request) -> Response:
        """The code works once, within a minute, for the person who asked."""
        future = await run_in_thread(self._yard.browsers.code, get_asker(request.scope))
        row, code = await asyncio.wrap_future(future)
        told: BrowserCodeReply = {
            "code": code,
            "expires_ms": row.expires_ms,
            "url": self._yard.options.url,
            "console": bool(console_files()),
        }
        return answer(told, 201, _NEVER_KEPT)

    async def sign_in(self, request: Request) -> Response:
        """The session: a cookie, and the key that the page keeps."""
        wanted = check_value(BrowserLogin, parse_object(await read_bytes(request, OPEN_BODY_BYTES_MAX)))
        future = await run_in_thread(self._yard.browsers.redeem, wanted.code)
        made = await asyncio.wrap_future(future)
        lasts_s = (made.row.expires_ms - made.row.created_ms) // 1000
        headers = {"Set-Cookie": self._cookie(request, wanted.path, made.cookie, lasts_s), **_NEVER_KEPT}
        told: BrowserReply = {"user": made.row.user, "key": made.key, "expires_ms": made.row.expires_ms}
        return answer(told, 201, headers)

    async def sign_out(self, request: Request) -> Response:
        """End the session of this browser and of the pages that are open in it."""
        person = get_asker(request.scope)
        await asyncio.wrap_future(self._yard.browsers.sign_out(person))
        told: SignedOutReply = {"user": person.name}
        return answer(told, headers=_NEVER_KEPT)

    def _cookie(self, request: Request, path: str, value: str, lasts_s: int) -> str:
        forwarded = request.headers.get("x-forwarded-proto", "")
        secure = "; Secure" if "https" in (request.url.scheme, forwarded.strip().lower()) else ""
        name = cookie_name(self._yard.store.yard)
        return f"{name}={value}; Path={path}; Max-Age={lasts_s}; HttpOnly; SameSite=Strict{secure}"
