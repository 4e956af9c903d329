"""The upkeep of the store over HTTP: removing what is too old, and filling projections again."""

import logging

from fastapi import APIRouter, Request, Response

from gpuyard.api.bodies import bytes_of, object_of
from gpuyard.api.pace import in_thread
from gpuyard.api.peers import asker
from gpuyard.api.replies import ProjectionReply, ProjectionsReply, PruneReply, PruneRequest
from gpuyard.api.routes import add
from gpuyard.api.schemas import checked
from gpuyard.api.wire import answer
from gpuyard.control.retention import Place, Wish, place_of
from gpuyard.control.rights import Action
from gpuyard.control.serve import Yard
from gpuyard.model.units import SECOND_MS

_log = logging.getLogger(__name__)


def routes(yard: Yard) -> APIRouter:
    """`/prune`, `/projections`."""
    router = APIRouter(tags=["store"])

    async def prune(request: Request) -> Response:
        """Live jobs keep everything, and files that jobs named themselves are never touched."""
        body = await bytes_of(request)
        asked = checked(PruneRequest, object_of(body) if body else {})
        older_ms = None if asked.older_than_s is None else asked.older_than_s * SECOND_MS
        wish = Wish(asker(request.scope).name, older_ms, asked.dry_run)
        place = Place() if asked.next is None else place_of(asked.next)
        tally, rest = await in_thread(yard.keeper.some, wish, place)
        removed = {kind: {"count": count, "bytes": size} for kind, (count, size) in tally.counts.items()}
        return answer(
            {"removed": removed, "dry_run": wish.dry_run, "next": None if rest is None else str(rest)}
        )

    async def projections(_request: Request) -> Response:
        """Projections that follow the log; tables that are written with each event need no filling."""
        return answer({"projections": await in_thread(yard.projections.status)})

    async def rebuild(request: Request, name: str) -> Response:
        """As far back as the log reaches, or from a checkpoint where it was cut. It goes on after the answer."""
        await in_thread(yard.projections.rebuild, name)
        _log.info("%s has projection %s filled again", asker(request.scope).name, name)
        found = await in_thread(yard.projections.status)
        return answer(next(each for each in found if each["name"] == name), 202)

    add(router, "GET", "/projections", projections, Action.REBUILD, "How far projections have come",
        ProjectionsReply)  # fmt: skip
    add(router, "POST", "/projections/{name}/rebuild", rebuild, Action.REBUILD, "Fill a projection again",
        ProjectionReply, status=202, problems=(404,))  # fmt: skip
    add(router, "POST", "/prune", prune, Action.PRUNE, "Remove what is kept of old jobs", PruneReply,
        body=PruneRequest, body_required=False)  # fmt: skip
    return router
