"""What a configuration file amounts to: values that need neither YAML nor pydantic to be used."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuyard.engines.registry import kind_of
from gpuyard.errors import BadInput, quote, suggest
from gpuyard.model import Capability, PolicySpec, Pool, Settings
from gpuyard.model.units import DAY_MS
from gpuyard.shipping.contract import SinkSpec

UID_MIN = 1000
"""A uid below this is one of the system's own users, not a person."""
ATTEMPTS_PER_USER, ATTEMPTS_PER_NODE = 256, 1024
"""How many attempts one user and one node may have by default, where the yard is one machine."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes of one engine."""

    name: str
    engine: str
    """The name of its kind (`gpuyard.engines.registry`)."""
    pools: tuple[str, ...]
    """Names of its pools, in the order of the file."""
    emulated: frozenset[str] = frozenset()
    """Pools with GPUs that this machine only pretends to have."""
    gpus: tuple[int, str] | None = None
    """The GPUs that this machine pretends to have: number and model. None: those that are found."""
    allow_root: bool = False
    """Whether root's own jobs run as root where other people use the machine."""
    features: tuple[str, ...] = ()
    """Features of this machine that jobs may ask for by name."""
    own: Any = None
    """The keys of its engine, as that takes them (`EngineKind.settled`)."""

    @property
    def lacks(self) -> frozenset[Capability]:
        """What its engine can never do, known without asking it."""
        kind = kind_of(self.engine)
        return kind.lacking(self.own) if kind is not None else frozenset()


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the yard, or a group of them: their role, and the machine's user for their jobs."""

    unix: str = ""
    """The user of the machine; empty: of the same name."""
    role: str = "user"
    tenant: str = ""
    """The place in the tree of tenants where the role holds; empty: everywhere."""
    default_tenant: str = ""
    """The tenant of jobs that name none; empty: below `tenant`, or the yard's default."""


@dataclass(frozen=True, slots=True)
class Oidc:
    """An identity provider, and what its claims mean here."""

    issuer: str
    client_id: str
    user_claim: str = "preferred_username"
    groups_claim: str = "groups"
    groups: Mapping[str, Account] = field(default_factory=dict)
    session_ms: int = DAY_MS // 2
    scopes: str = "openid profile email"


@dataclass(frozen=True, slots=True)
class Limits:
    """How many requests one user may send to one server process."""

    submits_per_s: int = 200
    reads_per_s: int = 100
    burst_s: int = 5
    at_once: int = 64


@dataclass(frozen=True, slots=True)
class Access:
    """What each person may do, for `yard up --auth`."""

    users: Mapping[str, Account] = field(default_factory=dict)
    token_ms: int = 30 * DAY_MS
    token_ms_max: int = 90 * DAY_MS
    uid_min: int = UID_MIN
    """Lower uids of the machine never run jobs of people outside `users`."""
    oidc: Oidc | None = None
    limits: Limits = field(default_factory=Limits)


EVERY_MS = 15_000
"""How often a Prometheus scrapes where nobody says otherwise."""
MATCH = 'job!~"gpuyard.*"'
"""Not what it has scraped from a yard: that came from here."""


@dataclass(frozen=True, slots=True)
class PrometheusSpec:
    """A Prometheus that is read instead of collectors."""

    place: SinkSpec
    clusters: tuple[str, ...] = ()
    """Whose nodes it knows; empty: all but those of this machine."""
    every_ms: int = EVERY_MS
    match: str = MATCH


@dataclass(frozen=True, slots=True)
class Config:
    """Everything a configuration file says, in the units the rest of gpuyard counts in."""

    settings: Settings
    pools: tuple[Pool, ...]
    """All pools of all clusters, in the order of the file."""
    policies: dict[str, PolicySpec]
    """Every policy by name: the presets and the file's own."""
    clusters: dict[str, Cluster]
    prices: dict[str, int] = field(default_factory=dict)
    """Micro-dollars an hour by GPU model, where the file has them."""
    access: Access | None = None
    """People, tokens and limits; None: the file says nothing of them."""
    sinks: tuple[SinkSpec, ...] = ()
    """Receivers of what jobs write."""
    prometheus: PrometheusSpec | None = None
    """Read for what nodes and GPUs do."""
    notes: tuple[str, ...] = ()
    """What people should know about the form of the file, in sentences."""

    def policy(self, name: str) -> PolicySpec:
        """The preset or own policy of that name; `BadInput` if there is none."""
        if name not in self.policies:
            raise BadInput(f"unknown policy {quote(name)}; {suggest(name, self.policies, 'policies')}")
        return self.policies[name]
