"""Jobs over HTTP: hand in, look at, ask for something about."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from gpuyard.api.bodies import bytes_of, object_of, said_in
from gpuyard.api.discretion import discreet, listed
from gpuyard.api.peers import asker
from gpuyard.api.problems import Problem, problem_of
from gpuyard.api.replies import AskedReply, CheckpointReply, JobsReply, JobView, ManyReply, RecipeReply
from gpuyard.api.routes import CURSOR, NAME, STATE, TENANT, USER, add, header, limit
from gpuyard.api.schemas import CheckpointRequest, JobReply, JobRequest, ManyRequest, checked
from gpuyard.api.wire import answer, cursor_of, filter_of, id_cursor, limit_of
from gpuyard.control.desk import Gone
from gpuyard.control.labels import label_of
from gpuyard.control.people import Person
from gpuyard.control.refusals import Forbidden, Impossible
from gpuyard.control.rights import MOVES, Action
from gpuyard.control.serve import Yard
from gpuyard.control.used import used
from gpuyard.control.views import PAGE_MAX
from gpuyard.model import Verb
from gpuyard.store import Idempotency

KEY_LENGTH_MAX = 200
T = TypeVar("T")


def routes(yard: Yard) -> APIRouter:
    """Everything under /jobs."""
    router = APIRouter(tags=["jobs"])
    api = Jobs(yard)
    key = header(
        "Idempotency-Key",
        "Your own name for this request: sending it again does not submit again.",
        maxLength=KEY_LENGTH_MAX,
    )
    add(router, "POST", "/jobs", api.submit, Action.SUBMIT, "Submit a job", JobReply, status=201, body=JobRequest,
        parameters=(key,), problems=(409,))  # fmt: skip
    add(router, "GET", "/jobs", api.page, Action.SEE_JOB, "Jobs, newest first", JobsReply,
        parameters=(STATE, TENANT, USER, NAME, limit(PAGE_MAX), CURSOR))  # fmt: skip
    add(router, "GET", "/jobs/{id}", api.show, Action.SEE_JOB, "One job", JobView, problems=(404,))
    add(router, "GET", "/jobs/{id}/recipe", api.recipe, Action.READ_JOB,
        "How a job is run: command or script, folder, environment", RecipeReply, problems=(404,))  # fmt: skip
    add(router, "DELETE", "/jobs/{id}", api.cancel, Action.ACT_ON_JOB, "Cancel a job", AskedReply, status=202,
        problems=(404, 409))  # fmt: skip
    add(router, "POST", "/jobs/{id}/checkpoint", api.checkpoint, Action.ACT_ON_JOB,
        "Say that a running job has saved its work", CheckpointReply, status=202, body=CheckpointRequest,
        body_required=False, problems=(404, 409))  # fmt: skip
    for verb in Verb:
        word = verb.value.capitalize()
        action = Action.MOVE_JOB if verb in MOVES else Action.ACT_ON_JOB
        add(router, "POST", f"/jobs/{verb.value}", api.many(verb), action, f"{word} many jobs", ManyReply,
            body=ManyRequest, name=f"many_{verb.value}")  # fmt: skip
        add(router, "POST", f"/jobs/{{id}}/{verb.value}", api.ask(verb), action, f"{word} a job", AskedReply,
            status=202, problems=(404, 409), name=f"ask_{verb.value}")  # fmt: skip
    return router


class Jobs:
    """Handlers. Whatever waits for the books or the disk does so in another thread or by a future."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard

    async def submit(self, request: Request) -> Response:
        """Accept a job. When this answers 201 the job is on disk and will not be lost."""
        who = asker(request.scope)
        body = await bytes_of(request)
        new = checked(JobRequest, object_of(body)).new_job()
        key = _key(request, who, body)
        accepted = await asyncio.wrap_future(self._yard.desk.submit(who, new, key))
        replayed = {"Idempotency-Replayed": "true"} if accepted.replayed else {}
        location = f"/api/v1/jobs/{accepted.first_id}"
        return answer(accepted.reply, 201, {"Location": location, **replayed})

    async def show(self, request: Request, id: str, explain: bool = True) -> Response:
        """A job, live or ended; for one that waits, everything that is in its way."""
        who = asker(request.scope)
        view = await run_in_threadpool(self._yard.views.job, label_of(id), explained=explain, sight=who.sight)
        if not view.get("array"):
            view["used"] = used(view, self._yard.now_ms(), self._price)
        return answer(discreet(who, view))

    def _price(self, node: str) -> int:
        """What an hour of a GPU of a node costs; 0: nobody knows."""
        state = self._yard.books.state
        number = state.node_number.get(node)
        return 0 if number is None else self._yard.fleet.price_micro_usd_h(state.nodes.node[number].gpu_model)

    async def recipe(self, request: Request, id: str) -> Response:
        """For its owner and administrators: arguments and variables hold secrets."""
        who = asker(request.scope)
        view, found = await run_in_threadpool(self._yard.views.recipe, label_of(id), who.sight)
        if not who.may(Action.READ_JOB, view["tenant"], view["user"]):
            raise Forbidden(
                f"job {view['label']} is {view['user']}'s",
                "Only its owner, an admin of its tenant and root may see what it runs.",
            )
        return answer(found)

    async def page(self, request: Request) -> Response:
        """A page of jobs. `state` may be given several times or as a list with commas."""
        query = request.query_params
        who = asker(request.scope)
        wanted, before = filter_of(query, who.sight), cursor_of(query)
        found, more = await run_in_threadpool(self._yard.views.jobs, wanted, before, limit_of(query))
        return answer({"jobs": listed(who, found), "next_cursor": id_cursor(more)})

    async def cancel(self, request: Request, id: str) -> Response:
        """Cancel a job, or all live tasks of an array."""
        return await self._ask(request, Verb.CANCEL, id)

    async def checkpoint(self, request: Request, id: str) -> Response:
        """For jobs that save their work elsewhere than in the file named by YARD_CHECKPOINT_FILE."""
        body = await bytes_of(request)
        said = checked(CheckpointRequest, object_of(body)) if body else CheckpointRequest(saved_at_ms=None)
        asked = self._yard.desk.checkpoint(asker(request.scope), id, said.saved_at_ms)
        return answer(await self._or_ended(asker(request.scope), asked, id), 202)

    def ask(self, verb: Verb) -> Callable[..., Awaitable[Response]]:
        """The handler of one verb."""

        async def handler(request: Request, id: str) -> Response:
            return await self._ask(request, verb, id)

        return handler

    def many(self, verb: Verb) -> Callable[..., Awaitable[Response]]:
        """The handler of one verb for many jobs: an answer for each, in their order."""

        async def handler(request: Request) -> Response:
            wanted = checked(ManyRequest, object_of(await bytes_of(request)))
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
        return await self._or_ended(who, self._yard.desk.request(who, verb, text), text)

    async def _or_ended(self, who: Person, asked: "Future[dict[str, Any]]", text: str) -> dict[str, Any]:
        try:
            done = await asyncio.wrap_future(asked)
        except Gone:
            # It has ended, or never was: the history knows.
            view = await run_in_threadpool(self._yard.views.job, label_of(text), sight=who.sight)
            state = view["state"]
            raise Impossible(
                f"job {view['label']} has ended already: {state}", f"`yard show {view['label']}` tells how."
            ) from None
        return done


def _key(request: Request, who: Person, body: bytes) -> Idempotency | None:
    key = said_in(request.scope, b"idempotency-key")
    if key is None:
        return None
    if not key.strip() or len(key) > KEY_LENGTH_MAX or not key.isascii() or not key.isprintable():
        raise Problem(
            400,
            f"the Idempotency-Key must be 1 to {KEY_LENGTH_MAX} printable ASCII characters",
            "A random UUID is a good one.",
        )
    return Idempotency(who.key, key, hashlib.sha256(body).hexdigest())
