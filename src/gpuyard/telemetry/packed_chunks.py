"""A chunk of series of one node as bytes: small, and read without the series that nobody asks for.

All series of a chunk share one axis of times, since one collector takes them together. A series is its first value and
the differences that follow, in as few bytes as the largest of them takes, byte plane by byte plane; zlib finds that
most of them are alike. A hole is a bit, never a value.
"""

import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise

from gpuyard.errors import YardError

_HEAD = struct.Struct("<BIII")
_COLUMN = struct.Struct("<BBq")
_FORM = 1
_LEVEL = 6
_CODES = ("b", "h", "i", "q")
_LIMITS = tuple((1 << (8 * array(code).itemsize - 1)) - 1 for code in _CODES)
_CONSTANT, _NO_VALUES = 4, 5

Column = Sequence[int | None]
"""The values of one series along the axis; None: there is none at that time."""


class Damaged(YardError):
    """Bytes that are no chunk."""


def pack(times_ms: Sequence[int], columns: Mapping[str, Column]) -> bytes:
    """A chunk. Times are in order, and every column is as long as they are."""
    names = "\n".join(columns).encode()
    heads, holes, bodies = [], [], []
    for column in [times_ms, *columns.values()]:
        values = [value for value in column if value is not None]
        gaps = len(values) < len(column)
        code, first, body = _packed(values)
        heads.append(_COLUMN.pack(code, gaps, first))
        if gaps:
            bits = sum([1 << place for place, value in enumerate(column) if value is not None])
            holes.append(bits.to_bytes((len(column) + 7) // 8, "little"))
        bodies.append(body)
    head = _HEAD.pack(_FORM, len(times_ms), len(columns), len(names))
    return zlib.compress(b"".join([head, names, *heads, *holes, *bodies]), _LEVEL)


def unpack(
    blob: bytes, wanted: Callable[[str], bool] | None = None
) -> tuple[list[int], dict[str, list[int | None]]]:
    """The times and the columns whose names are wanted; None: all of them."""
    try:
        return _unpack(zlib.decompress(blob), wanted)
    except (zlib.error, struct.error, IndexError, ValueError) as error:
        raise Damaged(f"a chunk of series is damaged: {error}") from error


def _unpack(
    raw: bytes, wanted: Callable[[str], bool] | None
) -> tuple[list[int], dict[str, list[int | None]]]:
    form, points, series, names_bytes = _HEAD.unpack_from(raw)
    if form != _FORM:
        raise ValueError(f"its form is {form}")
    at = _HEAD.size + names_bytes
    names = raw[_HEAD.size : at].decode().split("\n") if series else []
    heads = [_COLUMN.unpack_from(raw, at + place * _COLUMN.size) for place in range(series + 1)]
    at += len(heads) * _COLUMN.size
    bitmap = (points + 7) // 8
    present = []
    for _code, gaps, _first in heads:
        present.append(int.from_bytes(raw[at : at + bitmap], "little") if gaps else -1)
        at += bitmap if gaps else 0
    times: list[int] = []
    found: dict[str, list[int | None]] = {}
    for (code, _gaps, first), bits, name in zip(heads, present, ["", *names], strict=True):
        count = points if bits < 0 else bits.bit_count()
        width = array(_CODES[code]).itemsize if code < _CONSTANT else 0
        length = max(0, count - 1) * width
        if len(raw) < at + length:
            raise ValueError("it is cut off")
        if not name or wanted is None or wanted(name):
            values = _unpacked(code, first, count, raw[at : at + length])
            if not name:
                times = values
            elif bits < 0:
                found[name] = list(values)
            else:
                rest = iter(values)
                found[name] = [next(rest) if bits >> place & 1 else None for place in range(points)]
        at += length
    return times, found


def _packed(values: Sequence[int]) -> tuple[int, int, bytes]:
    if not values:
        return _NO_VALUES, 0, b""
    steps = [after - before for before, after in pairwise(values)]
    largest = max([abs(step) for step in steps], default=0)
    if not largest:
        return _CONSTANT, values[0], b""
    code = next(place for place, limit in enumerate(_LIMITS) if largest <= limit)
    made = array(_CODES[code], steps)
    if sys.byteorder == "big":
        made.byteswap()
    raw, width = made.tobytes(), made.itemsize
    return code, values[0], b"".join([raw[plane::width] for plane in range(width)])


def _unpacked(code: int, first: int, count: int, body: bytes) -> list[int]:
    if code == _NO_VALUES or not count:
        return []
    if code == _CONSTANT:
        return [first] * count
    made = array(_CODES[code])
    width, steps = made.itemsize, count - 1
    raw = bytearray(len(body))
    for plane in range(width):
        raw[plane::width] = body[plane * steps : (plane + 1) * steps]
    made.frombytes(bytes(raw))
    if sys.byteorder == "big":
        made.byteswap()
    return list(accumulate(made, initial=first))
