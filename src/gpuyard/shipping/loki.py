"""Lines for Loki, by its push API.

Streams are told apart by few labels: yard, cluster, tenant and stream. Whatever differs from job to job is structured
metadata of a line, or a field of the line itself where Loki is older than 3.0.
"""

import json
from collections.abc import Sequence
from urllib.parse import urlsplit

from gpuyard.shipping.contract import SinkSpec
from gpuyard.shipping.http import Poster
from gpuyard.shipping.lines import LogLine

PATH = "/loki/api/v1/push"
LABELS = ("yard", "cluster", "tenant", "stream")


class Loki:
    """One Loki."""

    def __init__(self, spec: SinkSpec) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "gpuyard"}
        if spec.tenant:
            headers["X-Scope-OrgID"] = spec.tenant
        self._json = spec.json_lines
        self._poster = Poster(spec, urlsplit(spec.url).path.rstrip("/") + PATH, headers)

    def send(self, lines: Sequence[LogLine]) -> int:
        """Push a batch."""
        self._poster.post(body(lines, json_lines=self._json))
        return 0

    def close(self) -> None:
        """Let go."""
        self._poster.close()


def body(lines: Sequence[LogLine], *, json_lines: bool) -> bytes:
    """A batch as Loki reads it."""
    streams: dict[tuple[tuple[str, str], ...], tuple[dict[str, str], list[list[object]]]] = {}
    for line in lines:
        fields = line.fields()
        # Loki has no label without a value.
        labels = {"service_name": "gpuyard"} | {name: fields[name] for name in LABELS if fields.get(name)}
        values = streams.setdefault(tuple(labels.items()), (labels, []))[1]
        if json_lines:
            text = json.dumps({**fields, "message": line.text}, ensure_ascii=False)
            values.append([str(line.at_ns), text])
        else:
            rest = {name: value for name, value in fields.items() if name not in LABELS and value}
            values.append([str(line.at_ns), line.text, rest])
    return json.dumps(
        {"streams": [{"stream": labels, "values": values} for labels, values in streams.values()]}
    ).encode()
