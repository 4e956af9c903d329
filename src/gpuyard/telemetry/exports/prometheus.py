"""The scrape file: where a Prometheus finds the servers of a yard, how often it asks, and with which token."""

import json
from collections.abc import Sequence
from typing import NamedTuple

INTERVAL_S = 15


class Target(NamedTuple):
    """A server as Prometheus reaches it."""

    host: str
    """With its port."""
    tls: bool = False


_ABOUT = """\
# Written by `yard export prometheus`. It is a whole configuration by itself, and may as well be one of the files that
# `scrape_config_files` of your own prometheus.yml names.
# The servers report all nodes, also those whose samples `yard collect` sends.
# The token is one of a viewer, in a file that Prometheus can read:
#   yard token create --user prometheus --role viewer --tenant / --days 90 --to FILE
"""


def scrape_file(targets: Sequence[Target], credentials: str, ca: str = "") -> str:
    """The file as YAML. `credentials` and `ca` are paths on the machine of the Prometheus; empty: not needed."""
    parts = [each for each in (True, False) if any([target.tls is each for target in targets])]
    lines = [_ABOUT + "scrape_configs:"]
    for tls in parts:
        hosts = [_text(target.host) for target in targets if target.tls is tls]
        lines += [
            f"  - job_name: {'gpuyard' if tls is parts[0] else 'gpuyard-http'}",
            f"    scrape_interval: {INTERVAL_S}s",
            f"    scrape_timeout: {INTERVAL_S - 5}s",
            f"    scheme: {'https' if tls else 'http'}",
            "    metrics_path: /metrics",
        ]
        if credentials:
            lines += ["    authorization:", f"      credentials_file: {_text(credentials)}"]
        if tls and ca:
            lines += ["    tls_config:", f"      ca_file: {_text(ca)}"]
        lines += ["    static_configs:", f"      - targets: [{', '.join(hosts)}]"]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    """A text that YAML reads as this text."""
    return json.dumps(value, ensure_ascii=False)
