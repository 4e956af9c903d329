"""Reports over HTTP: each is built beside the event loop, its parameters checked as its endpoint describes them."""

from typing import Any

from fastapi import Request, Response
from starlette.datastructures import QueryParams

from gpuyard.api.edge.peers import get_asker
from gpuyard.api.edge.routes import (
    Handler,
    Handlers,
    encode_json,
    id_cursor,
    limit_of,
    read_cursor,
    read_number,
    read_text,
)
from gpuyard.api.edge.throttle import run_in_one_thread
from gpuyard.api.edge.unread import REPORT_BYTES, make_room
from gpuyard.api.messages.problems import Problem
from gpuyard.control.readings import Readings
from gpuyard.control.refusals import Unacceptable
from gpuyard.control.serve import Yard
from gpuyard.errors import BadInput
from gpuyard.reports.registry import load_reports
from gpuyard.reports.report import Report
from gpuyard.wire.endpoints import CURSOR, Endpoint

_NUMBER_MAX = (1 << 53) - 1
_TEXT_MAX = 4096


def handlers(yard: Yard) -> Handlers:
    """All reports that there are."""
    readings = Readings(yard)
    return {each.endpoint: _handler(each, readings) for each in load_reports()}


def _handler(report: Report[Any], readings: Readings) -> Handler:
    async def handler(request: Request) -> Response:
        sight = get_asker(request.scope).sight
        values = read_values(report.endpoint, request.query_params)

        def made() -> bytes:
            try:
                table = report.build(readings, values, sight)
            except BadInput as error:
                # What a report cannot read, it was asked for: that is no defect of the server.
                raise Unacceptable(error.message, error.hint) from error
            paged = {"next_cursor": id_cursor(table.more)} if CURSOR in report.endpoint.parameters else {}
            return encode_json({report.rows: table.rows, **table.head, **paged})

        await make_room(REPORT_BYTES)
        return Response(await run_in_one_thread(made), media_type="application/json")

    handler.__doc__, handler.__name__ = report.build.__doc__, report.name
    return handler


def read_values(endpoint: Endpoint, query: QueryParams) -> dict[str, Any]:
    """The parameters of a query by name, each within its bounds; one that is left out is empty or None."""
    found: dict[str, Any] = {}
    for each in endpoint.parameters:
        name, schema = each["name"], each["schema"]
        text = query.get(name)
        if each is CURSOR:
            found[name] = read_cursor(query)
        elif name == "limit":
            found[name] = limit_of(query, schema["maximum"])
        elif schema["type"] == "integer":
            most = schema.get("maximum", _NUMBER_MAX)
            found[name] = None if text is None else read_number(name, text, schema.get("minimum", 0), most)
        elif schema["type"] == "boolean":
            found[name] = (text or "").lower() in ("1", "true", "yes")
        else:
            found[name] = read_text(name, text or "", schema.get("maxLength", _TEXT_MAX), each["description"])
            if "enum" in schema and found[name] and found[name] not in schema["enum"]:
                raise Problem(422, f"{name!r} must be one of {', '.join(schema['enum'])}")
    return found
