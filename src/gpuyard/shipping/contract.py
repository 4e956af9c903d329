"""What a receiver of logs is: its place and keys, and what becomes of a batch of lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuyard.shipping.lines import LogLine

LOKI, ELASTICSEARCH, OTLP, SYSLOG = "loki", "elasticsearch", "otlp", "syslog"
LINE_BYTES = {LOKI: 65_536, ELASTICSEARCH: 65_536, OTLP: 65_536, SYSLOG: 1024}
"""How long a line may be before it is sent in parts. rsyslog takes 8 KiB by default, with every label and escape."""


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """A receiver, as yard.yaml names it. It holds names of files with credentials, and no credential."""

    kind: str
    name: str
    url: str
    token_file: str = ""
    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    tenant: str = ""
    """Loki: the tenant there (X-Scope-OrgID)."""
    json_lines: bool = False
    """Loki: lines as JSON with all fields, for releases without structured metadata."""
    index: str = "gpuyard-logs"
    """Elasticsearch: the index or data stream."""
    facility: int = 16
    """Syslog: local0."""
    line_bytes: int = 65_536


class Away(Exception):
    """The receiver cannot take anything now: the same lines are sent again later."""

    def __init__(self, why: str, retry_s: float = 0.0) -> None:
        super().__init__(why)
        self.retry_s = retry_s
        """When the receiver said that it may be asked again; 0: it did not say."""


class Sends(Protocol):
    """What sends logs to one receiver, beside the server."""

    spec: SinkSpec
    trouble: str
    """What is wrong with the receiver now, in words; empty: nothing."""
    sent: int
    """Lines that were taken."""
    refused: int
    """Lines that were not wanted."""
    left_out_bytes: int
    """What long logs had lost before it could be sent."""
    lost: int
    """Logs that were gone before they were sent to their end."""
    restarted: int
    """Logs that were truncated or replaced, and began anew."""

    @property
    def lag_s(self) -> float:
        """For how long there has been a line that the receiver has not taken."""
        ...

    @property
    def streams(self) -> int:
        """Logs that are not sent to their end."""
        ...

    def round(self) -> float:
        """Send what there is to send; the pause until the next round."""
        ...

    def let_go(self) -> None:
        """Another server sends, from what is on disk."""
        ...

    def close(self) -> None:
        """End. What is under way is sent again by the next server."""
        ...


def failure_text(error: Exception) -> str:
    """An error in words; some have none."""
    return str(error) or type(error).__name__


class Refused(Exception):
    """The receiver will never take this batch as it is: there is a line in it that it does not want."""


class Sink(Protocol):
    """One receiver. A sink belongs to one thread."""

    def send(self, lines: Sequence[LogLine]) -> int:
        """Have lines taken, in this order; how many of them were refused one by one.

        Raises `Away` or `Refused`. When this returns, the receiver has the others.
        """
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...
