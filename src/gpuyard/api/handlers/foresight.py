"""Estimates over HTTP: when a job will start, and what would become of one that is not submitted yet."""

from fastapi import Request, Response

from gpuyard.api.edge.pace import in_thread
from gpuyard.api.edge.peers import asker
from gpuyard.api.edge.routes import Handlers
from gpuyard.api.edge.turns import Turns
from gpuyard.api.edge.wire import answer, number_of
from gpuyard.api.messages.bodies import bytes_of, object_of
from gpuyard.api.messages.schemas import JobRequest, checked
from gpuyard.control.foresight.ahead import SEED, Foresights
from gpuyard.control.replica.labels import label_of
from gpuyard.control.serve import Yard
from gpuyard.wire import endpoints
from gpuyard.wire.endpoints import SEED_MAX


def handlers(yard: Yard, turns: Turns) -> Handlers:
    """`/jobs/{id}/eta` and `/jobs/dry-run`."""
    ahead = Foresights(yard.books, yard.desk, yard.views, yard.think, yard.fleet, yard.now_ms)

    async def eta(request: Request, id: str) -> Response:
        """By when a waiting job starts, in half and in nine of ten runs. `seed`: other draws."""
        label, text = label_of(id), request.query_params.get("seed")
        seed = SEED if text is None else number_of("seed", text, 0, SEED_MAX)
        person = asker(request.scope)
        async with turns.of(person):
            return answer(await in_thread(ahead.estimate, label, seed, person.sight))

    async def dry_run(request: Request) -> Response:
        """The judgement of a submission, where and when it would start and what it would cost."""
        person = asker(request.scope)
        new = checked(JobRequest, object_of(await bytes_of(request))).new_job()
        async with turns.of(person):
            return answer(await in_thread(ahead.rehearse, person, new))

    return {endpoints.ETA: eta, endpoints.DRY_RUN: dry_run}
