"""How a route is made of an endpoint of the table and the handler that answers it, and how it is described.

The endpoint's action is checked before the handler runs, as far as it is known by then: whether this person may do it
to anything at all. For a given job the handler asks the same table of rights (`control/access/rights.py`). What all
handlers share stands here too: answers as JSON, filters, limits and cursors in the query.
"""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.datastructures import QueryParams

from gpuyard.api.edge.peers import get_asker
from gpuyard.api.edge.unread import measure
from gpuyard.api.messages import node_bodies, schemas
from gpuyard.api.messages.problems import MEDIA_TYPE, Problem
from gpuyard.control.access.rights import Sight, check_ever
from gpuyard.control.views.queue_list import Filter
from gpuyard.control.views.views import ENDED_STATES, LIVE_STATES
from gpuyard.errors import quote, suggest
from gpuyard.wire import reply_schemas
from gpuyard.wire.endpoints import PAGE_MAX, Action, Endpoint

LIMIT = 100
_STATES = (*sorted(LIVE_STATES), *sorted(ENDED_STATES))
_TEXT_MAX = 512
_AT_ONCE = 100
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_ID_MAX = (1 << 63) - 1
"""The largest number that a store can look for."""


def encode_json(value: Any) -> bytes:
    """A value as JSON."""
    return bytes_of_text(_encode(value))


def bytes_of_text(text: str) -> bytes:
    """A text as it is sent. Half surrogates, which none should hold, come out as question marks."""
    return text.encode("utf-8", "replace")


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as an answer."""
    return Response(encode_json(value), status, headers, "application/json")


async def answer_list(view: Mapping[str, Any], name: str) -> Response:
    """A value with a long list of this name as an answer. It is made some rows at a time: others have their turn in
    between, and it is measured before it takes more room than there is.
    """
    rows = view[name]
    head = {key: value for key, value in view.items() if key != name}
    pieces, size = [bytes_of_text(_encode({**head, name: []})).removesuffix(b"]}")], 0
    for at in range(0, len(rows), _AT_ONCE):
        if at:
            pieces.append(b",")
            await asyncio.sleep(0)
        pieces.append(encode_json(rows[at : at + _AT_ONCE])[1:-1])
        size += len(pieces[-1])
        measure(size)
    pieces.append(b"]}")
    return Response(b"".join(pieces), media_type="application/json")


def read_filter(query: QueryParams, sight: Sight) -> Filter:
    """The filter of a query, within what the asker may see."""
    states = [
        state.strip().upper() for text in query.getlist("state") for state in text.split(",") if state.strip()
    ]
    for state in states:
        if state not in _STATES:
            raise Problem(422, f"unknown state {quote(state)}; {suggest(state, _STATES, 'states')}")
    tenant, user, name, cluster = [
        read_text(each, query.get(each, ""), _TEXT_MAX) for each in ("tenant", "user", "name", "cluster")
    ]
    return Filter(frozenset(states), tenant, user, name, cluster, sight=sight)


def limit_of(query: QueryParams, most: int = PAGE_MAX, default: int = LIMIT) -> int:
    """How many on a page."""
    text = query.get("limit")
    return default if text is None else read_number("limit", text, 1, most)


def read_number(name: str, text: str, least: int, most: int) -> int:
    """A whole number of the query."""
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or not least <= int(text) <= most:
        raise Problem(422, f"{name!r} must be a whole number from {least} to {most}, not {quote(text)}")
    return int(text)


def read_text(name: str, text: str, most: int, about: str = "") -> str:
    """A text of the query; `about`: what it is, for one that is too long."""
    if "\0" in text:
        raise Problem(422, f"{name!r} holds a NUL character, which no name has")
    if len(text) > most:
        raise Problem(422, f"{name!r} has {len(text):,} characters, and may have at most {most:,}", about)
    return text


def id_cursor(before_id: int | None) -> str | None:
    """Where the next page begins, for the client to send back as it is."""
    return (
        None if before_id is None else base64.urlsafe_b64encode(f"b{before_id}".encode()).decode().rstrip("=")
    )


def read_cursor(query: QueryParams) -> int | None:
    """Where a page begins."""
    text = query.get("cursor")
    if not text:
        return None
    try:
        plain = base64.urlsafe_b64decode(text[:64] + "=" * (-len(text[:64]) % 4)).decode("ascii")
        if plain[:1] != "b" or not plain[1:].isdecimal() or int(plain[1:]) > _ID_MAX:
            raise ValueError(plain)
        return int(plain[1:])
    except ValueError:
        raise Problem(
            422, f"{quote(text)} is not a cursor", "Send back `next_cursor` of the page before."
        ) from None


Handler = Callable[..., Awaitable[Response]]
Handlers = Mapping[Endpoint, Handler]

ACTION = "x-gpuyard-action"
REPEATED = frozenset({"state"})
"""Parameters of a query that may be given more than once."""
_PROBLEMS = {
    400: "The request cannot be read",
    401: "The request carries no valid token or session",
    403: "You may not do this",
    404: "No such thing exists, or you may not see it",
    409: "The request conflicts with the present state",
    410: "It was removed: see `retention` in yard.yaml",
    413: "The body is too large",
    415: "The body is not JSON",
    422: "The request is understood and cannot be served",
    426: "This is served only over a WebSocket",
    429: "Too many requests; `Retry-After` says when to try again",
    503: "The server cannot serve this now; try again later",
}
_ALWAYS = (401, 403, 422, 429, 503)
_WITH_BODY = (400, 413, 415)
_OPEN = (429, 503)
_PROBLEM = "ProblemReply"


def serve(app: FastAPI, handlers: Handlers) -> None:
    """Serve endpoints, each by its handler, and describe them."""
    for endpoint, handler in handlers.items():
        _add(app, endpoint, handler)
    _describe(app, handlers)


def _add(app: FastAPI, endpoint: Endpoint, handler: Handler) -> None:
    open_ = endpoint.action is Action.ANYBODY
    codes = {*(_OPEN if open_ else _ALWAYS), *endpoint.problems, *(_WITH_BODY if endpoint.body else ())}
    extra: dict[str, Any] = {ACTION: endpoint.action.value, "parameters": list(endpoint.parameters)}
    if not open_:
        extra["security"] = [{"token": []}]
    if endpoint.body:
        content = {"application/json": {"schema": reply_schemas.ref(endpoint.body)}}
        extra["requestBody"] = {"required": endpoint.body_required, "content": content}
    paragraph = (handler.__doc__ or "Done.").strip().partition("\n\n")[0]
    text = " ".join(paragraph.split())
    app.add_api_route(
        endpoint.path,
        handler,
        methods=[endpoint.method],
        status_code=endpoint.status,
        summary=endpoint.summary,
        response_model=None,
        response_class=Response,
        responses={
            endpoint.status: _reply(text, endpoint.reply, endpoint.also),
            **{code: _problem(code) for code in sorted(codes)},
            **{code: _reply(text, each) for code, each in endpoint.others.items()},
        },
        openapi_extra=extra,
        dependencies=[] if open_ else [Depends(_needs(endpoint.action)), Depends(_takes(endpoint))],
        name=endpoint.name or None,
        tags=[endpoint.tag],
    )


def _reply(text: str, reply: str, also: Iterable[str] = ()) -> dict[str, Any]:
    content = {"application/json": {"schema": reply_schemas.ref(reply)}} if reply else {}
    return {"description": text, "content": content | {kind: {"schema": {"type": "string"}} for kind in also}}


def _problem(code: int) -> dict[str, Any]:
    return {"description": _PROBLEMS[code], "content": {MEDIA_TYPE: {"schema": reply_schemas.ref(_PROBLEM)}}}


def _needs(action: Action) -> Callable[[Request], Awaitable[None]]:
    async def allowed(request: Request) -> None:
        person = get_asker(request.scope)
        check_ever(person.name, person.rights, action)

    return allowed


def _takes(endpoint: Endpoint) -> Callable[[Request], Awaitable[None]]:
    """Refuse a query that names what the endpoint does not have, or says something twice: neither would count."""
    names = [each["name"] for each in endpoint.parameters if each["in"] == "query"]

    async def known(request: Request) -> None:
        given = [name for name, _value in request.query_params.multi_items()]
        for name in given:
            if name not in names:
                there = f"There are: {', '.join(names)}." if names else "It takes none."
                raise Problem(422, f"{endpoint.method} {endpoint.path} has no parameter {quote(name)}", there)
            if given.count(name) > 1 and name not in REPEATED:
                raise Problem(422, f"the parameter {quote(name)} is given more than once", "Give it once.")

    return known


def find_body(name: str) -> type[BaseModel]:
    """The form of a body, by its name."""
    return next(vars(module)[name] for module in (schemas, node_bodies) if name in vars(module))


def _describe(app: FastAPI, endpoints: Iterable[Endpoint]) -> None:
    """Put the forms that the endpoints name into the description of the API."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = made()
            bodies = {each.body for each in endpoints if each.body}
            models = [find_body(name) for name in sorted(bodies)]
            _, defs = models_json_schema(
                [(each, "validation") for each in models], ref_template=reply_schemas.REFS
            )
            replies = [reply_schemas.find_form(each) for each in endpoints if each.reply]
            parts = found.setdefault("components", {})
            parts["schemas"] = {
                **parts.get("schemas", {}),
                **defs.get("$defs", {}),
                **reply_schemas.make_schemas([reply_schemas.find_form(_PROBLEM), *replies]),
            }
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
