"""The application: routes under /api/v1, health outside it, and one form for everything that goes wrong."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from gpuyard import __version__
from gpuyard.api.edge.open_streams import OpenStreams
from gpuyard.api.edge.peers import Quick, find_asker, get_asker
from gpuyard.api.edge.pulse import AsyncNotifier
from gpuyard.api.edge.routes import Handler, Handlers, answer, serve
from gpuyard.api.edge.throttle import App, Turns, run_in_thread
from gpuyard.api.edge.unread import REPORT_BYTES, make_room
from gpuyard.api.handlers import (
    access,
    browsers,
    changes,
    configs,
    foresight,
    jobs,
    layouts,
    lists,
    marks,
    pruning,
    reports,
    samples,
    streams,
    terminals,
)
from gpuyard.api.handlers.front import make_front, serve_asset
from gpuyard.api.messages.problems import Problem, find_problem
from gpuyard.control.serve import Yard
from gpuyard.control.views.metrics import Metrics
from gpuyard.engines.contract import EngineError
from gpuyard.errors import YardError
from gpuyard.garbage import strip_traceback
from gpuyard.telemetry.exposition import MEDIA_TYPE, OPEN_MEDIA_TYPE
from gpuyard.wire import endpoints
from gpuyard.wire.endpoints import Action
from gpuyard.wire.replies.people import HealthReply, VersionReply

_log = logging.getLogger(__name__)


def build(yard: Yard) -> FastAPI:
    """The API of one yard. The asker is identified before it (`peers.AuthMiddleware`)."""

    # One line for all requests that take long to compute.
    turns = Turns("questions that take thought", at_once=2)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.pulse = AsyncNotifier(yard.store.wait, yard.store.head)
        app.state.streams = OpenStreams(yard, app.state.pulse)
        yield
        app.state.streams.close()
        app.state.pulse.close()

    app = FastAPI(
        title="gpuyard",
        version=__version__,
        description="Submit jobs to shared GPUs, see where they stand and why, act on them.",
        openapi_url=endpoints.DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    serve(
        app,
        {
            **streams.handlers(yard),
            **terminals.handlers(yard),
            **changes.handlers(yard),
            **foresight.handlers(yard, turns),
            **jobs.handlers(yard, turns),
            **lists.handlers(yard),
            **layouts.handlers(yard),
            **marks.handlers(yard),
            **configs.handlers(yard),
            **pruning.handlers(yard),
            **access.handlers(yard),
            **browsers.handlers(yard),
            **reports.handlers(yard),
            **samples.handlers(yard),
            **_health(yard),
            endpoints.FRONT: make_front(yard),
            endpoints.ASSET: serve_asset,
        },
    )
    for kind in (Problem, YardError, EngineError, Exception):
        app.add_exception_handler(kind, _explained)
    app.add_exception_handler(HTTPException, _not_served)
    app.add_exception_handler(RequestValidationError, _not_understood)
    return app


def make_quick(yard: Yard) -> Quick:
    """Routes that bypass the framework's layers: submissions and samples, which clients send by the thousand."""
    # A submission waits for no turn: this line stays empty.
    submit = jobs.Jobs(yard, Turns("questions", at_once=1)).submit
    take = samples.handlers(yard)[endpoints.SAMPLES]
    before, after = endpoints.SAMPLES.path.split("{name}")

    def served(handler: Handler, *words: str) -> App:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            request = Request(scope, receive)
            try:
                response = await handler(request, *words)
            except Exception as error:
                response = await _explained(request, error)
            await response(scope, receive, send)

        return app

    submission = served(submit)

    def found(method: str, path: str) -> App | None:
        if method != "POST":
            return None
        if path == endpoints.SUBMIT.path:
            return submission
        if path.startswith(before) and path.endswith(after):
            name = path[len(before) : -len(after)]
            return served(take, name) if name and "/" not in name else None
        return None

    return found


def _health(yard: Yard) -> Handlers:
    figures = Metrics(
        yard.replica,
        yard.views.reading,
        yard.leader.standing,
        yard.watch,
        yard.projections,
        yard.shippers,
        yard.duties,
        yard.readiness,
        yard.now_ms,
    )

    async def healthz() -> Response:
        """The server process runs."""
        told: HealthReply = {"ok": True}
        return answer(told)

    async def readyz(request: Request) -> Response:
        """The server can do its work; if not, the reason."""
        ready, how = await run_in_thread(yard.readiness)
        person = find_asker(request.scope)
        if person is None or not person.may(Action.SEE_ALL, ""):
            # Where the store is and what troubles it is not for every client that can reach the port.
            how = {"ready": how["ready"], "role": how["role"], "reason": how["reason"]}
        return answer(how, 200 if ready else 503)

    async def metrics(request: Request) -> Response:
        """For Prometheus, with a token if the server asks for one. Jobs of tenants that you may not see are left
        out."""
        sight = get_asker(request.scope).sight
        wants_open = "application/openmetrics-text" in request.headers.get("accept", "")

        def made() -> bytes:
            return figures.text(sight, as_open=wants_open).encode()

        await make_room(REPORT_BYTES)
        kind = OPEN_MEDIA_TYPE if wants_open else MEDIA_TYPE
        return Response(await run_in_thread(made), media_type=kind, headers={"Vary": "Accept"})

    async def version() -> Response:
        """The release of this server, and its yard."""
        told: VersionReply = {"version": __version__, "api": "v1", "yard": yard.store.yard}
        return answer(told)

    return {
        endpoints.HEALTH: healthz,
        endpoints.READY: readyz,
        endpoints.METRICS: metrics,
        endpoints.VERSION: version,
    }


async def _explained(request: Request, error: Exception) -> Response:
    problem = find_problem(error)
    if problem is None:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        problem = Problem(500, "this is a defect of the yard; its log has the details", "Please report it.")
    else:
        strip_traceback(error)
    return problem.response()


async def _not_served(request: Request, error: Any) -> Response:
    text = {
        404: f"there is nothing at {request.url.path[:200]}",
        405: f"{request.method} is not for {request.url.path[:200]}",
    }.get(error.status_code, str(error.detail))
    hint = f"{endpoints.DESCRIPTION} lists all paths."
    return Problem(error.status_code, text, hint, headers=error.headers).response()


async def _not_understood(_request: Request, error: Any) -> Response:
    said = [f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors()[:10]]
    return Problem(422, "; ".join(said), kind="unacceptable").response()
