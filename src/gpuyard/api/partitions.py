"""GPUs over HTTP: what they do, how they are cut, what a layout would do, pins; and what moving jobs would free."""

import asyncio

from fastapi import APIRouter, Request, Response

from gpuyard.api.bodies import bytes_of, object_of
from gpuyard.api.pace import in_thread
from gpuyard.api.partition_replies import (
    DefragReply,
    GpusReply,
    MigPlanReply,
    MigPlanRequest,
    MigReply,
    PinnedReply,
    PinRequest,
    ReleasedReply,
    ReleaseRequest,
)
from gpuyard.api.peers import asker
from gpuyard.api.routes import add, query
from gpuyard.api.schemas import checked
from gpuyard.api.wire import answer, number_of
from gpuyard.control.defragmenting import MOVES_MAX, defrag_view
from gpuyard.control.partitions import Partitions
from gpuyard.control.rights import Action
from gpuyard.control.serve import Yard
from gpuyard.control.signals import gpus_view

_MOVES_MOST = 10_000


def routes(yard: Yard) -> APIRouter:
    """`/gpus`, `/mig`, `/nodes/{name}/mig` and `/defrag`."""
    router = APIRouter(tags=["sharing"])
    api = _Partitions(yard)
    moves = query("moves", "At most so many jobs are moved.", "integer", minimum=1, maximum=_MOVES_MOST)
    add(
        router,
        "GET",
        "/gpus",
        api.gpus,
        Action.SEE_NODES,
        "What GPUs do now, and the jobs on them",
        GpusReply,
    )
    add(router, "GET", "/mig", api.view, Action.SEE_NODES, "How GPUs are cut into MIG slices", MigReply)
    add(router, "POST", "/mig/plan", api.plan, Action.SEE_NODES,
        "What a layout would do to GPUs; without one, what the queue leads to", MigPlanReply, body=MigPlanRequest,
        body_required=False, problems=(404,))  # fmt: skip
    add(router, "POST", "/nodes/{name}/mig", api.pin, Action.MANAGE_NODES, "Pin GPUs of a node to a layout",
        PinnedReply, body=PinRequest, problems=(404, 409))  # fmt: skip
    add(router, "POST", "/nodes/{name}/mig/release", api.release, Action.MANAGE_NODES,
        "Let GPUs be cut by demand again", ReleasedReply, body=ReleaseRequest, body_required=False,
        problems=(404,))  # fmt: skip
    add(router, "GET", "/defrag", api.defrag, Action.MANAGE_NODES,
        "Moves of jobs that would free whole GPUs or nodes, with what they destroy", DefragReply,
        parameters=(moves,))  # fmt: skip
    return router


class _Partitions:
    """Handlers."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._partitions = Partitions(yard.books, yard.committer, yard.engine, yard.now_ms)

    async def gpus(self, request: Request) -> Response:
        """As the driver reports it at this moment."""
        yard = self._yard
        return answer(await in_thread(gpus_view, yard.books, yard.engine, yard.store.yard))

    async def view(self, request: Request) -> Response:
        """Every node that can be cut, with its slices and what it is pinned to."""
        return answer(await in_thread(self._partitions.view))

    async def plan(self, request: Request) -> Response:
        """GPU by GPU, with the reason where a layout is impossible. Nothing is changed."""
        body = await bytes_of(request)
        wanted = checked(MigPlanRequest, object_of(body) if body else {})
        asked = [each.wanted() for each in wanted.layouts]
        sight = asker(request.scope).sight
        return answer(await in_thread(self._partitions.plan, wanted.node, asked, sight))

    async def pin(self, request: Request, name: str) -> Response:
        """All GPUs that are named, or none. It is in the log when this answers; `/mig` says when it is made."""
        wanted = checked(PinRequest, object_of(await bytes_of(request)))
        asked = [each.wanted() for each in wanted.layouts]
        return answer(await asyncio.wrap_future(self._partitions.pin(asker(request.scope), name, asked)))

    async def release(self, request: Request, name: str) -> Response:
        """Slices stay until they are idle and in the way, or have rested for a minute."""
        body = await bytes_of(request)
        wanted = checked(ReleaseRequest, object_of(body) if body else {})
        gpus = None if wanted.gpus is None else tuple(wanted.gpus)
        return answer(await asyncio.wrap_future(self._partitions.release(asker(request.scope), name, gpus)))

    async def defrag(self, request: Request) -> Response:
        """A plan; nothing is moved."""
        said = request.query_params.get("moves")
        most = MOVES_MAX if said is None else number_of("moves", said, 1, _MOVES_MOST)
        return answer(await in_thread(defrag_view, self._yard.books, self._yard.now_ms, most))
