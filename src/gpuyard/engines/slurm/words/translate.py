"""Pure translation: what Slurm's commands print into rows, Slurm's words into ours, a node of Slurm into a node."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from gpuyard.engines.slurm.words.forms import node_features, node_size, pairs
from gpuyard.engines.slurm.words.hosts import expand
from gpuyard.engines.slurm.words.states import CLOSED, DOWN, LIVES, WAITS, node_states
from gpuyard.model import Node
from gpuyard.model.gpu_names import linked, model_taken
from gpuyard.model.units import MILLI

SEPARATOR = "\x1f"
QUEUE_FIELDS = (
    "JobID",
    "HetJobID",
    "State",
    "Reason",
    "UserID",
    "SubmitTime",
    "NodeList",
    "tres-alloc",
    "Partition",
    "Comment",
)
"""Fields of `squeue`. Text that people write freely comes last."""

PAST_FIELDS = ("JobIDRaw", "UID", "Submit", "State")
"""Fields of `sacct`, for jobs that Slurm no longer knows."""
_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGTP])")
_UNITS = {"K": 2**-10, "M": 1, "G": 2**10, "T": 2**20, "P": 2**30}
_GRES = re.compile(r"gpu(?::([^:,()]+?))??(?::(\d+))?(?:\([^)]*\))?")


class SlurmJob(NamedTuple):
    """A job in Slurm's queue, or one that ended not long ago."""

    id: int
    het_id: int
    """The first component's id, where it is a component of a heterogeneous job; 0: it is none."""
    state: str
    reason: str
    uid: int
    submit_s: int
    nodes: tuple[str, ...]
    gpus: int
    """On all its nodes together."""
    cpus: int
    memory_mib: int
    partition: str
    comment: str

    @property
    def first_id(self) -> int:
        """The number under which it was submitted, and by which it is cancelled."""
        return self.het_id or self.id

    @property
    def waits(self) -> bool:
        """Slurm has not given it nodes."""
        return self.state in WAITS

    @property
    def lives(self) -> bool:
        """It holds nodes."""
        return self.state in LIVES


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm describes it."""

    name: str
    address: str
    states: frozenset[str]
    reason: str
    cpus: int
    memory_mib: int
    gres: tuple[tuple[str, int], ...]
    """GPUs by type; the type may be empty."""
    features: tuple[str, ...]
    partitions: tuple[str, ...]

    def trouble(self, reserved: bool = False) -> str:
        """Why it takes nothing new; empty: it does. `reserved`: nodes of a reservation are ours."""
        said = f": {self.reason}" if self.reason else ""
        if bad := sorted(self.states & DOWN):
            return f"Slurm calls it {bad[0].lower()}{said}"
        for state in sorted(self.states):
            if state in CLOSED and not (reserved and state in ("MAINT", "MAINTENANCE")):
                return f"{CLOSED[state]} in Slurm{said}"
        if "RESERVED" in self.states and not reserved:
            return "in a reservation of Slurm"
        return ""

    @property
    def gpus(self) -> tuple[str, int]:
        """The most common type, with its number: a node of the yard has GPUs of one kind."""
        # 1. most GPUs; 2. the name.
        return min(self.gres, key=lambda item: (-item[1], item[0]), default=("", 0))


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of Slurm."""

    name: str
    nodes: tuple[str, ...]
    up: bool
    default: bool
    max_minutes: int
    """0: no limit."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that Slurm keeps for some users, or for repairs, from some time on."""

    name: str
    nodes: tuple[str, ...]
    start_s: int
    end_s: int
    flags: frozenset[str]


# ---- reading


def queue_format(nonce: str) -> str:
    """The format for `squeue -O`. The nonce is in every true line: a comment may hold lines of its own."""
    first, *others = QUEUE_FIELDS
    return ",".join([f"{first}:{SEPARATOR}{nonce}{SEPARATOR}", *[f"{name}:{SEPARATOR}" for name in others]])


def read_queue(text: str, nonce: str) -> list[SlurmJob]:
    """The lines of `squeue`. An incomplete line is skipped."""
    jobs = []
    for line in text.split("\n"):
        fields = line.split(SEPARATOR)
        if len(fields) < len(QUEUE_FIELDS) + 1 or fields[1] != nonce or not fields[0].strip().isdecimal():
            continue
        number, _, het, state, reason, uid, submit, nodes, tres, partition, comment = fields[:11]
        found = read_tres(tres)
        jobs.append(
            SlurmJob(
                id=int(number),
                het_id=_number(het),
                state=state.strip(),
                reason=reason.strip(),
                uid=_number(uid),
                submit_s=seconds(submit),
                nodes=expand(nodes.strip()),
                gpus=found.get("gres/gpu", 0),
                cpus=found.get("cpu", 0),
                memory_mib=found.get("mem", 0),
                partition=partition.strip(),
                comment=comment.strip(),
            )
        )
    return jobs


def _number(text: str) -> int:
    return int(text) if text.strip().isdecimal() else 0


def read_past(text: str) -> list[SlurmJob]:
    """Rows of `sacct` with `PAST_FIELDS`: number, user, submission and state are known, the rest is left empty."""
    found = []
    for line in text.split("\n"):
        cells = line.strip().split("|")
        if len(cells) == len(PAST_FIELDS) and cells[0].isdecimal() and cells[1].isdecimal():
            # "CANCELLED by 1000" also names the user.
            state = cells[3].split(" ")[0]
            found.append(
                SlurmJob(int(cells[0]), 0, state, "", int(cells[1]), seconds(cells[2]), (), 0, 0, 0, "", "")
            )
    return found


def read_tres(text: str) -> dict[str, int]:
    """`cpu=2,mem=128M,gres/gpu=4` as counts, memory in MiB; what is no number is left out."""
    pairs = [word.partition("=") for word in text.strip().split(",")]
    found = {name: int(value) for name, _, value in pairs if value.isdecimal()}
    for name, _, value in pairs:
        if name == "mem" and (match := _MEMORY.fullmatch(value)):
            found[name] = int(float(match[1]) * _UNITS[match[2]])
    return found


def seconds(text: str) -> int:
    """A time as Slurm prints it, as seconds since the epoch; 0: none. Without a zone it is UTC, as we ask for."""
    text = text.strip()
    if text.isdecimal():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return 0


def read_nodes(text: str) -> list[SlurmNode]:
    """The lines of `scontrol show node -o`."""
    return [_node(pairs(line)) for line in text.splitlines() if line.startswith("NodeName=")]


def _node(words: Mapping[str, str]) -> SlurmNode:
    cpus, memory_mib = node_size(words)
    return SlurmNode(
        name=words["NodeName"],
        address=words.get("NodeAddr", words["NodeName"]),
        states=node_states(words.get("State", "UNKNOWN")),
        reason=words.get("Reason", "").partition(" [")[0],
        cpus=cpus,
        memory_mib=memory_mib,
        gres=read_gres(words.get("Gres", "")),
        features=node_features(words),
        partitions=tuple(words.get("Partitions", "").split(",")),
    )


def read_gres(text: str) -> tuple[tuple[str, int], ...]:
    """`gpu:a100:8(S:0-1),gpu:1g.18gb:7` as types with numbers."""
    found: dict[str, int] = {}
    for word in re.findall(r"(?:[^,(]|\([^)]*\))+", text):
        if match := _GRES.fullmatch(word):
            found[match[1] or ""] = found.get(match[1] or "", 0) + int(match[2] or 1)
    return tuple(sorted(found.items()))


def read_partitions(text: str) -> list[Partition]:
    """The lines of `scontrol show partition -o`."""
    lines = [pairs(line) for line in text.splitlines() if line.startswith("PartitionName=")]
    return [
        Partition(
            words["PartitionName"],
            expand(words.get("Nodes", "")),
            words.get("State", "UP") == "UP",
            words.get("Default", "NO") == "YES",
            minutes(words.get("MaxTime", "")),
        )
        for words in lines
    ]


def minutes(text: str) -> int:
    """`1-02:30:00`, `30:00` or `UNLIMITED` in whole minutes; 0: no limit."""
    days, _, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in parts) or (days and not days.isdecimal()):
        return 0
    hours, mins = ([0, *map(int, parts)] if len(parts) < 3 else list(map(int, parts)))[-3:-1]
    return int(days or 0) * 1440 + hours * 60 + mins


def read_reservations(text: str) -> list[Reservation]:
    """The lines of `scontrol show reservation -o`."""
    lines = [pairs(line) for line in text.splitlines() if line.startswith("ReservationName=")]
    return [
        Reservation(
            words["ReservationName"],
            expand(words.get("Nodes", "")),
            seconds(words.get("StartTime", "")),
            seconds(words.get("EndTime", "")),
            frozenset(words.get("Flags", "").split(",")),
        )
        for words in lines
    ]


# ---- meaning


def main_state(states: Sequence[str]) -> str:
    """One word for a list of them: COMPLETING outweighs how the job ended."""
    return "COMPLETING" if "COMPLETING" in states else states[0] if states else "UNKNOWN"


def node_of(node: SlurmNode, cluster: str, pool: str, types: Mapping[str, str]) -> Node:
    """A node of Slurm as a node of the yard."""
    kind, count = node.gpus
    model = model_taken(kind, types) if count else ""
    return Node(
        name=node.name,
        cluster=cluster,
        pool=pool,
        gpu_model=model,
        gpus=count,
        cpu_milli=node.cpus * MILLI,
        memory_mib=node.memory_mib,
        nvlink_group_size=count if linked(kind, model) else 0,
        features=node.features,
    )


def by_comment(jobs: Iterable[SlurmJob]) -> dict[str, list[SlurmJob]]:
    """Jobs by what they are marked with."""
    found: dict[str, list[SlurmJob]] = {}
    for job in jobs:
        found.setdefault(job.comment, []).append(job)
    return found


def pool_of(name: str, partitions: Sequence[Partition]) -> str:
    """The first of these partitions that has the node; empty: none has."""
    return next((each.name for each in partitions if name in each.nodes), "")
