"""Other servers in `yard.yaml`: receivers of what jobs write (`logs`), and a Prometheus to be read (`telemetry`)."""

import re
from collections.abc import Collection
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import PlainValidator as Plain
from pydantic import WithJsonSchema as Shown

from gpuyard.config.values import EVERY_MS, MATCH, PrometheusSpec
from gpuyard.errors import quote, suggest
from gpuyard.keys.fields import (
    Name,
    OrNothing,
    PositiveMs,
    Word,
    YamlMapping,
    choice,
    key,
    required,
    text,
    whole,
)
from gpuyard.keys.findings import Findings
from gpuyard.keys.problems import Path
from gpuyard.shipping.contract import ELASTICSEARCH, LINE_BYTES, LOKI, OTLP, SYSLOG, SinkSpec
from gpuyard.shipping.syslog import FACILITIES

_INDEX = r"[a-z0-9][a-z0-9._-]{0,199}"
_SPEC = SinkSpec("", "", "")


def _address(value: str) -> str:
    """An address of a server that speaks HTTP. Everybody who may see the configuration sees it."""
    try:
        parts = urlsplit(value)
        host, _port = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"must be an address such as https://logs.example.org, not {quote(value)}")
    if parts.username is not None or parts.password is not None:
        raise ValueError("has a password in it; put that in a file, with 'user' and 'password_file'")
    if parts.query or parts.fragment:
        raise ValueError(f"must end with its path, without ? and #, not {quote(value)}")
    return value


def _place(value: str) -> str:
    """Where a syslog server listens."""
    try:
        parts = urlsplit(value)
        host, _port = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    by_path = parts.scheme == "unix" and parts.path.startswith("/") and not host and len(parts.path) < 108
    by_host = parts.scheme in ("tcp", "udp") and host and not parts.path.strip("/")
    if not (by_path or by_host):
        raise ValueError(
            f"must be tcp://HOST:514, udp://HOST:514 or a socket such as unix:///dev/log, not {quote(value)}"
        )
    return value


def _index(value: str) -> str:
    if not re.fullmatch(_INDEX, value):
        raise ValueError(
            f"must be of small letters, digits, '.', '_' and '-', such as gpuyard-logs, not {quote(value)}"
        )
    return value


def _file(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError(f"must be an absolute path, not {quote(value)}")
    return value


Address = Annotated[str, Plain(text(_address)), Shown({"type": "string", "format": "uri"})]
Receiver = Annotated[str, Plain(text(_place)), Shown({"type": "string", "pattern": "^(tcp|udp|unix)://"})]
Index = Annotated[str, Plain(text(_index)), Shown({"type": "string", "pattern": f"^{_INDEX}$"})]
FilePath = Annotated[str, Plain(text(_file)), Shown({"type": "string", "pattern": "^/"})]
LineBytes = Annotated[int, *whole(256, 262_144)]
FormatName = Annotated[str, *choice(["text", "json"], "format", "formats")]
FacilityName = Annotated[str, *choice(list(FACILITIES), "facility", "facilities")]
_TOKEN = "A file with the token that the yard sends; only its owner may read it. Default: none."
_USER = "The user name that the yard sends with the password in password_file. Default: none."
_PASSWORD = "A file with the password of user. Default: none."
_CA = "A file with the certificate authorities to trust. Default: those of this machine."


class HttpPlace(YamlMapping):
    """What every server has that is reached by HTTP."""

    url: Address = required("The address that the receiver listens on.", example="https://logs.example.org")
    token_file: FilePath | None = key(_TOKEN, example="/etc/gpuyard/logs.token")
    user: Word | None = key(_USER, example="gpuyard")
    password_file: FilePath | None = key(_PASSWORD, example="/etc/gpuyard/logs.password")
    ca_file: FilePath | None = key(_CA, example="/etc/gpuyard/ca.pem")


class HttpKeys(HttpPlace):
    """What every receiver has that is reached by HTTP."""

    line_bytes: LineBytes | None = key(
        "The longest line, in bytes; a longer one is sent in parts.", default=LINE_BYTES[LOKI], example=16_384
    )


class LokiKeys(HttpKeys):
    """Grafana Loki."""

    tenant: Word | None = key("Loki's tenant (X-Scope-OrgID). Default: none.", example="gpu")
    format: FormatName | None = key(
        "text: the plain line, with its fields as structured metadata (Loki 3.0); json: a JSON object "
        "with both.",
        default="text",
    )


class ElasticsearchKeys(HttpKeys):
    """Elasticsearch or OpenSearch."""

    index: Index | None = key("The index or data stream to write to.", default=_SPEC.index)


class OtlpKeys(HttpKeys):
    """An OpenTelemetry collector, or any other receiver of OTLP over HTTP."""


class SyslogKeys(YamlMapping):
    """A syslog server."""

    to: Receiver = required(
        "The address that the syslog server listens on.", example="tcp://logs.example.org:514"
    )
    facility: FacilityName | None = key("The syslog facility of the lines.", default="local0")
    line_bytes: LineBytes | None = key(
        "The longest line, in bytes; a longer one is sent in parts.", default=LINE_BYTES[SYSLOG]
    )


class SinkEntry(YamlMapping):
    """One receiver of logs, of one kind."""

    name: Name | None = key(
        "The receiver's name in metrics and messages. Default: its kind.", example="central"
    )
    loki: LokiKeys | None = key(
        "Grafana Loki. Default: the receiver is of another kind.", example={"url": "http://127.0.0.1:3100"}
    )
    elasticsearch: ElasticsearchKeys | None = key(
        "Elasticsearch or OpenSearch. Default: the receiver is of another kind.",
        example={"url": "http://127.0.0.1:9200"},
    )
    otlp: OtlpKeys | None = key(
        "OpenTelemetry over HTTP. Default: the receiver is of another kind.",
        example={"url": "http://127.0.0.1:4318"},
    )
    syslog: SyslogKeys | None = key(
        "Syslog, RFC 5424. Default: the receiver is of another kind.", example={"to": "udp://127.0.0.1:514"}
    )


class LogsEntry(YamlMapping):
    """Where the output of jobs is sent, besides `yard logs`."""

    sinks: list[Annotated[SinkEntry, OrNothing()]] | None = key(
        "Receivers, each of which receives every line. Default: none.",
        example=[{"loki": {"url": "http://127.0.0.1:3100"}}],
    )


KINDS: dict[str, type[YamlMapping]] = {
    LOKI: LokiKeys, ELASTICSEARCH: ElasticsearchKeys, OTLP: OtlpKeys, SYSLOG: SyslogKeys,
}  # fmt: skip


def check_logs(entry: LogsEntry | None, findings: Findings) -> None:
    """One kind for each receiver, a name for each, credentials that are complete."""
    names: dict[str, int] = {}
    for index, sink in enumerate((entry.sinks if entry else None) or []):
        path: Path = ("logs", "sinks", index)
        kinds = _kinds(sink)
        if len(kinds) != 1:
            found = f"has {' and '.join(kinds)}" if kinds else "has no kind"
            text_ = f"a receiver of logs {found}; give it one of: {', '.join(KINDS)}"
            findings.at(path, f"{text_}, as in '- loki: {{url: http://127.0.0.1:3100}}'")
            continue
        name = sink.name or kinds[0]
        if name in names:
            text_ = f"two receivers of logs are called {quote(name)}; give one of them another 'name'"
            findings.at(path, text_)
        names[name] = index
        keys = getattr(sink, kinds[0])
        if isinstance(keys, HttpKeys):
            _check_credentials((*path, kinds[0]), keys, findings)
        elif keys.to.startswith("udp:") and (keys.line_bytes or 0) > 8192:
            text_ = "'line_bytes' must be at most 8192 over UDP: a longer message does not fit in a datagram"
            findings.at((*path, SYSLOG, "line_bytes"), text_)


class PrometheusKeys(HttpPlace):
    """A Prometheus that scrapes dcgm-exporter and node_exporter."""

    clusters: list[Name] | None = key(
        "Clusters whose nodes it scrapes. Default: all except those of this machine.", example=["slurm"]
    )
    every: PositiveMs | None = key(
        "How often it scrapes; the yard reads it as often.", default="15s", example="30s"
    )
    match: Word | None = key(
        "Which of its series to read, as a selector without braces. It must not match the yard's own series.",
        default=MATCH,
        example='job=~"dcgm|node"',
    )


class TelemetryEntry(YamlMapping):
    """Where the yard reads samples of nodes and GPUs, besides collectors."""

    prometheus: PrometheusKeys | None = key(
        "A Prometheus to read instead of collectors. Default: none.",
        example={"url": "http://127.0.0.1:9090"},
    )


def check_telemetry(entry: TelemetryEntry | None, clusters: Collection[str], findings: Findings) -> None:
    """Credentials that are complete, clusters that are there, a pause that makes sense."""
    keys = entry.prometheus if entry else None
    if keys is None:
        return
    path: Path = ("telemetry", "prometheus")
    _check_credentials(path, keys, findings)
    for place, name in enumerate(keys.clusters or ()):
        if name not in clusters:
            text_ = f"unknown cluster {quote(name)}; {suggest(name, clusters, 'clusters')}"
            findings.at((*path, "clusters", place), text_)
    if keys.every is not None and not 1000 <= keys.every <= 300_000:
        findings.at((*path, "every"), "'every' must be from 1s to 5m")
    if keys.match is not None and any([sign in keys.match for sign in "{}[]\n"]):
        findings.at((*path, "match"), "'match' has conditions alone, without braces, as in job=\"dcgm\"")


def build_telemetry(entry: TelemetryEntry | None) -> PrometheusSpec | None:
    """The value."""
    keys = entry.prometheus if entry else None
    if keys is None:
        return None
    given = {name: value for name, value in keys.given().items() if value is not None}
    clusters, every_ms, match = (given.pop(name, None) for name in ("clusters", "every", "match"))
    place = SinkSpec("prometheus", "prometheus", **given)
    return PrometheusSpec(
        place, tuple(clusters or ()), every_ms or EVERY_MS, MATCH if match is None else match
    )


def _check_credentials(path: Path, keys: HttpPlace, findings: Findings) -> None:
    if (keys.user is None) != (keys.password_file is None):
        findings.at_key(path, "'user' and 'password_file' belong together; give both, or neither")
    elif keys.user is not None and keys.token_file is not None:
        findings.at_key(path, "'token_file' and 'user' are two ways to say who sends; keep one of them")
    given = keys.token_file is not None or keys.user is not None
    host = urlsplit(keys.url).hostname or ""
    if given and keys.url.startswith("http:") and host not in ("127.0.0.1", "::1", "localhost"):
        text_ = f"'url' must begin with https:// where a credential is sent, not {quote(keys.url)}"
        findings.at((*path, "url"), text_)


def build_logs(entry: LogsEntry | None) -> tuple[SinkSpec, ...]:
    """The values."""
    return tuple([_spec(sink, _kinds(sink)[0]) for sink in (entry.sinks if entry else None) or []])


def _kinds(sink: SinkEntry) -> list[str]:
    return [kind for kind in KINDS if getattr(sink, kind) is not None]


def _spec(sink: SinkEntry, kind: str) -> SinkSpec:
    given = getattr(sink, kind).given()
    given = {name: value for name, value in given.items() if value is not None}
    if kind == SYSLOG:
        given["url"] = given.pop("to")
    if "format" in given:
        given["json_lines"] = given.pop("format") == "json"
    if "facility" in given:
        given["facility"] = FACILITIES[given["facility"]]
    given.setdefault("line_bytes", LINE_BYTES[kind])
    return SinkSpec(kind, sink.name or kind, **given)
