"""Lines for anything that speaks OpenTelemetry: OTLP over HTTP, in protobuf.

The few messages that are needed are written by hand: a field is a number, a kind and a value. Tests read what comes out
with OpenTelemetry's own classes.
"""

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from gpuyard import __version__
from gpuyard.shipping.contract import Away, SinkSpec
from gpuyard.shipping.http import Poster
from gpuyard.shipping.lines import LogLine

PATH = "/v1/logs"
RESOURCE = ("yard", "cluster", "node")
"""Labels that say where lines come from; the others are attributes of each."""
_VARINT, _FIXED64, _BYTES = 0, 1, 2
_INFO = 9


class Otlp:
    """One OTLP endpoint."""

    def __init__(self, spec: SinkSpec) -> None:
        path = urlsplit(spec.url).path.rstrip("/")
        headers = {"Content-Type": "application/x-protobuf", "User-Agent": f"gpuyard/{__version__}"}
        self._url = spec.url
        self._poster = Poster(spec, path if path.endswith(PATH) else path + PATH, headers)

    def send(self, lines: Sequence[LogLine]) -> int:
        """Export a batch."""
        answer = self._poster.post(body(lines))
        try:
            return min(len(lines), rejected(answer))
        except (IndexError, ValueError) as error:
            raise Away(f"{self._url} gives an answer that is not one of OTLP") from error

    def close(self) -> None:
        """Let go."""
        self._poster.close()


def body(lines: Sequence[LogLine]) -> bytes:
    """A batch as an `ExportLogsServiceRequest`."""
    by_resource: dict[tuple[str, ...], list[LogLine]] = {}
    for line in lines:
        by_resource.setdefault(tuple([line.labels.get(name, "") for name in RESOURCE]), []).append(line)
    return b"".join([_message(1, _resource_logs(each)) for each in by_resource.values()])


def _resource_logs(lines: Sequence[LogLine]) -> bytes:
    labels = lines[0].labels
    about = {"service.name": "gpuyard"} | {
        f"gpuyard.{name}": labels[name] for name in RESOURCE if labels.get(name)
    }
    if "gpuyard.node" in about:
        about["host.name"] = about["gpuyard.node"]
    scope = _text(1, "gpuyard.shipping") + _text(2, __version__)
    records = b"".join([_message(2, _record(line)) for line in lines])
    return _message(1, _attributes(1, about)) + _message(2, _message(1, scope) + records)


def _record(line: LogLine) -> bytes:
    about = {
        (
            "log.record.uid" if name == "id" else "log.iostream" if name == "stream" else f"gpuyard.{name}"
        ): value
        for name, value in line.fields().items()
        if name not in RESOURCE and value
    }
    # Field 1, the time of the event, is left out: nobody knows when a job wrote a line.
    return (
        _number(2, _INFO)
        + _message(5, _text(1, line.text))
        + _attributes(6, about)
        + _key(11, _FIXED64)
        + line.at_ns.to_bytes(8, "little")
    )


def _attributes(field: int, named: dict[str, str]) -> bytes:
    return b"".join(
        [_message(field, _text(1, name) + _message(2, _text(1, value))) for name, value in named.items()]
    )


def _text(field: int, value: str) -> bytes:
    # A lone surrogate, which JSON can carry and UTF-8 cannot, is not in text that was decoded from UTF-8.
    return _message(field, value.encode())


def _message(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(content)) + content


def _number(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _varint(value)


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def rejected(answer: bytes) -> int:
    """How many records an `ExportLogsServiceResponse` says were not taken; raises where it is none."""
    partial = b"".join([value for field, value in _fields(answer) if field == 1 and isinstance(value, bytes)])
    counts = [value for field, value in _fields(partial) if field == 1 and isinstance(value, int)]
    return counts[-1] if counts else 0


def _fields(content: bytes) -> Iterable[tuple[int, int | bytes]]:
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number without an end")

    while at < len(content):
        key = varint()
        kind = key & 7
        if kind == _VARINT:
            yield key >> 3, varint()
            continue
        size = varint() if kind == _BYTES else {1: 8, 5: 4}.get(kind, -1)
        if size < 0 or at + size > len(content):
            raise ValueError("a field without an end")
        at += size
        yield key >> 3, content[at - size : at]
