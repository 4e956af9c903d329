"""The upkeep of the store over HTTP: removing what is too old, filling projections again, closing months."""

import asyncio
import logging

from fastapi import Request, Response

from gpuyard.api.edge.peers import get_asker
from gpuyard.api.edge.routes import Handlers, answer
from gpuyard.api.edge.throttle import run_in_thread
from gpuyard.api.handlers.reports import read_values
from gpuyard.api.messages.schemas import PruneRequest, read_body
from gpuyard.control.duties.retention import PruneCursor, PruneWish, parse_cursor
from gpuyard.control.serve import Yard
from gpuyard.log_lines import person_extra
from gpuyard.model.units import SECOND_MS
from gpuyard.wire import endpoints
from gpuyard.wire.replies.people import ProjectionsReply, PruneReply

_log = logging.getLogger(__name__)


def handlers(yard: Yard) -> Handlers:
    """`/prune`, `/projections`, `/cost/months`."""

    async def prune(request: Request) -> Response:
        """Live jobs keep everything, and files that jobs named themselves are never removed."""
        asked = await read_body(PruneRequest, request)
        older_ms = None if asked.older_than_s is None else asked.older_than_s * SECOND_MS
        wish = PruneWish(get_asker(request.scope).name, older_ms, asked.dry_run)
        place = PruneCursor() if asked.next is None else parse_cursor(asked.next)
        tally, rest = await run_in_thread(yard.pruner.some, wish, place)
        told: PruneReply = {
            "removed": {
                kind: {"count": count, "bytes": size} for kind, (count, size) in tally.counts.items()
            },
            "dry_run": wish.dry_run,
            "next": None if rest is None else str(rest),
        }
        return answer(told)

    async def projections(_request: Request) -> Response:
        """The projections that follow the log; tables that are written with each event need no filling."""
        told: ProjectionsReply = {"projections": await run_in_thread(yard.projections.status)}
        return answer(told)

    async def rebuild(request: Request, name: str) -> Response:
        """From the start of the log, or from a checkpoint if the log was cut. Filling continues after the answer."""
        await run_in_thread(yard.projections.rebuild, name)
        asked = get_asker(request.scope).name
        _log.info("%s has projection %s filled again", asked, name, extra=person_extra(asked))
        found = await run_in_thread(yard.projections.status)
        return answer(next(each for each in found if each["name"] == name), 202)

    async def close_month(request: Request, month: str) -> Response:
        """What the yard learns about the month later becomes a correction in the open month; its prices stay."""
        dry_run = read_values(endpoints.CLOSE_MONTH, request.query_params)["dry_run"]
        closing = yard.requests.close_month(get_asker(request.scope), month, dry_run=dry_run)
        return answer(await asyncio.wrap_future(closing))

    return {
        endpoints.CLOSE_MONTH: close_month,
        endpoints.PROJECTIONS: projections,
        endpoints.REBUILD: rebuild,
        endpoints.PRUNE: prune,
    }
