"""Explanations over HTTP: why a job waits, now or then, and the shares of the tenants."""

from fastapi import Request, Response

from gpuyard.api.edge.pace import in_thread
from gpuyard.api.edge.peers import asker
from gpuyard.api.edge.routes import Handlers
from gpuyard.api.edge.turns import Turns
from gpuyard.api.edge.wire import answer, number_of
from gpuyard.control.replica.labels import label_of
from gpuyard.control.serve import Yard
from gpuyard.control.views.explained import Explained
from gpuyard.wire import endpoints
from gpuyard.wire.job_fields import TIME_MS_MAX


def handlers(yard: Yard, turns: Turns) -> Handlers:
    """`/jobs/{id}/why` and `/share`."""
    api = _Why(yard, turns)
    return {endpoints.WHY: api.why, endpoints.SHARE: api.share}


class _Why:
    """Handlers."""

    def __init__(self, yard: Yard, turns: Turns) -> None:
        self._explained = Explained(yard.books, yard.now_ms, yard.said, yard.think)
        self._turns = turns

    async def why(self, request: Request, id: str) -> Response:
        """Every blocker with its lift: with all of them lifted the job starts, without any one it does not."""
        at = request.query_params.get("at_ms")
        at_ms = None if at is None else number_of("at_ms", at, 0, TIME_MS_MAX)
        label, person = label_of(id), asker(request.scope)
        async with self._turns.of(person):
            return answer(await in_thread(self._explained.why, label, at_ms, person.sight))

    async def share(self, request: Request) -> Response:
        """`tenant`: only that one, with all above and below it."""
        tenant = request.query_params.get("tenant", "")
        person = asker(request.scope)
        async with self._turns.of(person):
            return answer(await in_thread(self._explained.share, tenant, person.sight))
