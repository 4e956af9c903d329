"""`logs` in yard.yaml: receivers, and what is wrong with them."""

import pytest

from gpuyard.config.reading import loads
from gpuyard.keys.problems import ConfigError
from gpuyard.shipping.contract import SinkSpec

_BASE = "version: 1\nclusters: {main: {}}\nlogs:\n  sinks:\n"


def _sinks(*rows: str) -> tuple[SinkSpec, ...]:
    return loads(_BASE + "".join([f"    - {row}\n" for row in rows]), "yard.yaml").sinks


def test_every_kind_of_receiver_with_its_defaults():
    found = _sinks(
        "loki: {url: http://127.0.0.1:3100, tenant: gpu, format: json}",
        "{name: es, elasticsearch: {url: https://es:9200, user: y, password_file: /etc/p}}",
        "otlp: {url: https://o:4318/base, token_file: /etc/t, line_bytes: 4096}",
        "syslog: {to: unix:///dev/log, facility: daemon}",
    )
    assert (
        SinkSpec("loki", "loki", "http://127.0.0.1:3100", tenant="gpu", json_lines=True),
        SinkSpec("elasticsearch", "es", "https://es:9200", user="y", password_file="/etc/p"),
        SinkSpec("otlp", "otlp", "https://o:4318/base", token_file="/etc/t", line_bytes=4096),
        SinkSpec("syslog", "syslog", "unix:///dev/log", facility=3, line_bytes=1024),
    ) == found
    assert () == loads("version: 1\nclusters: {main: {}}\nlogs:\n", "yard.yaml").sinks


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["loki: {url: loki:3100}"], "must be an address such as https://logs.example.org"),
        (["loki: {url: 'http://y:pw@127.0.0.1'}"], "has a password in it; put that in a file"),
        (["loki: {}"], "has no 'url'; add 'url: https://logs.example.org'"),
        (["loki: {url: http://h, lables: x}"], "unknown key 'lables'"),
        (["{loki: {url: http://h}, otlp: {url: http://h}}"], "has loki and otlp; give it one of: loki,"),
        (["name: a"], "has no kind; give it one of: loki, elasticsearch, otlp, syslog"),
        (["loki: {url: http://h}", "loki: {url: http://i}"], "two receivers of logs are called 'loki'"),
        (["loki: {url: https://h, user: a}"], "'user' and 'password_file' belong together"),
        (["otlp: {url: http://far, token_file: /t}"], "'url' must begin with https:// where a credential is sent"),
        (["otlp: {url: https://h, token_file: t}"], "must be an absolute path, not 't'"),
        (["elasticsearch: {url: http://h, index: A/b}"], "must be of small letters"),
        (["syslog: {to: logs.example.org}"], "must be tcp://HOST:514, udp://HOST:514 or a socket"),
        (["syslog: {to: udp://h, facility: lokal0}"], "did you mean 'local0'?"),
        (["syslog: {to: udp://h, line_bytes: 9000}"], "must be at most 8192 over UDP"),
        (["kafka: {url: http://h}"], "unknown key 'kafka' in a receiver of logs"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(rows: list[str], said: str):
    with pytest.raises(ConfigError) as wrong:
        _sinks(*rows)
    assert said in str(wrong.value)
    assert "yard.yaml:" in str(wrong.value)
