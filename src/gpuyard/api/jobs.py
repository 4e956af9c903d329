"""Jobs over HTTP: hand in, look at, ask for something about."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from gpuyard.api.bodies import bytes_of, object_of
from gpuyard.api.peers import asker
from gpuyard.api.problems import Problem, problem_of
from gpuyard.api.schemas import CheckpointRequest, JobReply, JobRequest, ManyRequest, checked
from gpuyard.api.wire import answer, cursor_of, filter_of, id_cursor, limit_of
from gpuyard.control.desk import Gone
from gpuyard.control.labels import label_of
from gpuyard.control.people import Person
from gpuyard.control.refusals import Impossible
from gpuyard.control.serve import Yard
from gpuyard.model import Verb
from gpuyard.store import Idempotency

KEY_LENGTH_MAX = 200
T = TypeVar("T")

_PROBLEM = {"description": "What is wrong and what to do", "content": {"application/problem+json": {}}}


def routes(yard: Yard) -> APIRouter:
    """Everything under /jobs."""
    router = APIRouter(tags=["jobs"])
    api = Jobs(yard)
    schema = JobRequest.model_json_schema(ref_template="#/components/schemas/{model}")
    router.add_api_route(
        "/jobs",
        api.submit,
        methods=["POST"],
        status_code=201,
        summary="Submit a job",
        response_model=None,
        responses={
            201: {"model": JobReply, "description": "It is on disk."},
            **dict.fromkeys((400, 401, 409, 413, 415, 422, 503), _PROBLEM),
        },
        openapi_extra={
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "parameters": [
                {
                    "name": "Idempotency-Key",
                    "in": "header",
                    "schema": {"type": "string", "maxLength": KEY_LENGTH_MAX},
                    "description": "Your own name for this request: sending it again does not submit again.",
                }
            ],
        },
    )
    router.add_api_route(
        "/jobs", api.page, methods=["GET"], summary="Jobs, newest first", response_model=None
    )
    router.add_api_route("/jobs/{id}", api.show, methods=["GET"], summary="One job", response_model=None)
    router.add_api_route(
        "/jobs/{id}",
        api.cancel,
        methods=["DELETE"],
        status_code=202,
        summary="Cancel a job",
        response_model=None,
    )
    router.add_api_route(
        "/jobs/{id}/checkpoint",
        api.checkpoint,
        methods=["POST"],
        status_code=202,
        summary="Say that a running job has saved its work",
        response_model=None,
    )
    for verb in Verb:
        router.add_api_route(
            f"/jobs/{verb.value}",
            api.many(verb),
            methods=["POST"],
            status_code=200,
            summary=f"{verb.value.capitalize()} many jobs",
            response_model=None,
            name=f"many_{verb.value}",
        )
        router.add_api_route(
            f"/jobs/{{id}}/{verb.value}",
            api.ask(verb),
            methods=["POST"],
            status_code=202,
            summary=f"{verb.value.capitalize()} a job",
            response_model=None,
            name=f"ask_{verb.value}",
        )
    return router


class Jobs:
    """Handlers. Whatever waits for the books or the disk does so in another thread or by a future."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard

    async def submit(self, request: Request) -> Response:
        """Accept a job. When this answers 201 the job is on disk and will not be lost."""
        who = asker(request.scope)
        body = await bytes_of(request)
        new = checked(JobRequest, object_of(request, body)).new_job()
        key = _key(request, who, body)
        accepted = await asyncio.wrap_future(self._yard.desk.submit(who, new, key))
        replayed = {"Idempotency-Replayed": "true"} if accepted.replayed else {}
        location = f"/api/v1/jobs/{accepted.first_id}"
        return answer(accepted.reply, 201, {"Location": location, **replayed})

    async def show(self, request: Request, id: str, explain: bool = True) -> Response:
        """A job, live or ended; for one that waits, everything that is in its way."""
        label = label_of(id)
        return answer(await run_in_threadpool(self._yard.views.job, label, explained=explain))

    async def page(self, request: Request) -> Response:
        """A page of jobs. `state` may be given several times or as a list with commas."""
        query = request.query_params
        wanted, limit, before = filter_of(query), limit_of(query), cursor_of(query)
        found, more = await run_in_threadpool(self._yard.views.jobs, wanted, before, limit)
        return answer({"jobs": found, "next_cursor": id_cursor(more)})

    async def cancel(self, request: Request, id: str) -> Response:
        """Cancel a job, or all live tasks of an array."""
        return await self._ask(request, Verb.CANCEL, id)

    async def checkpoint(self, request: Request, id: str) -> Response:
        """For jobs that save their work elsewhere than in the file named by YARD_CHECKPOINT_FILE."""
        body = await bytes_of(request)
        said = (
            checked(CheckpointRequest, object_of(request, body))
            if body
            else CheckpointRequest(saved_at_ms=None)
        )
        asked = self._yard.desk.checkpoint(asker(request.scope), id, said.saved_at_ms)
        return answer(await self._or_ended(asked, id), 202)

    def ask(self, verb: Verb) -> Callable[..., Awaitable[Response]]:
        """The handler of one verb."""

        async def handler(request: Request, id: str) -> Response:
            return await self._ask(request, verb, id)

        return handler

    def many(self, verb: Verb) -> Callable[..., Awaitable[Response]]:
        """The handler of one verb for many jobs: an answer for each, in their order."""

        async def handler(request: Request) -> Response:
            wanted = checked(ManyRequest, object_of(request, await bytes_of(request)))
            who = asker(request.scope)
            asked = [self._one(who, verb, str(each)) for each in wanted.ids]
            return answer({"results": list(await asyncio.gather(*asked))})

        return handler

    async def _one(self, who: Person, verb: Verb, text: str) -> dict[str, Any]:
        try:
            done = await self._request(who, verb, text)
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                raise
            return {"label": text, "status": problem.status, "detail": problem.detail, "hint": problem.hint}
        return {**done, "status": 202}

    async def _ask(self, request: Request, verb: Verb, text: str) -> Response:
        return answer(await self._request(asker(request.scope), verb, text), 202)

    async def _request(self, who: Person, verb: Verb, text: str) -> dict[str, Any]:
        return await self._or_ended(self._yard.desk.request(who, verb, text), text)

    async def _or_ended(self, asked: "Future[dict[str, Any]]", text: str) -> dict[str, Any]:
        try:
            done = await asyncio.wrap_future(asked)
        except Gone:
            # It has ended, or never was: the history knows.
            view = await run_in_threadpool(self._yard.views.job, label_of(text))
            state = view["state"]
            raise Impossible(f"job {view['label']} has ended already: {state}") from None
        return done


def _key(request: Request, who: Person, body: bytes) -> Idempotency | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not key.strip() or len(key) > KEY_LENGTH_MAX or not key.isascii() or not key.isprintable():
        raise Problem(
            400,
            f"the Idempotency-Key must be 1 to {KEY_LENGTH_MAX} printable ASCII characters",
            "A random UUID is a good one.",
        )
    return Idempotency(str(who.uid), key, hashlib.sha256(body).hexdigest())
