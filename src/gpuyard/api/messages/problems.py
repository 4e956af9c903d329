"""Errors on the wire: problem+json (RFC 9457), with what to do about it."""

import json
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import Response

from gpuyard.control.access.tokens import Unknown
from gpuyard.control.commands.wishes import Gone
from gpuyard.control.refusals import (
    Forbidden,
    Impossible,
    NotFound,
    NotYet,
    Overloaded,
    Removed,
    Unacceptable,
)
from gpuyard.engines.contract import EngineError
from gpuyard.errors import YardError
from gpuyard.store import (
    Conflict,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
)
from gpuyard.wire.replies.jobs import Fault, ProblemReply

MEDIA_TYPE = "application/problem+json"

_KINDS: tuple[tuple[type[Exception], int, str], ...] = (
    # The first that fits.
    (Gone, 404, "not-found"),
    (Unknown, 401, "unknown-token"),
    (NotFound, 404, "not-found"),
    (Removed, 410, "removed"),
    (Forbidden, 403, "forbidden"),
    (Impossible, 409, "impossible-now"),
    (Unacceptable, 422, "unacceptable"),
    (Conflict, 409, "idempotency-key-reused"),
    (NotYet, 503, "not-yet"),
    (Overloaded, 503, "overloaded"),
    (StoreFull, 503, "store-full"),
    (StoreReadOnly, 503, "store-read-only"),
    (StoreBusy, 503, "store-busy"),
    (StoreUnreachable, 503, "store-unreachable"),
    (StoreDamaged, 503, "store-damaged"),
    (StoreError, 503, "store"),
    (EngineError, 503, "engine"),
)
_WAIT = {503: "2"}
"""After how many seconds asking again may help."""


class Problem(Exception):
    """An answer that is not what was asked for."""

    def __init__(
        self,
        status: int,
        detail: str,
        hint: str = "",
        *,
        kind: str = "",
        errors: list[Fault] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.hint = hint
        self.kind = kind
        self.errors = errors
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """As it goes over the wire."""
        title = HTTPStatus(self.status).phrase
        kind = self.kind or title.lower().replace(" ", "-")
        body: ProblemReply = {
            "type": f"urn:gpuyard:problem:{kind}",
            "title": title,
            "status": self.status,
            "detail": self.detail,
        }
        if self.hint:
            body["hint"] = self.hint
        if self.errors:
            body["errors"] = self.errors
        headers = (
            {"Retry-After": _WAIT[self.status], **self.headers} if self.status in _WAIT else self.headers
        )
        # Text from a request may hold anything; non-ASCII is escaped, so that every reader can show it.
        return Response(json.dumps(body), self.status, headers, MEDIA_TYPE)


def find_problem(error: Exception) -> Problem | None:
    """An error of the packages below as an answer; None: it is a defect of ours."""
    if isinstance(error, Problem):
        return error
    for kind, status, name in _KINDS:
        if isinstance(error, kind):
            message = error.message if isinstance(error, YardError) else str(error)
            return Problem(status, message, getattr(error, "hint", ""), kind=name)
    return None
