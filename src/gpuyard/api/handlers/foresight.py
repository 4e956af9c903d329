"""Questions that take long: why a job waits, when it will start, what a job would become; the shares of the tenants."""

from collections.abc import Callable
from typing import Any

from fastapi import Request, Response

from gpuyard.api.edge.peers import get_asker
from gpuyard.api.edge.routes import Handlers, answer, read_number
from gpuyard.api.edge.throttle import Turns, run_in_thread
from gpuyard.api.edge.unread import make_room
from gpuyard.api.handlers.jobs import revise, wait_for_nodes
from gpuyard.api.messages.bodies import parse_object, read_bytes, told_when_gone
from gpuyard.api.messages.problems import Problem
from gpuyard.api.messages.schemas import ChangeRequest, JobRequest, ReadRequest, check_value, read_body
from gpuyard.control.access.people import Person
from gpuyard.control.commands.wishes import Gone
from gpuyard.control.foresight.ahead import SEED, Foresights
from gpuyard.control.forking import Wanted
from gpuyard.control.replica.labels import parse_label
from gpuyard.control.serve import Yard
from gpuyard.control.views.explanations import Explained
from gpuyard.errors import BadInput
from gpuyard.intake.job_texts import understand
from gpuyard.wire import endpoints
from gpuyard.wire.endpoints import SEED_MAX
from gpuyard.wire.job_fields import TIME_MS_MAX

_GROWS = 4
"""How much longer a text is in native form, about."""


def handlers(yard: Yard, turns: Turns) -> Handlers:
    """`/jobs/{id}/why`, `/jobs/{id}/eta`, `/jobs/dry-run`, `/jobs/read` and `/share`."""
    explained = Explained(
        yard.replica, yard.now_ms, yard.opened.reason, yard.think, yard.opened.scheduler_name
    )
    reading = Turns("texts to be read", at_once=1)
    ahead = Foresights(yard.replica, yard.requests, yard.views, yard.think, yard.now_ms)

    async def in_turn(person: Person, ask: Callable[..., Any], *values: Any) -> Response:
        async with turns.of(person):
            return answer(await run_in_thread(ask, *values))

    async def why(request: Request, id: str) -> Response:
        """Every blocker with its lift: the job starts once all of them are lifted, and not before."""
        at, person = request.query_params.get("at_ms"), get_asker(request.scope)
        at_ms = None if at is None else read_number("at_ms", at, 0, TIME_MS_MAX)
        return await in_turn(person, explained.why, parse_label(id), at_ms, person.sight)

    async def share(request: Request) -> Response:
        """`tenant`: only this tenant, with all tenants above and below it."""
        tenant, person = request.query_params.get("tenant", ""), get_asker(request.scope)
        return await in_turn(person, explained.share, tenant, person.sight)

    async def eta(request: Request, id: str) -> Response:
        """By when a waiting job starts in half of the simulated runs, and in nine of ten. `seed` seeds their random
        draws."""
        label, text, person = parse_label(id), request.query_params.get("seed"), get_asker(request.scope)
        seed = SEED if text is None else read_number("seed", text, 0, SEED_MAX)
        return await in_turn(person, ahead.estimate, label, seed, person.sight)

    async def dry_run(request: Request) -> Response:
        """Whether the yard would take the job, where and when it would start and what it would cost."""
        person = get_asker(request.scope)
        new = check_value(JobRequest, parse_object(await read_bytes(request))).new_job()
        await wait_for_nodes(yard)
        return await in_turn(person, ahead.rehearse, person, new)

    async def rehearse_update(request: Request, id: str) -> Response:
        """Whether the job may be changed like that, and where and when it would start; of an array, the next task."""
        person = get_asker(request.scope)
        change = check_value(ChangeRequest, parse_object(await read_bytes(request))).change()
        try:
            return await in_turn(person, ahead.rehearse_change, person, change, id, revise)
        except Gone:
            label = parse_label(id)
            raise (await run_in_thread(yard.views.ends, [label], person.sight))[label] from None

    async def read_jobs(request: Request) -> Response:
        """Every job of a text in native form, with warnings about what has no counterpart."""
        wanted = await read_body(ReadRequest, request, required=True)
        asked = (wanted.text, wanted.name, wanted.cwd, wanted.host_process, yard.now_ms())
        still = Wanted()
        try:
            async with told_when_gone(request, still.give_up), reading.of(get_asker(request.scope)):
                await make_room(_GROWS * len(wanted.text))
                body = await run_in_thread(yard.parse.read_while, still, understand, *asked)
        except BadInput as error:
            raise Problem(422, error.message, error.hint, kind="unacceptable") from None
        return Response(body, media_type="application/json")

    return {
        endpoints.WHY: why,
        endpoints.SHARE: share,
        endpoints.ETA: eta,
        endpoints.DRY_RUN: dry_run,
        endpoints.REHEARSE_UPDATE: rehearse_update,
        endpoints.READ: read_jobs,
    }
