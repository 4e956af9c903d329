"""What a step asks for, and what it gets of its job's room, or why it gets nothing: now, or ever. Pure.

The rules are those of Slurm 22.05, found by trying it. A step takes all cores of its nodes unless it is `--exact`, and
all GPUs of the job there unless it says how many; tasks are dealt evenly over its nodes as far as their cores go. In
two things a step is freer than Slurm's: one that says nothing about memory shares the job's, and one that names its
GPUs need not name those that its job named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ENDLESS = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAsk:
    """What a step asks for, before it is known what is free."""

    tasks: int = 1
    tasks_said: bool = False
    """Whether the command line says how many, and not the job."""
    per_node: int = 0
    """Tasks of each node; 0: not said."""
    nodes_min: int = 0
    """0: not said."""
    nodes_max: int = 0
    on_nodes: tuple[str, ...] = ()
    not_nodes: tuple[str, ...] = ()
    first_node: int = 0
    """`--relative`: how many of the job's nodes are skipped."""
    cpus: int = 1
    """Cores of each task."""
    cpus_said: bool = False
    whole: bool = True
    """Whether it takes all cores of its nodes, as every step does without `--exact`."""
    overlap: bool = False
    overcommit: bool = False
    gpus: int | None = None
    """GPUs of the whole step. None here and in the next two: all that the job has on the step's nodes."""
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    gpu_types: tuple[str, ...] = ()
    memory_mib: int | None = None
    """Memory of each node; None: not given, so that the step shares the job's."""
    memory_per: str = ""
    bind: str = ""
    cyclic: bool = False
    wait_s: float | None = None
    """How long it may wait for room; None: as long as it takes."""

    @property
    def says_gpus(self) -> bool:
        """Whether it names a number of GPUs."""
        return not (self.gpus is None and self.gpus_per_node is None and self.gpus_per_task is None)


@dataclass(frozen=True, slots=True)
class RoomNode:
    """A node of the job, and what the job has there."""

    name: str
    gpus: tuple[tuple[int, str], ...]
    """Index on the node, and what a process names to see it."""
    cpus: int
    """0: not counted. So is the memory."""
    memory_mib: int
    gpu_model: str = ""


@dataclass(frozen=True, slots=True)
class NodeGrant:
    """What a step gets on one node."""

    node: str
    place: int
    """The node's place among the job's."""
    ranks: tuple[int, ...]
    gpus: tuple[int, ...]
    """Places in the node's list."""
    cpus: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Held:
    """What live steps hold on one node."""

    gpus: frozenset[int] = frozenset()
    cpus: int = 0
    memory_mib: int = 0


class Never(Exception):
    """The job could not serve this even if nothing else ran. `lines` are Slurm's words."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


_NOTHING = Held()
PROCESSORS = "More processors requested than permitted"
GRES = "Invalid generic resource (gres) specification"
MEMORY = "Memory required by task is not available"
NODES = "Requested node configuration is not available"
BUSY = "Requested nodes are busy"


def read_room(room: Mapping[str, Any]) -> tuple[RoomNode, ...]:
    """The nodes of a room that was read from its file."""
    return tuple(
        RoomNode(
            name=each["name"],
            gpus=tuple((gpu["index"], gpu["device"]) for gpu in each["gpus"]),
            cpus=each["cpus"],
            memory_mib=each["memory_mib"],
            gpu_model=each.get("gpu_model", ""),
        )
        for each in room["nodes"]
    )


def grant(ask: StepAsk, room: Sequence[RoomNode], held: Mapping[str, Held]) -> tuple[NodeGrant, ...] | None:
    """What the step gets; None: not now. `Never` if the whole room is too small."""
    candidates = _candidates(ask, room)
    nodes = count_nodes(ask, len(candidates), len(room))
    if _tried(ask, room, candidates, nodes, {}) is None:
        raise _why_never(ask, room, candidates)
    return _tried(ask, room, candidates, nodes, {} if ask.overlap else held)


def count_nodes(ask: StepAsk, candidates: int, room: int) -> int:
    """Over how many nodes it is spread: all of the job's, unless it names a number or has fewer tasks."""
    if ask.nodes_min > room:
        raise Never(f"Only allocated {room} nodes asked for {ask.nodes_min}")
    said = min(max(ask.nodes_min, ask.nodes_max), candidates) if ask.nodes_min else candidates
    return max(1, min(said, ask.tasks))


def _candidates(ask: StepAsk, room: Sequence[RoomNode]) -> list[int]:
    """The nodes that may serve it, those it names first."""
    places = {node.name: place for place, node in enumerate(room)}
    named = [places[name] for name in ask.on_nodes if name in places]
    if len(named) < len(ask.on_nodes):
        raise Never(NODES)
    left = [
        place
        for place, node in enumerate(room)
        if place >= ask.first_node and node.name not in ask.not_nodes and place not in named
    ]
    if not named and not left:
        raise Never("Hostlist is empty!  Can't run job." if ask.not_nodes else NODES)
    return named + left


def _tried(
    ask: StepAsk, room: Sequence[RoomNode], candidates: list[int], nodes: int, held: Mapping[str, Held]
) -> tuple[NodeGrant, ...] | None:
    fits = {
        place: _fitting(ask, room[place], held.get(room[place].name, _NOTHING), nodes) for place in candidates
    }
    named = candidates[: len(ask.on_nodes)]
    usable = [place for place in candidates if fits[place] > 0]
    if len(usable) < nodes or any(fits[place] <= 0 for place in named):
        return None
    chosen = usable[:nodes]
    if sum(fits[place] for place in chosen) < ask.tasks:
        # 1. named nodes; 2. most room; 3. the order of the job.
        chosen = sorted(usable, key=lambda place: (place not in named, -fits[place], place))[:nodes]
    chosen.sort()
    counts = _dealt(ask.tasks, [fits[place] for place in chosen])
    if counts is None:
        return None
    gpus = _gpus(ask, [_free_gpus(room[place], held) for place in chosen], counts)
    if gpus is None:
        return None
    ranks = _ranks(counts, cyclic=ask.cyclic)
    return tuple(
        NodeGrant(
            node=room[place].name,
            place=place,
            ranks=ranks[number],
            gpus=gpus[number],
            cpus=room[place].cpus if ask.whole else min(room[place].cpus, ask.cpus * counts[number]),
            memory_mib=_memory(ask, room[place], counts[number], len(gpus[number])),
        )
        for number, place in enumerate(chosen)
    )


def _fitting(ask: StepAsk, node: RoomNode, held: Held, nodes: int) -> int:
    """How many of its tasks the node could take now."""
    fits = _ENDLESS
    if node.cpus:
        free = node.cpus - held.cpus
        if ask.whole and held.cpus:
            return 0
        fits = (_ENDLESS if free > 0 else 0) if ask.overcommit else free // ask.cpus
    free_gpus = len(node.gpus) - len(held.gpus)
    if ask.gpus_per_task:
        fits = min(fits, free_gpus // ask.gpus_per_task)
    if ask.gpus_per_node and free_gpus < ask.gpus_per_node:
        return 0
    if ask.gpus and nodes == 1 and free_gpus < ask.gpus:
        return 0
    if not ask.says_gpus and held.gpus:
        return 0
    if ask.memory_mib is not None and node.memory_mib:
        free_mib = node.memory_mib - held.memory_mib
        each = _memory(ask, node, 1, ask.gpus_per_task or ask.gpus_per_node or ask.gpus or len(node.gpus))
        if ask.memory_per == "mem-per-cpu" or (ask.memory_per == "mem-per-gpu" and ask.gpus_per_task):
            fits = min(fits, free_mib // each if each else fits)
        elif each > free_mib:
            return 0
    return min(fits, ask.per_node) if ask.per_node and ask.per_node * nodes >= ask.tasks else fits


def _memory(ask: StepAsk, node: RoomNode, tasks: int, gpus: int) -> int:
    """Memory that it holds on a node; a step that names none holds none."""
    if ask.memory_mib is None:
        return 0
    if ask.memory_mib == 0:
        return node.memory_mib
    if ask.memory_per == "mem-per-cpu":
        return ask.memory_mib * ask.cpus * tasks
    return ask.memory_mib * (gpus if ask.memory_per == "mem-per-gpu" else 1)


def _free_gpus(node: RoomNode, held: Mapping[str, Held]) -> list[int]:
    taken = held.get(node.name, _NOTHING).gpus
    return [place for place in range(len(node.gpus)) if place not in taken]


def _dealt(tasks: int, fits: list[int]) -> list[int] | None:
    """Tasks over nodes: one each in turn, as long as there is room."""
    counts = [0] * len(fits)
    left = tasks
    while left:
        before = left
        for number, fit in enumerate(fits):
            if left and counts[number] < fit:
                counts[number] += 1
                left -= 1
        if left == before:
            return None
    return counts


def _gpus(ask: StepAsk, free: list[list[int]], counts: list[int]) -> list[tuple[int, ...]] | None:
    if ask.gpus_per_task is not None:
        numbers = [ask.gpus_per_task * count for count in counts]
    elif ask.gpus_per_node is not None:
        numbers = [ask.gpus_per_node] * len(counts)
    elif ask.gpus is not None:
        dealt = _dealt(ask.gpus, [len(each) for each in free])
        if dealt is None:
            return None
        numbers = dealt
    else:
        numbers = [len(each) for each in free]
    if any(number > len(each) for number, each in zip(numbers, free, strict=True)):
        return None
    return [tuple(each[:number]) for number, each in zip(numbers, free, strict=True)]


def _ranks(counts: list[int], *, cyclic: bool) -> list[tuple[int, ...]]:
    if not cyclic:
        starts = [sum(counts[:number]) for number in range(len(counts))]
        return [tuple(range(start, start + count)) for start, count in zip(starts, counts, strict=True)]
    ranks: list[list[int]] = [[] for _ in counts]
    rank = 0
    while rank < sum(counts):
        for number, count in enumerate(counts):
            if len(ranks[number]) < count:
                ranks[number].append(rank)
                rank += 1
    return [tuple(each) for each in ranks]


def _why_never(ask: StepAsk, room: Sequence[RoomNode], candidates: list[int]) -> Never:
    """The first of Slurm's reasons that applies, with the numbers."""
    nodes = [room[place] for place in candidates]
    most = max(len(node.gpus) for node in nodes)
    total = sum(len(node.gpus) for node in nodes)
    per_task = (ask.gpus_per_task or 0) * ask.tasks
    if (ask.gpus or 0) > total:
        return Never(f"Step requested gres=gpu:{ask.gpus} is more than the job's gres=gpu:{total}", GRES)
    if (ask.gpus_per_node or 0) > most or (ask.gpus_per_task or 0) > most:
        each = max(ask.gpus_per_node or 0, ask.gpus_per_task or 0)
        return Never(f"Step requested gres=gpu:{each} on a node, and the job has gres=gpu:{most} there", GRES)
    if per_task > total:
        return Never(
            f"Step requested gres=gpu:{per_task} is more than the job's gres=gpu:{total}", PROCESSORS
        )
    largest_mib = max(node.memory_mib for node in nodes)
    if ask.memory_mib and largest_mib and _memory(ask, nodes[0], 1, ask.gpus_per_task or most) > largest_mib:
        return Never(MEMORY)
    return Never(PROCESSORS)
