"""Lines for Elasticsearch (and OpenSearch), by `_bulk`.

Each line has an id of its own: one that is sent twice is there once. It is only ever created, so that an index and a
data stream will both do.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

from gpuyard.shipping.contract import Away, SinkSpec
from gpuyard.shipping.http import Poster
from gpuyard.shipping.lines import LogLine

_THERE_ALREADY = 409
_BUSY = 429


class Elasticsearch:
    """One index or data stream."""

    def __init__(self, spec: SinkSpec) -> None:
        base = urlsplit(spec.url).path.rstrip("/")
        headers = {"Content-Type": "application/x-ndjson", "User-Agent": "gpuyard"}
        self._url = spec.url
        self._poster = Poster(spec, f"{base}/{quote(spec.index, safe='')}/_bulk", headers)

    def send(self, lines: Sequence[LogLine]) -> int:
        """Send a batch, and look at the answer to each line."""
        return refused(self._poster.post(body(lines)), len(lines), self._url)

    def close(self) -> None:
        """Let go."""
        self._poster.close()


def body(lines: Sequence[LogLine]) -> bytes:
    """A batch as `_bulk` reads it: an action and a document for each line."""
    return b"".join([_pair(line) for line in lines])


def _pair(line: LogLine) -> bytes:
    fields = line.fields()
    at = datetime.fromtimestamp(line.at_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    document = {
        "@timestamp": f"{at}.{line.at_ns % 1_000_000_000:09d}Z",
        "message": line.text,
        "gpuyard": {name: value for name, value in fields.items() if value},
    }
    return f"{json.dumps({'create': {'_id': fields['id']}})}\n{json.dumps(document)}\n".encode()


def refused(answer: bytes, sent: int, url: str) -> int:
    """How many lines were not taken; raises `Away` if some of them may be taken later."""
    try:
        told: dict[str, Any] = json.loads(answer)
        if not told["errors"]:
            return 0
        results = [next(iter(item.values())) for item in told["items"]]
        codes = [int(each["status"]) for each in results]
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration) as error:
        raise Away(f"{url} gives an answer that is not one of _bulk") from error
    if len(codes) != sent:
        raise Away(f"{url} answers for {len(codes)} lines of {sent}")
    later = [code for code in codes if code == _BUSY or code >= 500]
    if later:
        raise Away(f"{url} could not take {len(later)} of {sent} lines: {later[0]}")
    return sum([code >= 300 and code != _THERE_ALREADY for code in codes])
