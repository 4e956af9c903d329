"""How a route is added: with its action, which decides which people may ask, and with its reply, for the description.

The action is checked before the handler runs, as far as it is known by then: whether this person may do it to anything
at all. For a given job the handler asks the same table (`control/rights.py`).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gpuyard.api.peers import asker
from gpuyard.api.problems import MEDIA_TYPE
from gpuyard.api.replies import DESCRIBED, ProblemReply
from gpuyard.control.refusals import Forbidden
from gpuyard.control.rights import DOES, Action, may_ever

ACTION = "x-gpuyard-action"
_REFS = "#/components/schemas/{model}"
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
    429: "Too often; `Retry-After` says when to come back",
    503: "Not now; asking again later helps",
}
_ALWAYS = (401, 403, 422, 429, 503)
_WITH_BODY = (400, 413, 415)
_OPEN = (429, 503)


def query(name: str, text: str, kind: str = "string", **more: Any) -> dict[str, Any]:
    """A parameter of the query, for the description."""
    return {"name": name, "in": "query", "description": text, "schema": {"type": kind, **more}}


def header(name: str, text: str, **more: Any) -> dict[str, Any]:
    """A header, for the description."""
    return {"name": name, "in": "header", "description": text, "schema": {"type": "string", **more}}


STATE = query("state", "Only in these states, as PENDING,RUNNING; may be repeated.")
TENANT = query("tenant", "Only this tenant and those below it.", maxLength=512)
USER = query("user", "Only this user's.", maxLength=512)
NAME = query("name", "Only of this name.", maxLength=512)
CURSOR = query("cursor", "`next_cursor` of the page before.")


def limit(most: int, text: str = "At most so many.") -> dict[str, Any]:
    """How many."""
    return query("limit", text, "integer", minimum=1, maximum=most)


def add(
    router: APIRouter | FastAPI,
    method: str,
    path: str,
    handler: Callable[..., Awaitable[Response]],
    action: Action,
    summary: str,
    reply: type[BaseModel] | str | tuple[str, ...] | None,
    *,
    status: int = 200,
    body: type[BaseModel] | None = None,
    body_required: bool = True,
    parameters: tuple[dict[str, Any], ...] = (),
    problems: tuple[int, ...] = (),
    others: Mapping[int, type[BaseModel]] | None = None,
    name: str | None = None,
    tags: list[str] | None = None,
    also: tuple[str, ...] = (),
) -> None:
    """Add a route. `reply` is a model for JSON, or the media type of anything else; `also`: more media types of it."""
    open_ = action is Action.ANYBODY
    codes = {*(_OPEN if open_ else _ALWAYS), *problems, *(_WITH_BODY if body else ())}
    extra: dict[str, Any] = {ACTION: action.value, "parameters": list(parameters)}
    if not open_:
        extra["security"] = [{"token": []}]
    if body is not None:
        content = {"application/json": {"schema": _ref(body)}}
        extra["requestBody"] = {"required": body_required, "content": content}
    router.add_api_route(
        path,
        handler,
        methods=[method],
        status_code=status,
        summary=summary,
        response_model=None,
        response_class=Response,
        responses={
            status: _reply(handler, reply, also),
            **{code: _problem(code) for code in sorted(codes)},
            **{code: _reply(handler, each) for code, each in (others or {}).items()},
        },
        openapi_extra=extra,
        dependencies=[] if open_ else [Depends(_needs(action))],
        name=name,
        tags=list(tags) if tags else None,
    )


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REFS.format(model=model.__name__)}


def _reply(
    handler: Any, reply: type[BaseModel] | str | tuple[str, ...] | None, also: tuple[str, ...] = ()
) -> dict[str, Any]:
    text = (handler.__doc__ or "Done.").strip().splitlines()[0]
    if reply is None:
        return {"description": text}
    if isinstance(reply, str | tuple):
        kinds = (reply,) if isinstance(reply, str) else reply
        return {"description": text, "content": {kind: {"schema": {"type": "string"}} for kind in kinds}}
    content = {
        "application/json": {"schema": _ref(reply)},
        **{kind: {"schema": {"type": "string"}} for kind in also},
    }
    return {"description": text, "content": content}


def _problem(code: int) -> dict[str, Any]:
    return {"description": _PROBLEMS[code], "content": {MEDIA_TYPE: {"schema": _ref(ProblemReply)}}}


def _needs(action: Action) -> Callable[[Request], Awaitable[None]]:
    async def allowed(request: Request) -> None:
        person = asker(request.scope)
        if not may_ever(person.rights, action):
            has = ", ".join(map(str, person.rights)) or "nobody here"
            raise Forbidden(f"{person.name} may not {DOES[action]}: {has}", "Ask an admin of the yard.")

    return allowed


def describe(app: FastAPI) -> None:
    """Put what the routes name into the description of the API."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = made()
            _, defs = models_json_schema([(each, "validation") for each in DESCRIBED], ref_template=_REFS)
            parts = found.setdefault("components", {})
            parts["schemas"] = {**parts.get("schemas", {}), **defs.get("$defs", {})}
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
