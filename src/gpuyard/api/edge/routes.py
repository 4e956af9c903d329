"""How a route is made of an endpoint of the table and the handler that answers it, and how it is described.

The endpoint's action is checked before the handler runs, as far as it is known by then: whether this person may do it
to anything at all. For a given job the handler asks the same table of rights (`control/access/rights.py`).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from pydantic.json_schema import models_json_schema

from gpuyard.api.edge.peers import asker
from gpuyard.api.messages import schemas
from gpuyard.api.messages.problems import MEDIA_TYPE
from gpuyard.control.access.rights import may_ever
from gpuyard.control.refusals import Forbidden
from gpuyard.wire import described
from gpuyard.wire.actions import DOES, Action
from gpuyard.wire.endpoints import Endpoint

Handler = Callable[..., Awaitable[Response]]
Handlers = Mapping[Endpoint, Handler]

ACTION = "x-gpuyard-action"
_PROBLEMS = {
    400: "The request cannot be read",
    401: "It does not say who asks",
    403: "Somebody else may ask for this",
    404: "There is no such thing, or it is not yours to see",
    409: "It makes no sense in the present state",
    410: "It was there, and was removed: see `retention` in yard.yaml",
    413: "The body is too large",
    415: "The body is not JSON",
    422: "It is understood and cannot be served",
    426: "It is served over a WebSocket alone",
    429: "Too often; `Retry-After` says when to come back",
    503: "Not now; asking again later helps",
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
        content = {"application/json": {"schema": described.ref(endpoint.body)}}
        extra["requestBody"] = {"required": endpoint.body_required, "content": content}
    text = (handler.__doc__ or "Done.").strip().splitlines()[0]
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
        dependencies=[] if open_ else [Depends(_needs(endpoint.action))],
        name=endpoint.name or None,
        tags=[endpoint.tag],
    )


def _reply(text: str, reply: str, also: Iterable[str] = ()) -> dict[str, Any]:
    content = {"application/json": {"schema": described.ref(reply)}} if reply else {}
    return {"description": text, "content": content | {kind: {"schema": {"type": "string"}} for kind in also}}


def _problem(code: int) -> dict[str, Any]:
    return {"description": _PROBLEMS[code], "content": {MEDIA_TYPE: {"schema": described.ref(_PROBLEM)}}}


def _needs(action: Action) -> Callable[[Request], Awaitable[None]]:
    async def allowed(request: Request) -> None:
        person = asker(request.scope)
        if not may_ever(person.rights, action):
            has = ", ".join(map(str, person.rights)) or "nobody here"
            raise Forbidden(f"{person.name} may not {DOES[action]}: {has}", "Ask an admin of the yard.")

    return allowed


def _describe(app: FastAPI, endpoints: Iterable[Endpoint]) -> None:
    """Put the forms that the endpoints name into the description of the API."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = made()
            bodies = {each.body for each in endpoints if each.body}
            models = [getattr(schemas, name) for name in sorted(bodies)]
            _, defs = models_json_schema(
                [(each, "validation") for each in models], ref_template=described.REFS
            )
            replies = [described.form(each) for each in endpoints if each.reply]
            parts = found.setdefault("components", {})
            parts["schemas"] = {
                **parts.get("schemas", {}),
                **defs.get("$defs", {}),
                **described.schemas([described.form(_PROBLEM), *replies]),
            }
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
