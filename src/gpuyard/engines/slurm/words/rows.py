"""Slurm's nodes, partitions and reservations: one row of each, and the reader of what `scontrol -o` prints of them.

Driving, observing, importing and examining a cluster all take these rows; `calls/rest_rows.py` makes the same ones of
what slurmrestd answers. Text that cannot be read raises `Unreadable`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from gpuyard.engines.slurm.words.forms import (
    Gres,
    Unreadable,
    drop_null,
    limit_ms,
    parse_gres,
    parse_hosts,
    parse_moment_ms,
    parse_pairs,
    parse_tres_map,
    parse_whole,
    read_features,
    read_size,
    split_names,
)
from gpuyard.engines.slurm.words.states import CLOSED, DOWN, parse_node_states
from gpuyard.model.gpu_names import parse_mig_profile

_Row = TypeVar("_Row")
_UP = "UP"


class NodeGpus(NamedTuple):
    """GPUs of one type."""

    number: int
    type: str
    """As Slurm names it; empty: it has no name."""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A machine of the cluster."""

    name: str
    state: str
    """Slurm's words, joined by `+`: `MIXED+DRAIN`."""
    cpus: int
    memory_mib: int
    gres: tuple[Gres, ...]
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    address: str = ""
    reason: str = ""
    reason_ms: int = 0
    """When it was given; 0: unknown."""
    version: str = ""
    alloc: Mapping[str, str] = field(default_factory=dict)
    sockets: int = 1
    boot_ms: int = 0

    @property
    def states(self) -> frozenset[str]:
        """Its words, without the marks behind them."""
        return parse_node_states(self.state)

    @property
    def up(self) -> bool:
        """Whether it takes work, apart from reservations."""
        return not self.states & {*DOWN, *CLOSED, "POWERED_DOWN"}

    def trouble(self, reserved: bool = False) -> str:
        """Why it takes nothing new; empty: it does. `reserved`: nodes of a reservation are ours."""
        said = f": {self.reason}" if self.reason else ""
        states = self.states
        if bad := sorted(states & DOWN):
            return f"Slurm calls it {bad[0].lower()}{said}"
        for state in sorted(states):
            if state in CLOSED and not (reserved and state in ("MAINT", "MAINTENANCE")):
                return f"{CLOSED[state]} in Slurm{said}"
        if "RESERVED" in states and not reserved:
            return "in a reservation of Slurm"
        return ""

    def gpu_types(self) -> dict[str, int]:
        """How many GPUs it has of each type that Slurm names; the name may be empty."""
        found: dict[str, int] = {}
        for each in self.gres:
            if each.name == "gpu":
                found[each.type] = found.get(each.type, 0) + each.number
        return found

    @property
    def gpus(self) -> NodeGpus:
        """The GPUs that count: a node of the yard has GPUs of one type, that of which it has most."""
        # 1. whole GPUs before slices; 2. most GPUs; 3. the name.
        found = [
            (bool(parse_mig_profile(type_)), -number, type_) for type_, number in self.gpu_types().items()
        ]
        _sliced, less, type_ = min(found, default=(False, 0, ""))
        return NodeGpus(-less, type_)

    @property
    def gpu_count(self) -> int:
        """All its GPUs, of whatever type."""
        return sum(self.gpu_types().values())


@dataclass(frozen=True, slots=True)
class Partition:
    """A set of nodes that jobs are sent to."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    state: str = _UP
    max_ms: int = 0
    """The longest time limit; 0: none."""
    default_ms: int = 0
    accounts: tuple[str, ...] = ()
    """The accounts that may use it; empty: all."""
    qos: str = ""
    priority_tier: int = 1
    oversubscribe: str = "NO"
    tres: Mapping[str, str] = field(default_factory=dict)
    default_memory: bool = False
    """Whether a job that names no memory gets some of it, rather than all of its node's."""
    billing: Mapping[str, str] = field(default_factory=dict)
    """How much a unit of each resource counts as usage; empty: cores count."""

    @property
    def up(self) -> bool:
        """Whether its jobs start."""
        return self.state == _UP


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes kept for some, or for maintenance."""

    name: str
    start_ms: int
    end_ms: int
    nodes: tuple[str, ...]
    flags: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()


# -- what scontrol prints ------------------------------------------------------------------------------------------


def read_nodes(text: str) -> list[SlurmNode]:
    """The lines of `scontrol -o show node`."""
    return _read(text, "NodeName", _node)


def read_partitions(text: str) -> list[Partition]:
    """The lines of `scontrol -o show partition`."""
    return _read(text, "PartitionName", _partition)


def read_reservations(text: str) -> list[Reservation]:
    """The lines of `scontrol -o show reservation`; there may be none."""
    return _read(text, "ReservationName", _reservation)


def check_lines(text: str, key: str) -> None:
    """Whether this is what `scontrol -o` printed, and nothing else."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or not all([line.startswith(f"{key}=") for line in lines]):
        raise Unreadable(f"should hold lines that begin with {key}=, as `scontrol -o show …` prints them")


def _read(text: str, key: str, row: Callable[[Mapping[str, str]], _Row]) -> list[_Row]:
    """Rows of the lines that begin with the key; others are messages: `No reservations in the system`."""
    return [row(parse_pairs(line)) for line in text.splitlines() if line.startswith(f"{key}=")]


def _node(found: Mapping[str, str]) -> SlurmNode:
    reason, _, when = found.get("Reason", "").partition(" [")
    cpus, memory_mib = read_size(found)
    return SlurmNode(
        name=found["NodeName"],
        state=found.get("State", "UNKNOWN").split()[0] if found.get("State") else "UNKNOWN",
        cpus=cpus,
        memory_mib=memory_mib,
        gres=parse_gres(found.get("Gres", "")),
        features=read_features(found),
        partitions=split_names(found.get("Partitions", "")),
        address=found.get("NodeAddr", found["NodeName"]),
        reason=drop_null(reason),
        reason_ms=_reason_ms(when),
        version=drop_null(found.get("Version", "")),
        alloc=parse_tres_map(found.get("AllocTRES", "")),
        sockets=parse_whole(found.get("Sockets") or "1", "Sockets"),
        boot_ms=parse_moment_ms(found.get("BootTime", ""), "BootTime"),
    )


def _reason_ms(text: str) -> int:
    """`root@2026-11-15T10:30:00]` or `root@1794738498]`."""
    try:
        return parse_moment_ms(text.rpartition("@")[2].rstrip("] "), "the time of a reason")
    except Unreadable:
        return 0


def _partition(found: Mapping[str, str]) -> Partition:
    accounts = drop_null(found.get("AllowAccounts", ""))
    return Partition(
        name=found["PartitionName"],
        nodes=tuple(parse_hosts(found.get("Nodes", ""))),
        default=found.get("Default", "").upper() == "YES",
        state=found.get("State", _UP).upper(),
        max_ms=limit_ms(found.get("MaxTime", ""), "MaxTime"),
        default_ms=limit_ms(found.get("DefaultTime", ""), "DefaultTime"),
        accounts=() if accounts.upper() == "ALL" else split_names(accounts),
        qos=drop_null(found.get("QoS", "")),
        priority_tier=parse_whole(found.get("PriorityTier") or "1", "PriorityTier"),
        oversubscribe=found.get("OverSubscribe", "NO").upper(),
        tres=parse_tres_map(found.get("TRES", "")),
        default_memory=_has_default(found),
        billing=parse_tres_map(found.get("TRESBillingWeights", "")),
    )


def _has_default(found: Mapping[str, str]) -> bool:
    own = [drop_null(found.get(name, "")) for name in ("DefMemPerNode", "DefMemPerCPU")]
    return any(each and each.upper() != "UNLIMITED" for each in own) or "DefMemPerGPU" in found.get(
        "JobDefaults", ""
    )


def _reservation(found: Mapping[str, str]) -> Reservation:
    return Reservation(
        name=found["ReservationName"],
        start_ms=parse_moment_ms(found.get("StartTime", ""), "StartTime"),
        end_ms=parse_moment_ms(found.get("EndTime", ""), "EndTime"),
        nodes=tuple(parse_hosts(found.get("Nodes", ""))),
        flags=split_names(found.get("Flags", "")),
        users=split_names(found.get("Users", "")),
        accounts=split_names(found.get("Accounts", "")),
    )
