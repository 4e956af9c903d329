"""Removing what is too old over HTTP: as much as one request may take, and where to go on."""

from fastapi import APIRouter, Request, Response

from gpuyard.api.bodies import bytes_of, object_of
from gpuyard.api.pace import in_thread
from gpuyard.api.peers import asker
from gpuyard.api.prune_replies import PruneReply, PruneRequest
from gpuyard.api.routes import add
from gpuyard.api.schemas import checked
from gpuyard.api.wire import answer
from gpuyard.control.retention import Place, Wish, place_of
from gpuyard.control.rights import Action
from gpuyard.control.serve import Yard
from gpuyard.model.units import SECOND_MS


def routes(yard: Yard) -> APIRouter:
    """`/prune`."""
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

    add(router, "POST", "/prune", prune, Action.PRUNE, "Remove what is kept of old jobs", PruneReply,
        body=PruneRequest, body_required=False)  # fmt: skip
    return router
