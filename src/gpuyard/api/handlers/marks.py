"""Labels and taints of nodes over HTTP."""

import asyncio

from fastapi import Request, Response

from gpuyard.api.edge.peers import get_asker
from gpuyard.api.edge.routes import Handlers, answer
from gpuyard.api.edge.throttle import run_in_thread
from gpuyard.api.messages.node_bodies import MarkRequest
from gpuyard.api.messages.schemas import read_body
from gpuyard.control.commands.marks import MarkRequests
from gpuyard.control.serve import Yard
from gpuyard.wire import endpoints


def handlers(yard: Yard) -> Handlers:
    """`/nodes/marks` and `/nodes/{name}/marks`."""
    api = _Marks(yard)
    return {endpoints.MARKS: api.view, endpoints.LIVE_MARKS: api.live, endpoints.MARK: api.mark}


class _Marks:
    """Handlers."""

    def __init__(self, yard: Yard) -> None:
        self._requests = MarkRequests(yard.replica, yard.committer, yard.now_ms, yard.opened.observed)

    async def view(self, request: Request, name: str) -> Response:
        """A label or a taint is one that `every node` has, or the `engine`, `yard.yaml` or somebody `live` says so."""
        return answer(await run_in_thread(self._requests.view, name))

    async def live(self, request: Request) -> Response:
        """What was set with `yard label` and `yard taint` and holds until it is reset."""
        return answer(await run_in_thread(self._requests.live))

    async def mark(self, request: Request) -> Response:
        """It holds until it is set otherwise or reset, whatever the configuration says then."""
        wanted = (await read_body(MarkRequest, request, required=True)).wanted()
        return answer(await asyncio.wrap_future(self._requests.mark(get_asker(request.scope), wanted)))
