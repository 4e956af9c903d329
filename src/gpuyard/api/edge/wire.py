"""Small things that all routes share: answers as JSON, filters, limits and cursors in the query."""

import base64
import json
from typing import Any

from fastapi import Response
from starlette.datastructures import QueryParams

from gpuyard.api.messages.problems import Problem
from gpuyard.control.access.rights import Sight
from gpuyard.control.views.queue_list import Filter
from gpuyard.control.views.views import ENDED_STATES, LIVE_STATES
from gpuyard.errors import quoted, remedy
from gpuyard.wire.endpoints import PAGE_MAX

LIMIT = 100
_STATES = (*sorted(LIVE_STATES), *sorted(ENDED_STATES))
_TEXT_MAX = 512
_AT_ONCE = 500
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_ID_MAX = (1 << 63) - 1
"""The largest number that a store can look for."""


def encoded(value: Any) -> bytes:
    """A value as JSON."""
    return bytes_of_text(_encode(value))


def bytes_of_text(text: str) -> bytes:
    """A text as it is sent. Half surrogates, which none should hold, come out as question marks."""
    return text.encode("utf-8", "replace")


def encoded_array(view: dict[str, Any]) -> bytes:
    """An array as JSON, some of its tasks at a time: the encoder lets no other thread run until it is done."""
    jobs = view.pop("jobs")
    some = [_encode(jobs[at : at + _AT_ONCE])[1:-1] for at in range(0, len(jobs), _AT_ONCE)]
    return bytes_of_text(f'{_encode(view)[:-1]},"jobs":[{",".join(some)}]}}')


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as an answer."""
    return Response(encoded(value), status, headers, "application/json")


def filter_of(query: QueryParams, sight: Sight) -> Filter:
    """The filter of a query, within what the asker may see."""
    states = [
        state.strip().upper() for text in query.getlist("state") for state in text.split(",") if state.strip()
    ]
    for state in states:
        if state not in _STATES:
            raise Problem(422, f"unknown state {quoted(state)}; {remedy(state, _STATES, 'states')}")
    texts: dict[str, str] = {name: query.get(name, "") for name in ("tenant", "user", "name", "cluster")}
    for name, text in texts.items():
        if len(text) > _TEXT_MAX or "\0" in text:
            raise Problem(422, f"{name!r} is too long, or holds a NUL character")
    return Filter(frozenset(states), **texts, sight=sight)


def limit_of(query: QueryParams, most: int = PAGE_MAX, default: int = LIMIT) -> int:
    """How many on a page."""
    text = query.get("limit")
    return default if text is None else number_of("limit", text, 1, most)


def number_of(name: str, text: str, least: int, most: int) -> int:
    """A whole number of the query."""
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or not least <= int(text) <= most:
        raise Problem(422, f"{name!r} must be a whole number from {least} to {most}, not {quoted(text)}")
    return int(text)


def id_cursor(before_id: int | None) -> str | None:
    """Where the next page begins, for the client to send back as it is."""
    return (
        None if before_id is None else base64.urlsafe_b64encode(f"b{before_id}".encode()).decode().rstrip("=")
    )


def cursor_of(query: QueryParams) -> int | None:
    """Where a page begins."""
    text = query.get("cursor")
    if not text:
        return None
    try:
        plain = base64.urlsafe_b64decode(text[:64] + "=" * (-len(text[:64]) % 4)).decode("ascii")
        if plain[:1] != "b" or not plain[1:].isdecimal() or int(plain[1:]) > _ID_MAX:
            raise ValueError(plain)
        return int(plain[1:])
    except ValueError:
        raise Problem(
            422, f"{quoted(text)} is no cursor", "Send back `next_cursor` of the page before."
        ) from None
