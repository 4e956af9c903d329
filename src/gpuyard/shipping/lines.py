"""Bytes of a log as lines: whole ones, parts of those that are too long, and the last one once it is known to end.

A line is named by its attempt, its stream and the place of its first byte, so that a line that is sent again has the
name that it had before.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-Z\\^-~])"
)
"""What colours a terminal, moves its cursor or names its window: nothing that a person searches for."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of what an attempt wrote, ready to be sent."""

    key: str
    """The attempt, as engines name it."""
    stream: str
    offset: int
    """The place of its first byte in the log."""
    text: str
    labels: Mapping[str, str]
    """The same for all lines of an attempt: `yard`, `cluster`, `tenant`, `user`, `job`, `attempt`, `task`, `node`."""
    part: int = 0
    """Of a line that was too long: 1, 2, 3 …; 0: it is whole."""
    last: bool = True
    """Whether the line ends with this part."""
    at_ns: int = 0
    """When it was read. Jobs write no times; no two lines of a server have the same."""

    @property
    def id(self) -> str:
        """Names this line alone."""
        return f"{self.key}-{self.stream}-{self.offset}"

    def fields(self) -> dict[str, str]:
        """Everything but the text: the same for every receiver."""
        found = {**self.labels, "stream": self.stream, "id": self.id}
        if self.part:
            found |= {"part": str(self.part), "part_last": "true" if self.last else "false"}
        return found


@dataclass(frozen=True, slots=True)
class Piece:
    """A line without its labels."""

    offset: int
    text: str
    part: int
    last: bool


@dataclass(frozen=True, slots=True)
class CutLines:
    """What was cut from some bytes of a log."""

    pieces: list[Piece]
    after: int
    """Where to read on: behind the last whole line, or part of a line."""
    part: int
    """How many parts of an unfinished line were cut already; 0: the next byte begins a line."""


def cut(content: bytes, offset: int, part: int, line_bytes: int, *, ended: bool) -> CutLines:
    """Cut bytes that begin at an offset into lines of at most so many bytes.

    `part`: parts of the first line that were cut before. `ended`: nothing follows, so the rest is a line too.
    """
    pieces: list[Piece] = []
    at = 0
    while at < len(content):
        end = content.find(b"\n", at, at + line_bytes + 1)
        if end >= 0:
            pieces.append(_piece(content[at:end], offset + at, part + 1 if part else 0, last=True))
            at, part = end + 1, 0
        elif len(content) - at > line_bytes:
            size = _whole_characters(content, at, line_bytes)
            part += 1
            pieces.append(_piece(content[at : at + size], offset + at, part, last=False))
            at += size
        elif ended:
            pieces.append(_piece(content[at:], offset + at, part + 1 if part else 0, last=True))
            at, part = len(content), 0
        else:
            break
    return CutLines(pieces, offset + at, part)


def _piece(content: bytes, offset: int, part: int, *, last: bool) -> Piece:
    # What is no text stays legible: \xff. Nothing of it is lost.
    text = content.removesuffix(b"\r").decode("utf-8", "backslashreplace")
    return Piece(offset, _ESCAPES.sub("", text) if "\x1b" in text else text, part, last)


def _whole_characters(content: bytes, at: int, size: int) -> int:
    """A little less than `size` where that would cut a character of UTF-8 in two."""
    for less in range(min(4, size)):
        if content[at + size - less] & 0xC0 != 0x80:
            return size - less
    return size
