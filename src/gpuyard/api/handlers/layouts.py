"""GPUs over HTTP: how they are cut and pinned; what moving jobs would free."""

import asyncio

from fastapi import Request, Response

from gpuyard.api.edge.peers import get_asker
from gpuyard.api.edge.routes import Handlers, answer, read_number
from gpuyard.api.edge.throttle import run_in_thread
from gpuyard.api.messages.node_bodies import MigPlanRequest, PinRequest, ReleaseRequest
from gpuyard.api.messages.schemas import read_body
from gpuyard.control.commands.layouts import LayoutRequests
from gpuyard.control.serve import Yard
from gpuyard.control.views.defragmenting import MOVES_UNSAID, defrag_view
from gpuyard.wire import endpoints


def handlers(yard: Yard) -> Handlers:
    """`/mig`, `/nodes/{name}/mig` and `/defrag`."""
    api = _Layouts(yard)
    return {
        endpoints.MIG: api.view,
        endpoints.MIG_PLAN: api.plan,
        endpoints.MIG_PIN: api.pin,
        endpoints.MIG_RELEASE: api.release,
        endpoints.DEFRAG: api.defrag,
    }


class _Layouts:
    """Handlers."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._requests = LayoutRequests(yard.replica, yard.committer, yard.engines, yard.now_ms)

    async def view(self, request: Request) -> Response:
        """Every node whose GPUs can be cut, with its slices and the layouts that they are pinned to."""
        return answer(await run_in_thread(self._requests.view))

    async def plan(self, request: Request) -> Response:
        """GPU by GPU, with the reason if a layout is impossible. This changes nothing."""
        wanted = await read_body(MigPlanRequest, request)
        asked = [each.wanted() for each in wanted.layouts]
        sight = get_asker(request.scope).sight
        return answer(await run_in_thread(self._requests.plan, wanted.node, asked, sight))

    async def pin(self, request: Request, name: str) -> Response:
        """Either all named GPUs are pinned or none. The pin is in the log when this answers; `/mig` shows when the
        layout is made."""
        wanted = await read_body(PinRequest, request, required=True)
        asked = [each.wanted() for each in wanted.layouts]
        return answer(await asyncio.wrap_future(self._requests.pin(get_asker(request.scope), name, asked)))

    async def release(self, request: Request, name: str) -> Response:
        """A slice stays until it is idle and in the way of a job, or has been idle for a minute."""
        wanted = await read_body(ReleaseRequest, request)
        gpus = None if wanted.gpus is None else tuple(wanted.gpus)
        return answer(await asyncio.wrap_future(self._requests.release(get_asker(request.scope), name, gpus)))

    async def defrag(self, request: Request) -> Response:
        """A plan; this moves nothing."""
        said = request.query_params.get("moves")
        most = MOVES_UNSAID if said is None else read_number("moves", said, 1, endpoints.MOVES_MAX)
        return answer(await run_in_thread(defrag_view, self._yard.replica, self._yard.now_ms, most))
