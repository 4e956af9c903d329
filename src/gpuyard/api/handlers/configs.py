"""The configuration over HTTP: what is in force, its versions, a difference, a preview, apply and rollback.

All of it is for administrators of the whole yard: a configuration shows what every tenant may use.
"""

import asyncio
import logging
from collections.abc import AsyncIterator

from fastapi import Request, Response

from gpuyard.api.edge.open_streams import OpenStreams, asks_no_more
from gpuyard.api.edge.peers import get_asker
from gpuyard.api.edge.routes import Handlers, answer, answer_list, limit_of, read_number
from gpuyard.api.edge.throttle import Turns, run_in_thread
from gpuyard.api.handlers.streams import encode_event
from gpuyard.api.messages.problems import Problem, find_problem
from gpuyard.api.messages.schemas import ConfigRequest, read_body
from gpuyard.config import ConfigError
from gpuyard.control.commands.configs import Proposal
from gpuyard.control.foresight.previews import Line, Previews
from gpuyard.control.serve import Yard
from gpuyard.errors import BadInput
from gpuyard.job_sizes import SIZES_TEXT, parse_sizes
from gpuyard.wire import endpoints
from gpuyard.wire.endpoints import Action
from gpuyard.wire.replies.jobs import Fault
from gpuyard.wire.replies.tenants import ConfigVersionsReply

_log = logging.getLogger(__name__)


def handlers(yard: Yard) -> Handlers:
    """Routes of the configuration."""
    api = _Configs(yard)
    return {
        endpoints.CONFIG: api.live,
        endpoints.APPLY: api.apply,
        endpoints.VERSIONS: api.versions,
        endpoints.CONFIG_VERSION: api.version,
        endpoints.DIFF: api.diff,
        endpoints.PREVIEW: api.preview,
        endpoints.ROLLBACK: api.rollback,
    }


class _Configs:
    """Handlers."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._configs = yard.configs
        self._reading = Turns("configurations to be read", at_once=1)
        self._previews = Previews(yard.replica, yard.now_ms, run_in_thread)

    async def live(self, request: Request) -> Response:
        """The version in force, with its text."""
        return answer(await run_in_thread(self._configs.shown))

    async def versions(self, request: Request) -> Response:
        """The author of each version, and when and how it was put in force."""
        most = limit_of(request.query_params)
        told: ConfigVersionsReply = {"versions": await run_in_thread(self._configs.versions, most)}
        return answer(told)

    async def version(self, request: Request, version: str) -> Response:
        """One version."""
        number = read_number("version", version, 1, 1 << 53)
        return answer(await run_in_thread(self._configs.shown, number))

    async def diff(self, request: Request) -> Response:
        """The differences from the configuration in force, and anything that forbids them."""
        proposal = await self._proposal(request, await read_body(ConfigRequest, request))
        difference = await run_in_thread(self._configs.difference, proposal)
        return await answer_list(difference, "changes")

    async def apply(self, request: Request) -> Response:
        """The whole file comes into force, or nothing. 409: it cannot come into force now, or `against` is no longer
        in force."""
        wanted = await read_body(ConfigRequest, request)
        if wanted.yaml is None:
            raise Problem(422, "the request has no 'yaml'", "`/config/rollback` takes a 'version'.")
        return await self._put(request, wanted)

    async def rollback(self, request: Request) -> Response:
        """Back to `version`. Default: the version before the present one."""
        wanted = await read_body(ConfigRequest, request)
        if wanted.yaml is not None:
            raise Problem(422, "a rollback takes a 'version', not a 'yaml'")
        return await self._put(request, wanted)

    async def _put(self, request: Request, wanted: ConfigRequest) -> Response:
        # A text against a version that has passed need not be read.
        await run_in_thread(self._configs.check_against, wanted.against)
        proposal = await self._proposal(request, wanted)
        done = self._configs.apply(get_asker(request.scope), proposal, wanted.against)
        version = await asyncio.wrap_future(done)
        # This server uses its people from now on; the other servers of the yard follow within a second. Where nothing
        # was changed, the version in force is of somebody else, and may have other people.
        known = (version["version"], proposal.access) if version["changed"] else ()
        await run_in_thread(self._yard.people.look, *known)
        return answer(version)

    async def _proposal(self, request: Request, wanted: ConfigRequest) -> Proposal:
        if wanted.yaml is not None and wanted.version is not None:
            raise Problem(422, "give a 'yaml' or a 'version', not both")
        try:
            async with self._reading.of(get_asker(request.scope)):
                if wanted.yaml is not None:
                    return await run_in_thread(self._configs.proposal, wanted.yaml, wanted.name)
                return await run_in_thread(self._configs.earlier, wanted.version)
        except ConfigError as error:
            raise _not_usable(error) from None
        except BadInput as error:
            raise Problem(422, error.message, error.hint, kind="unacceptable") from None

    async def preview(self, request: Request) -> Response:
        """JSON at the end, or with `Accept: text/event-stream` events: `progress`, then `preview`."""
        wanted = await read_body(ConfigRequest, request)
        try:
            sizes = parse_sizes(wanted.sizes)
        except ValueError as wrong:
            raise Problem(422, f"sizes {wrong}", f"For example: {SIZES_TEXT}.", kind="unacceptable") from None
        proposal = await self._proposal(request, wanted)
        difference = await run_in_thread(self._configs.difference, proposal)
        changed = [each["name"] for each in difference["changes"] if each["kind"] == "tenant"]
        lines = self._previews.run(proposal, changed, wanted.days, sizes)
        # Compute the first line before the answer begins: a refusal is then an answer of its own.
        first = await anext(lines)
        if "text/event-stream" in request.headers.get("accept", ""):
            streams: OpenStreams = request.app.state.streams
            open_ = await streams.open(request, Action.MANAGE_CONFIG, asks_no_more)
            return open_.events(_events(first, lines))
        found = first.get("preview")
        async for line in lines:
            found = line.get("preview", found)
        return answer(found)


async def _events(first: Line, lines: AsyncIterator[Line]) -> AsyncIterator[bytes]:
    yield _event(first)
    try:
        async for line in lines:
            yield _event(line)
    except Exception as error:
        # The answer has begun: an error is now an event in it.
        problem = find_problem(error)
        if problem is None:
            _log.error("a preview failed", exc_info=error)
            problem = Problem(500, "the preview failed: a defect of the yard; its log has the details")
        yield encode_event("error", {"detail": problem.detail, "hint": problem.hint})


def _event(line: Line) -> bytes:
    for name, data in line.items():
        return encode_event(name, data)
    return b": still at it\n\n"


def _not_usable(error: ConfigError) -> Problem:
    """Every problem of the file with its place."""
    errors: list[Fault] = [
        {"field": f"{problem.place.line}:{problem.place.column}", "detail": problem.text}
        for problem in error.problems[:50]
    ]
    return Problem(422, error.message, error.hint, kind="configuration", errors=errors)
