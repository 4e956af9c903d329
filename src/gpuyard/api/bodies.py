"""Request bodies, read with suspicion: bounded in size and depth, one meaning only.

JSON as libraries read it by default lets the last of two equal keys win, takes NaN for a number and falls over nesting.
Here each of these is refused with a sentence.
"""

import json
from typing import Any, NoReturn

from fastapi import Request
from starlette.requests import ClientDisconnect

from gpuyard.api.problems import Problem

BODY_BYTES_MAX = 2 * 1024 * 1024


async def bytes_of(request: Request, most: int = BODY_BYTES_MAX) -> bytes:
    """The body, unless it is too long; what is announced too long is not even read."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most:
        raise _too_large(most)
    parts, length = [], 0
    try:
        async for part in request.stream():
            length += len(part)
            if length > most:
                raise _too_large(most)
            parts.append(part)
    except ClientDisconnect:
        # Nobody is left to be answered, and nothing was done.
        raise Problem(400, "the request was cut off") from None
    return b"".join(parts)


def _too_large(most: int) -> Problem:
    return Problem(
        413,
        f"the request is larger than {most // 1024} KiB",
        "Put what is large into files and name them in the job.",
    )


def object_of(request: Request, body: bytes) -> dict[str, Any]:
    """The body as one JSON object."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(
            415, f"the body is {kind[:80]!r}, not application/json", "Send JSON, with its Content-Type."
        )
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem(400, f"byte {error.start + 1} of the body is not UTF-8") from None
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise Problem(400, "the body is nested too deeply") from None
    except json.JSONDecodeError as error:
        what = "is empty" if not text.strip() else f"is not JSON: {error}"
        raise Problem(400, f"the body {what}") from None
    except ValueError as error:
        raise Problem(400, f"the body cannot be read: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise Problem(400, "the body must be one JSON object, as in {…}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:60]!r} is there twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON has")
