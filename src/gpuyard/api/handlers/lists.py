"""The queue, ended jobs, the overview of a screen, the dump for an administrator; nodes in and out of use.

Lists that are reports come from `handlers/reports.py`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from gpuyard.api.edge.peers import get_asker
from gpuyard.api.edge.routes import (
    Handlers,
    answer,
    answer_list,
    bytes_of_text,
    encode_json,
    id_cursor,
    limit_of,
    read_cursor,
    read_filter,
    read_number,
)
from gpuyard.api.edge.throttle import run_at_leisure, run_in_one_thread, wait_for_room
from gpuyard.api.edge.unread import JOB_BYTES, ROW_BYTES, make_room
from gpuyard.api.handlers.jobs import mask_jobs
from gpuyard.api.messages.node_bodies import DrainRequest
from gpuyard.api.messages.problems import Problem
from gpuyard.api.messages.schemas import read_body
from gpuyard.control.reading.plain_views import total_use_view
from gpuyard.control.serve import Yard
from gpuyard.control.views.accounts import read_owed
from gpuyard.control.views.queue_list import PIECE, QueueList
from gpuyard.control.views.views import ENDED_STATES
from gpuyard.wire import endpoints
from gpuyard.wire.endpoints import QUEUE_MAX
from gpuyard.wire.job_fields import TIME_MS_MAX
from gpuyard.wire.replies.jobs import JobsReply, QueueReply


def handlers(yard: Yard) -> Handlers:
    """Queue, history, and the state for an administrator."""
    api = _Lists(yard)
    return {
        endpoints.QUEUE: api.queue,
        endpoints.HISTORY: api.history,
        endpoints.OVERVIEW: api.overview,
        endpoints.SNAPSHOT: api.snapshot,
        endpoints.DRAIN: api.drain,
        endpoints.RESUME: api.resume,
    }


class _Lists:
    """Handlers."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard

    async def queue(self, request: Request) -> Response:
        """Rows under `columns`, for a listing: ten thousand jobs in one answer. `wide=1` adds columns."""
        query = request.query_params
        wanted = read_filter(query, get_asker(request.scope).sight)
        most = limit_of(query, QUEUE_MAX, QUEUE_MAX)
        wide = read_number("wide", query.get("wide", "0"), 0, 1) == 1

        def begun() -> tuple[Iterator[bytes], bytes | None]:
            found = self._yard.views.queue(wanted, most, wide=wide)
            pieces = _pieces(found)
            return pieces, b"".join(pieces) if found.short else None

        await make_room(min(most, PIECE) * ROW_BYTES)
        pieces, body = await run_in_one_thread(begun)
        if body is not None:
            return Response(body, media_type="application/json")
        return StreamingResponse(_paced(pieces), media_type="application/json")

    async def history(self, request: Request) -> Response:
        """A page of ended jobs. `since_ms`: only jobs that ended at or after this time."""
        query = request.query_params
        person = get_asker(request.scope)
        wanted, before = read_filter(query, person.sight), read_cursor(query)
        if wanted.states and not wanted.states <= ENDED_STATES:
            wanted = replace(wanted, states=wanted.states & ENDED_STATES)
            if not wanted.states:
                raise Problem(
                    422, "jobs in that state have not ended", "`/queue` and `/jobs` list live ones."
                )
        since = query.get("since_ms")
        since_ms = None if since is None else read_number("since_ms", since, 0, TIME_MS_MAX)
        most = limit_of(query)
        await make_room(most * JOB_BYTES)
        found, more = await run_in_one_thread(self._yard.views.history, wanted, since_ms, before, most)
        owes = await run_in_one_thread(
            read_owed, self._yard.store, [view["id"] for view in found], self._yard.now_ms()
        )
        for view in found:
            view["used"] = total_use_view(view, owes[view["id"]])
        told: JobsReply = {"jobs": mask_jobs(person, found), "next_cursor": id_cursor(more)}
        return await answer_list(told, "jobs")

    async def overview(self, request: Request) -> Response:
        """For a screen that refreshes often."""
        sight = get_asker(request.scope).sight

        def made() -> bytes:
            return encode_json(self._yard.views.overview(sight))

        return Response(await run_in_one_thread(made), media_type="application/json")

    async def drain(self, request: Request, name: str) -> Response:
        """Jobs that run there keep running."""
        wanted = await read_body(DrainRequest, request)
        why = wanted.why or f"drained by {get_asker(request.scope).name}"
        return answer(
            await asyncio.wrap_future(self._yard.requests.drain(get_asker(request.scope), name, why))
        )

    async def resume(self, request: Request, name: str) -> Response:
        """Take a node back into use."""
        return answer(await asyncio.wrap_future(self._yard.requests.resume(get_asker(request.scope), name)))

    async def snapshot(self, request: Request) -> Response:
        """Only for administrators, since it holds everybody's jobs."""

        def made() -> bytes:
            return encode_json(self._yard.snapshot())

        return Response(await run_in_one_thread(made), media_type="application/json")


def _pieces(found: QueueList) -> Iterator[bytes]:
    """A list as it goes over the wire, piece by piece."""
    told: QueueReply = {**found.head, "rows": []}
    yield encode_json(told).removesuffix(b"]}")
    for rows in found.pieces():
        yield bytes_of_text(rows)
    yield b"]}"


async def _paced(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The same, made by another thread, no faster than the reader may have it. The next piece is as long as the longest
    one before it, about.
    """
    size = 0
    while (piece := await run_at_leisure(next, pieces, None)) is not None:
        size = max(size, len(piece))
        yield piece
        del piece
        await wait_for_room(size)
