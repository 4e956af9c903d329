"""What a client sends into a job over a WebSocket, checked: a first message that says what it wants, and frames.

The first message is JSON. A frame is a letter and its content, as the keeper beside the job reads it
(`engines/node/visits/frames.py`). What is wrong with one is told in a sentence that names the field, and the connection
ends with a code of WebSocket: 1003 for what is none of these messages, 1008 for one that asks for what cannot be.
"""

import signal
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator

from gpuyard.api.messages.bodies import parse_object
from gpuyard.api.messages.fields import (
    COMMAND_BYTES_MAX,
    ENV_BYTES_MAX,
    ENV_NAMES_MAX,
    PATH_MAX,
    WORD_BYTES_MAX,
)
from gpuyard.api.messages.problems import Problem
from gpuyard.api.messages.schemas import check_value
from gpuyard.engines.node.visits.frames import DATA, END, FILE, SIGNAL, SIZE
from gpuyard.errors import quote

NOT_OURS, UNFIT = 1003, 1008
_SIDE_MAX = 9999
"""Rows or columns of a terminal."""
_NUMBER_MAX = (1 << 63) - 1
_DIGITS_MAX = 3


class Refusal(Exception):
    """Why a client gets no more, and the code of WebSocket that says so."""

    def __init__(self, code: int, detail: str, hint: str = "") -> None:
        super().__init__(detail)
        self.code, self.detail, self.hint = code, detail, hint


def _text(most: int) -> Any:
    """A text for the kernel: names of files are bytes, and those that are not UTF-8 come as half surrogates."""

    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError("it should be a text")
        if "\0" in value:
            raise ValueError("it holds a NUL character")
        try:
            size = len(_bytes(value))
        except UnicodeEncodeError:
            raise ValueError("it holds half a character (a surrogate), which no text has") from None
        if size > most:
            raise ValueError(f"it is longer than {most} bytes")
        return value

    return PlainValidator(check, json_schema_input_type=str)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


Word = Annotated[str, _text(WORD_BYTES_MAX)]
Path = Annotated[str, _text(PATH_MAX)]
Side = Annotated[int, Field(ge=1, le=_SIDE_MAX)]
SignalNumber = Annotated[int, Field(ge=1, lt=signal.NSIG)]
_NEEDS = {"forward": "port", "read": "path", "write": "path", "signal": "number"}


class Asked(BaseModel):
    """What a client wants inside a job."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    do: Literal["attach", "shell", "forward", "read", "write", "run", "signal", "stay"]
    session: Annotated[str, _text(64)] = ""
    seen: Annotated[int, Field(ge=0, le=_NUMBER_MAX)] | None = None
    rows: Side | None = None
    columns: Side | None = None
    argv: Annotated[list[Word], Field(max_length=10_000)] = []
    env: Annotated[dict[Word, Word], Field(max_length=ENV_NAMES_MAX)] = {}
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    path: Path | None = None
    number: SignalNumber | None = None
    whom: Literal["batch", "steps", "all"] = "all"

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        needed = _NEEDS.get(self.do)
        if needed and getattr(self, needed) in (None, ""):
            raise ValueError(f"{needed}: {self.do!r} needs it")
        for name in self.env:
            if not name or "=" in name:
                raise ValueError(f"env: {quote(name)} cannot be a variable: empty, or with '=' in it")
        if self.argv and not self.argv[0]:
            raise ValueError("argv: the command is an empty word")
        if sum([len(_bytes(word)) + 1 for word in self.argv]) > COMMAND_BYTES_MAX:
            raise ValueError(f"argv: it is longer than {COMMAND_BYTES_MAX // 1024} KiB")
        if sum([len(_bytes(name + value)) + 2 for name, value in self.env.items()]) > ENV_BYTES_MAX:
            raise ValueError(f"env: it is larger than {ENV_BYTES_MAX // 1024} KiB")
        return self

    def said(self) -> dict[str, Any]:
        """The fields that the client gave, as the keeper reads them."""
        return self.model_dump(exclude_unset=True)


class SizeFrame(BaseModel):
    """How large a terminal is now."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    rows: Side
    columns: Side


class SignalFrame(BaseModel):
    """A signal for what runs there."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    number: SignalNumber


class FileFrame(BaseModel):
    """The head of a file or a folder that is copied into a job."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    path: Path
    mode: Annotated[int, Field(ge=0, le=0o7777)]
    folder: bool
    size: Annotated[int, Field(ge=0, le=_NUMBER_MAX)]


class Frame(NamedTuple):
    """A letter, and its content."""

    kind: bytes
    content: bytes


_AT_TERMINALS = frozenset({DATA, SIZE, SIGNAL, END})
_TAKES: dict[str, frozenset[bytes]] = {
    "attach": _AT_TERMINALS,
    "shell": _AT_TERMINALS,
    "run": frozenset({DATA, SIGNAL, END}),
    "forward": frozenset({DATA, END}),
    "write": frozenset({FILE, DATA, END}),
}
"""Which frames may follow what was asked for; none follows anything else."""


class ClientMessages:
    """The messages of one client, in their order."""

    def __init__(self) -> None:
        self._do = ""

    def take(self, message: bytes | str) -> Asked | Frame:
        """The next message, if it is one: first what is wanted, then frames. Raises `Refusal`."""
        try:
            if not self._do:
                asked = check_value(Asked, _object(message, "the first message"))
                self._do = asked.do
                return asked
            return self._frame(message)
        except Problem as problem:
            code = NOT_OURS if problem.status == 400 else UNFIT
            where = f"frame {self._letter(message)}: " if self._do else ""
            raise Refusal(code, f"{where}{problem.detail}", problem.hint) from None

    @staticmethod
    def _letter(message: bytes | str) -> str:
        return quote(message[:1].decode("latin-1")) if isinstance(message, bytes) else "of text"

    def _frame(self, message: bytes | str) -> Frame:
        if isinstance(message, str):
            raise Problem(400, "after the first message only binary ones are read: a letter and its content")
        kind, content = message[:1], message[1:]
        taken = _TAKES.get(self._do, frozenset())
        if kind not in taken:
            there = ", ".join(sorted([each.decode() for each in taken])) or "none"
            raise Problem(400, f"{self._do!r} reads no such frame", f"Frames that it reads: {there}.")
        if kind == SIZE:
            check_value(SizeFrame, _object(content, "the size"))
        elif kind == FILE:
            check_value(FileFrame, _object(content, "the head of a file"))
        elif kind == SIGNAL:
            digits = content.isdigit() and len(content) <= _DIGITS_MAX
            check_value(SignalFrame, {"number": int(content) if digits else None})
        elif kind == END and content:
            raise Problem(422, "it has no content")
        return Frame(kind, content)


def _object(message: bytes | str, what: str) -> dict[str, Any]:
    # Text has been UTF-8; half surrogates in it are written as escapes.
    return parse_object(message if isinstance(message, bytes) else message.encode(), what)
