"""A trace file as numbered lines of text, whatever its compression, encoding or damage.

The file is opened once and read from front to back, so that a pipe works too (`<(sacct ...)`), in blocks of a fixed
size, so that a file without line breaks cannot fill the memory. A line that is no text counts as a broken row and is
skipped; a file that cannot be read at all is a `BadInput`.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from gpuyard.errors import BadInput
from gpuyard.sim.traces.builder import Builder
from gpuyard.sim.traces.cells import show

BLOCK_BYTES = 1 << 20
"""Bytes read at a time; also the longest line that is carried from one block to the next."""

HEAD_BYTES = 1 << 16
"""Bytes read ahead to recognise the format."""

HEAD_LINES_MAX = 50
"""Enough to get past the comments of a Standard Workload Format file."""

_GZIP_MAGIC = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(slots=True)
class Source:
    """An open trace file."""

    path: str
    stream: BinaryIO
    head: bytes

    def first_lines(self) -> list[str]:
        """The first lines that are not blank, for recognising the format."""
        text = self.head.decode("utf-8", errors="replace")
        lines = (line.strip() for line in text.split("\n", 4 * HEAD_LINES_MAX)[: 4 * HEAD_LINES_MAX])
        return [line for line in lines if line][:HEAD_LINES_MAX]

    def lines(self, builder: Builder) -> Iterator[tuple[int, str]]:
        """Every line of text that is not blank, with its number from 1. Lines that are no text go to `broken`."""
        for before, lines in self.batches(builder):
            for number, line in enumerate(lines, start=before + 1):
                if line and not line.isspace():
                    yield number, line

    def batches(self, builder: Builder) -> Iterator[tuple[int, list[str]]]:
        """The same, a block at a time: how many lines came before, and all lines of the block, blank ones too."""
        number = 0
        rest = b""
        for block in self._blocks():
            cut = block.rfind(b"\n") + 1
            if not cut:
                # Whatever is dropped here belongs to a line that is too long and is refused as such.
                rest = (rest + block)[: BLOCK_BYTES + 1]
                continue
            body, rest = rest + block[:cut], block[cut:]
            lines = _decoded(body, number, builder)
            yield number, lines
            number += len(lines)
        if rest:
            yield number, _decoded(rest, number, builder)

    def table(self, builder: Builder, separator: str = ",") -> "Table":
        """The file as a table with a header."""
        lines = self.lines(builder)
        for number, line in lines:
            header = [cell.strip().lower() for cell in split(line, separator)]
            return Table(self.path, number, header, lines, separator, builder)
        raise BadInput(
            f"{self.path}: has no line of text", hint="Give a file with a header and one job a line."
        )

    def _blocks(self) -> Iterator[bytes]:
        if self.head:
            yield self.head
        while True:
            with readable(self.path):
                block = self.stream.read(BLOCK_BYTES)
            if not block:
                return
            yield block


@dataclass(slots=True)
class Table:
    """A header, and rows with as many cells as it has."""

    path: str
    header_line: int
    header: list[str]
    lines: Iterator[tuple[int, str]]
    separator: str
    builder: Builder

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Line number and cells of each row."""
        separator, width = self.separator, len(self.header)
        quotes = separator == ","
        for number, line in self.lines:
            cells = split(line, separator) if quotes and '"' in line else line.split(separator)
            if len(cells) == width:
                yield number, cells
            else:
                self.builder.broken(number, f"has {len(cells)} columns where the header has {width}")

    def column(self, *names: str) -> int:
        """The position of the first of these columns that the header has; -1: none of them."""
        return next((self.header.index(name) for name in names if name in self.header), -1)

    def require(self, *names: str) -> int:
        """Like `column`, but one of them has to be there."""
        found = self.column(*names)
        if found < 0:
            raise BadInput(
                f"{self.path}:{self.header_line}: there is no column {' or '.join(names)}",
                hint=f"The header has {', '.join(map(show, self.header[:30]))}.",
            )
        return found


def split(line: str, separator: str) -> list[str]:
    """The cells of a line. Quotes may hold commas, never line breaks, so one stray quote costs one row."""
    if '"' not in line or separator != ",":
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator, strict=True), [])
    except csv.Error:
        return []


def _decoded(body: bytes, before: int, builder: Builder) -> list[str]:
    """The lines of `body`; a line that is no text becomes an empty one, so that the count stays right."""
    first_bytes = body.find(b"\n") if b"\n" in body else len(body)
    if first_bytes <= BLOCK_BYTES and b"\0" not in body:
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            pass
        else:
            text = text.replace("\r\n", "\n") if "\r" in text else text
            return text.removesuffix("\n").split("\n")
    lines = []
    for number, raw in enumerate(body.removesuffix(b"\n").split(b"\n"), start=before + 1):
        text = ""
        if len(raw) > BLOCK_BYTES:
            builder.broken(number, f"is longer than {BLOCK_BYTES} bytes")
        elif b"\0" in raw:
            builder.broken(number, "holds a NUL byte")
        else:
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                builder.broken(number, f"is not UTF-8 text: byte 0x{raw[error.start]:02x}")
        lines.append(text.removesuffix("\r"))
    return lines


@contextmanager
def open_source(path: str | Path) -> Iterator[Source]:
    """Open a trace file, compressed with gzip or not."""
    name = str(path)
    with readable(name):
        raw = open(name, "rb", buffering=HEAD_BYTES)  # noqa: SIM115 (closed below)
    with raw:
        with readable(name):
            packed = cast("BufferedReader", raw).peek(2)[:2] == _GZIP_MAGIC
            stream: BinaryIO = cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if packed else raw
            head = stream.read(HEAD_BYTES)
        if not head:
            raise BadInput(f"{name}: is empty", hint="Give a file with a header and one job a line.")
        if head.startswith(_UTF16_MARKS):
            raise BadInput(f"{name}: is UTF-16 text", hint="Save it as UTF-8 (Excel: CSV UTF-8).")
        yield Source(name, stream, head.removeprefix(_UTF8_MARK))


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn errors of the operating system or gzip about a file into a `BadInput`."""
    try:
        yield
    except FileNotFoundError:
        raise BadInput(f"{name}: there is no such file", hint="Check the path.") from None
    except IsADirectoryError:
        raise BadInput(f"{name}: is a directory", hint="Name one trace file in it.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(
            f"{name}: the compressed data is damaged or cut off ({error})",
            hint="Copy or compress the file again.",
        ) from None
    except OSError as error:
        raise BadInput(
            f"{name}: cannot be read: {error.strerror or error}", hint="Check its permissions."
        ) from None
    except ValueError:
        raise BadInput(f"{name!r}: is not a path", hint="Name a file.") from None
