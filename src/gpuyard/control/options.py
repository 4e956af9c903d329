"""What `yard up` was told, and what is wrong with it before a process is made."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from gpuyard.control.places import PORT
from gpuyard.errors import BadInput
from gpuyard.telemetry.collector import PAUSE_S

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Options:
    """What `yard up` was told."""

    data: Path
    port: int = PORT
    any_port: bool = False
    """Whether the next free port will do where that one is taken: it was not asked for by number."""
    port_taken: int = 0
    """The port that another program has, so that the next free one is used; 0: none."""
    config: Path | None = None
    store: str = ""
    """A URL; empty: a file in the data folder."""
    emulate: str = ""
    """GPUs to pretend to have, as in `8 x H100`; empty: as configured."""
    host: str = LOOPBACK
    """The address to listen at."""
    auth: bool = False
    """Whether people have to identify themselves, by a token or a login."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    older_log: bool = False
    """Whether to go on with a log that is behind what the engine's folder has seen."""
    insecure_http: bool = False
    """Whether to serve others without TLS: something before the server speaks it."""
    leads: bool = True
    """Whether this server may be elected; else it only answers."""
    look_s: float = PAUSE_S
    """Between two looks at what this machine does."""

    @property
    def url(self) -> str:
        """Where the server listens, for a browser on its machine."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.port}"

    @property
    def shared(self) -> bool:
        """Whether other servers may work on the same store, in the same folder."""
        return "://" in self.store


def check_address(options: Options) -> None:
    """A server that other machines can reach wants tokens, and TLS so that nothing is read on the way."""
    if (options.tls_cert is None) != (options.tls_key is None):
        raise BadInput("--tls-cert and --tls-key belong together", "Give both, or neither.")
    if is_loopback(options.host):
        return
    if not options.auth:
        raise BadInput(
            f"{options.host} can be reached from other machines, and without --auth they all could submit jobs",
            "Add --auth, or listen at 127.0.0.1.",
        )
    if options.tls_cert is None and not options.insecure_http:
        raise BadInput(
            f"{options.host} can be reached from other machines, and without TLS tokens can be read on the way",
            "Add --tls-cert FILE --tls-key FILE; or --insecure-http, if a proxy before the server speaks TLS.",
        )


def check_shared(options: Options) -> None:
    """A server that does not lead needs another one that does, on the same store."""
    if not (options.leads or options.shared):
        raise BadInput(
            "with --no-lead this server would wait for another one to decide, and a store in a file has one server",
            "Leave --no-lead out, or name a database that several servers share: --store postgresql://…",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
