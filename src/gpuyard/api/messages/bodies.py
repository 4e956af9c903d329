"""Request bodies, read with suspicion: bounded in size and depth, one meaning only.

By default a JSON library lets the last of two equal keys win, takes NaN for a number and fails on deep nesting. Here
each of these is refused with a sentence.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from fastapi import Request

from gpuyard.api.messages.problems import Problem

BODY_BYTES_MAX = 2 * 1024 * 1024
OPEN_BODY_BYTES_MAX = 64 * 1024
"""The same for requests without a token."""
KEYS_MAX = 12_000
"""Keys of all objects of a body together; most are variables of an environment, of which there may be 10,000."""
MARKS_MAX = 60_000
"""Commas, colons and opening brackets of a body. A library in C reads all of it in one go, and the loop serves no
other request meanwhile; an environment and three lists of 10,000 each have 50,000.
"""
_BEGINNING = 128 * 1024
_OTHER_BYTES = bytes(set(range(256)) - set(b'",:[{'))
_DIGITS_MAX = 18
"""A length with more digits is too long, and slow to read as a number."""


def find_header(scope: Any, wanted: bytes) -> str | None:
    """A header of a request; None: it has none."""
    for name, value in scope["headers"]:
        if name == wanted:
            text: str = value.decode("latin-1")
            return text
    return None


async def read_bytes(request: Request, most: int = BODY_BYTES_MAX) -> bytes:
    """The body. If it is too long or not JSON, it is not even read."""
    announced = find_header(request.scope, b"content-length") or ""
    if announced.isdecimal() and (len(announced) > _DIGITS_MAX or int(announced) > most):
        raise _too_large(most)
    parts: list[bytes] = []
    length = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            # The client has gone, and nothing was done.
            raise Problem(400, "the request was cut off")
        part, more = message.get("body", b""), message.get("more_body", False)
        if part and not length:
            _check_kind(request)
        length += len(part)
        if length > most:
            raise _too_large(most)
        parts.append(part)
    return b"".join(parts)


@asynccontextmanager
async def told_when_gone(request: Request, tell: Callable[[], None]) -> AsyncIterator[None]:
    """Say so when the client goes meanwhile; the body has been read."""

    async def watch() -> None:
        # The end of a connection is read as the rest of a body is: nobody would notice it otherwise.
        while (await request.receive())["type"] != "http.disconnect":
            pass
        tell()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


def _too_large(most: int) -> Problem:
    return Problem(
        413,
        f"the request is larger than {most // 1024} KiB",
        "Put what is large into files and name them in the job.",
    )


def _check_kind(request: Request) -> None:
    """Require JSON: a web page of another site can make a browser send any other body here."""
    given = find_header(request.scope, b"content-type") or ""
    if given == "application/json":
        return
    kind = given.partition(";")[0].strip().lower()
    if kind != "application/json":
        what = f"is {kind[:80]!r}, not application/json" if given else "has no Content-Type"
        raise Problem(415, f"the body {what}", "Send JSON, with `Content-Type: application/json`.")


def parse_object(body: bytes, what: str = "the body") -> dict[str, Any]:
    """The body as one JSON object; `what` it is, for messages."""
    if len(body) > KEYS_MAX:
        _check_count(body, what)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem(400, f"byte {error.start + 1} of {what} is not UTF-8") from None
    try:
        value = json.loads(text, object_pairs_hook=_Once(), parse_constant=_no_constant)
    except RecursionError:
        raise Problem(400, f"{what} is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise Problem(400, f"{what} {_no_json(text, error)}") from None
    except _Unread as error:
        raise Problem(400, f"{what} cannot be read: {error}") from None
    except ValueError:
        # Python reads no whole number of more than some thousand digits.
        raise Problem(400, f"{what} has a number with more digits than any field takes") from None
    if not isinstance(value, dict):
        raise Problem(400, f"{what} must be one JSON object, as in {{…}}")
    return value


def _no_json(text: str, error: json.JSONDecodeError) -> str:
    """What a text is instead of JSON, in our words."""
    if not text.strip():
        return "is empty"
    if text.startswith("\ufeff"):
        return "is not JSON: it begins with a byte order mark (BOM)"
    return f"is not JSON: look at line {error.lineno}, column {error.colno}"


class _Unread(ValueError):
    """Why a body has no one meaning."""


def _check_count(body: bytes, what: str) -> None:
    """Refuse a body with too many values before it is parsed: counting takes a twentieth of the time."""
    # Mostly the beginning will do.
    for part in (body[:_BEGINNING], body) if len(body) > _BEGINNING else (body,):
        if not _few(part) and not _few_outside_strings(part):
            raise Problem(400, f"{what} has more than {KEYS_MAX} keys, or more than {MARKS_MAX} parts")


def _few_outside_strings(text: bytes) -> bool:
    """The same for a script full of marks: text within quotation marks does not count."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    signs = text.translate(None, _OTHER_BYTES)
    if _count(signs, b'"') > 2 * MARKS_MAX:
        return False
    # Most strings are empty by now. Between two strings there is always a mark, so no pair belongs to two of them.
    return _few(b"".join(signs.replace(b'""', b"").split(b'"')[::2]))


def _few(text: bytes) -> bool:
    marks = _count(text, b",:[{")
    return marks <= KEYS_MAX or (marks <= MARKS_MAX and _count(text, b":") <= KEYS_MAX)


def _count(text: bytes, marks: bytes) -> int:
    """How many of these there are. `bytes.count` is slower where there are many."""
    return len(text) - len(text.translate(None, marks))


class _Once:
    """Makes the objects of one body: each key once, and no more keys in all than any request can use."""

    def __init__(self) -> None:
        self._left = KEYS_MAX

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # An object without keys takes its time, too.
        self._left -= len(pairs) + 1
        if self._left < 0:
            raise _Unread(f"it has more than {KEYS_MAX} keys")
        found = dict(pairs)
        if len(found) != len(pairs):
            seen: set[str] = set()
            for name, _ in pairs:
                if name in seen:
                    raise _Unread(f"the key {name[:60]!r} occurs twice")
                seen.add(name)
        return found


def _no_constant(name: str) -> NoReturn:
    raise _Unread(f"{name} is not a number that JSON has")
