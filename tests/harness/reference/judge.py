"""Room and quota, judged from the model alone: would this placement do, and could that job have been placed?

The core finds room with bit sets and columns. Here every node is looked at, and every tenant's use is summed up
again for every question.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gpuyard.model import (
    Ask,
    BudgetAction,
    Grant,
    Level,
    Memory,
    Mig,
    Milli,
    NamedBudget,
    Node,
    Quota,
    ReasonCode,
    Tenant,
    Whole,
)
from gpuyard.model.mig import MIG_MODELS
from gpuyard.model.settings import TOTAL
from gpuyard.model.units import MILLI, NO_LIMIT_MS
from gpuyard.model.walls import Wall
from harness.reference.books import Books, Live, ask_milli, chain, counted, model_of, wanted_of
from harness.reference.cutting import Piece, booked_milli, charged_milli, most_more, shares, unlawful
from harness.reference.marked import liking

UNLIMITED = 1 << 62


def supported(ask: Ask) -> bool:
    """Whether this kind of GPU sharing can be served at all."""
    if isinstance(ask.gpus, Mig):
        return ask.tasks == 1 and charged_milli(ask.gpus.profile) > 0
    return not isinstance(ask.gpus, Memory) and not (isinstance(ask.gpus, Milli) and ask.tasks > 1)


def gpus_of(mask: int) -> list[int]:
    """GPU numbers of a mask."""
    return [gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1]


@dataclass
class Free:
    """What is left on one node; below zero where an earmark waits."""

    gpu: list[int]
    cpu_milli: int
    memory_mib: int
    beside: tuple[int, int]
    """Cores and memory that are left to jobs without GPUs."""


class Room:
    """What is left on all nodes."""

    def __init__(self, books: Books, held: Iterable[Grant]) -> None:
        self.books = books
        self.free = [
            Free([MILLI] * node.gpus, node.cpu_milli, node.memory_mib, beside_gpus(books, node))
            for node in books.nodes
        ]
        self.cut: dict[tuple[int, int], list[Piece]] = {}
        """Slices by node and GPU; the same twice where an earmark waits for one."""
        self.attempts = Counter([g.node for live in books.running() for g in live.attempt.grants])  # type: ignore[union-attr]
        """By node. Whoever is to stop counts until it has."""
        self.seized: set[tuple[int, int]] = set()
        """GPUs of victims: they may be cut however few stay whole."""
        self.take(held)

    def take(self, grants: Iterable[Grant], sign: int = -1) -> None:
        """Enter grants."""
        for grant in grants:
            left = self.free[grant.node]
            for gpu in gpus_of(grant.gpus):
                left.gpu[gpu] += sign * grant.milli
            for gpu, profile, start in grant.slices:
                there = self.cut.setdefault((grant.node, gpu), [])
                (there.append if sign < 0 else there.remove)((profile, start))
            left.cpu_milli += sign * grant.cpu_milli
            left.memory_mib += sign * grant.memory_mib
            if not grant.gpus and not grant.slices:
                cores, memory = left.beside
                left.beside = (cores + sign * grant.cpu_milli, memory + sign * grant.memory_mib)

    def start(self, grants: Iterable[Grant]) -> None:
        """Enter an attempt."""
        most, grants = self.books.settings.attempts_per_node, list(grants)
        self.take(grants)
        self.attempts.update([grant.node for grant in grants])
        crowded = [grant.node for grant in grants if 0 < most < self.attempts[grant.node]]
        assert not crowded, f"more attempts than {most} on nodes {crowded}"

    def takes_new(self, number: int) -> bool:
        """Whether a node takes another attempt."""
        most = self.books.settings.attempts_per_node
        return self.books.schedulable(number) and not 0 < most <= self.attempts[number]

    def give(self, grants: Iterable[Grant]) -> None:
        """Strike grants."""
        self.take(grants, 1)

    @contextmanager
    def without(self, victims: Sequence[Grant]) -> Iterator[None]:
        """As if these grants were given back by force."""
        self.give(victims)
        self.seized = {(grant.node, gpu) for grant in victims for gpu in gpus_of(grant.gpus)}
        try:
            yield
        finally:
            self.seized = set()
            self.take(victims)

    # -- GPUs ----------------------------------------------------------------------------------------------------

    def slices_on(self, number: int, gpu: int) -> list[Piece]:
        """The slices of a GPU that somebody has, or for whom they are kept."""
        return self.cut.get((number, gpu), [])

    def pinned_cut(self, number: int, gpu: int) -> bool:
        """Whether somebody said that a GPU is and stays cut."""
        return bool(self.books.pins.get((number, gpu)))

    def is_whole(self, number: int, gpu: int) -> bool:
        """Whether nobody has anything of a GPU, nor is it cut."""
        return (
            self.free[number].gpu[gpu] == MILLI
            and not self.slices_on(number, gpu)
            and not self.pinned_cut(number, gpu)
        )

    def only_slices(self, number: int, gpu: int) -> bool:
        """Whether a GPU has slices and nothing beside them, or nothing at all."""
        model = self.books.nodes[number].gpu_model
        booked = sum(booked_milli(model, name) for name, _start in self.slices_on(number, gpu))
        return self.free[number].gpu[gpu] == MILLI - booked

    def shareable_milli(self, number: int, gpu: int) -> int:
        """What is left of a GPU for whoever wants a share of it."""
        if self.slices_on(number, gpu) or self.pinned_cut(number, gpu):
            return 0
        return self.free[number].gpu[gpu]

    def takes(self, number: int, gpu: int, pieces: Sequence[Piece]) -> bool:
        """Whether these slices could be had on a GPU now: of its layout if it is pinned, else as geometry allows."""
        there = self.slices_on(number, gpu)
        if not self.only_slices(number, gpu) or unlawful(
            self.books.nodes[number].gpu_model, [*there, *pieces]
        ):
            return False
        layout = self.books.pins.get((number, gpu))
        return layout is None or set(pieces) <= set(layout) - set(there)

    def takes_more(self, number: int, gpu: int, profile: str) -> int:
        """How many slices of a profile a GPU takes now."""
        there = self.slices_on(number, gpu)
        if not self.only_slices(number, gpu) or unlawful(self.books.nodes[number].gpu_model, there):
            # Something else is there, or a slice is kept that another one still lies on.
            return 0
        layout = self.books.pins.get((number, gpu))
        if layout is not None:
            return sum(piece[0] == profile for piece in layout if piece not in there)
        return most_more(self.books.nodes[number].gpu_model, there, profile)

    def whole_count(self) -> int:
        """GPUs of nodes that take new work of which nobody has had anything, and that are not cut."""
        return sum(
            self.is_whole(number, gpu) and (number, gpu) not in self.seized
            for number, node in enumerate(self.books.nodes)
            if self.takes_new(number)
            for gpu in range(node.gpus)
        )

    def breaks_into(self, grants: Iterable[Grant]) -> int:
        """How many GPUs that nobody had would be cut for grants."""
        return sum(
            self.is_whole(grant.node, gpu) and (grant.node, gpu) not in self.seized
            for grant in grants
            if grant.slices
            for gpu in gpus_of(grant.gpus)
        )

    # -- questions -----------------------------------------------------------------------------------------------

    def fits(self, grants: Iterable[Grant]) -> bool:
        """Whether this room is there, on nodes that take new work."""
        return all(
            self.takes_new(grant.node)
            and self._has_gpus(grant)
            and grant.cpu_milli <= self.free[grant.node].cpu_milli
            and grant.memory_mib <= self.free[grant.node].memory_mib
            and (grant.gpus or grant.slices or self._leaves_reserve(grant))
            for grant in grants
        )

    def _leaves_reserve(self, grant: Grant) -> bool:
        cores, memory = self.free[grant.node].beside
        return grant.cpu_milli <= cores and grant.memory_mib <= memory

    def _has_gpus(self, grant: Grant) -> bool:
        gpus = gpus_of(grant.gpus)
        if grant.slices:
            return all(
                self.takes(grant.node, gpu, [(p.profile, p.start) for p in grant.slices if p.gpu == gpu])
                for gpu in gpus
            )
        return all(self.shareable_milli(grant.node, gpu) >= grant.milli for gpu in gpus)

    def overdrawn(self) -> list[str]:
        """Where more is taken than there is, or otherwise than it can be had."""
        found = []
        for number, (node, left) in enumerate(zip(self.books.nodes, self.free, strict=True)):
            found += [f"{node.name} GPU {gpu}: {milli}" for gpu, milli in enumerate(left.gpu) if milli < 0]
            found += [
                f"{node.name} GPU {gpu}: {wrong}"
                for gpu in range(node.gpus)
                if (wrong := self._odd(number, gpu))
            ]
            if left.cpu_milli < 0 or left.memory_mib < 0:
                found.append(f"{node.name}: {left.cpu_milli} milli-CPU, {left.memory_mib} MiB")
        return found

    def _odd(self, number: int, gpu: int) -> str:
        """What is wrong with the slices of a GPU."""
        there = self.slices_on(number, gpu)
        if (there or self.pinned_cut(number, gpu)) and not self.only_slices(number, gpu):
            return f"cut, and {self.free[number].gpu[gpu]} are left beside {there}"
        layout = self.books.pins.get((number, gpu))
        if layout is not None and not set(there) <= set(layout):
            return f"pinned to {layout}, and {there} are on it"
        return unlawful(self.books.nodes[number].gpu_model, there)

    def tasks_on(self, ask: Ask, number: int) -> int:
        """How many tasks of an ask a node could take now."""
        if not self.takes_new(number):
            return 0
        left, wanted = self.free[number], ask.gpus.count
        gpus = range(self.books.nodes[number].gpus)
        if isinstance(ask.gpus, Milli):
            fitting = sum(self.shareable_milli(number, gpu) >= ask.gpus.milli for gpu in gpus)
        elif isinstance(ask.gpus, Mig):
            wanted, fitting = 1, int(self.has_slices(ask.gpus, number))
        else:
            fitting = sum(self.is_whole(number, gpu) for gpu in gpus)
            if ask.one_domain and wanted:
                fitting = wanted * sum(len(there) // wanted for there in self.whole_by_domain(number))
        cores, memory = left.cpu_milli, left.memory_mib
        if not ask.gpus.count:
            cores, memory = min(cores, left.beside[0]), min(memory, left.beside[1])
        most = ask.tasks
        for want, have in ((wanted, fitting), (ask.cpu_milli, cores), (ask.memory_mib, memory)):
            if want:
                most = min(most, max(0, have) // want)
            elif have < 0:
                # What an earmark has overdrawn takes nobody, not even who asks for none of it.
                most = 0
        return most

    def whole_by_domain(self, number: int) -> list[list[int]]:
        """The wholly free GPUs of a node by NUMA domain."""
        node = self.books.nodes[number]
        size = domain_size(node)
        return [
            [gpu for gpu in range(first, first + size) if self.is_whole(number, gpu)]
            for first in range(0, node.gpus, size)
        ]

    def has_slices(self, wanted: Mig, number: int) -> bool:
        """Whether a node has all these slices now, as many on each GPU, and enough GPUs stay whole."""
        node = self.books.nodes[number]
        spare = max(0, self.whole_count() - self.books.settings.whole_gpus)
        cut, whole = [], []
        for gpu in range(node.gpus):
            more = self.takes_more(number, gpu, wanted.profile)
            kept = self.is_whole(number, gpu) and (number, gpu) not in self.seized
            (whole if kept else cut).append(more)
        return any(
            sum(more >= each for more in cut) + min(spare, sum(more >= each for more in whole)) >= gpus
            for each, gpus in shares(wanted.count, node.gpu_model, wanted.profile)
        )


def pin_wrong(books: Books, number: int, gpu: int, pieces: Sequence[Piece]) -> str:
    """Why a GPU cannot be pinned to these slices; empty: it can. Nothing that runs there, or is kept, is moved."""
    node = books.nodes[number]
    if not 0 <= gpu < node.gpus:
        return "no such GPU"
    if node.gpu_model not in MIG_MODELS:
        return "no MIG"
    if wrong := unlawful(node.gpu_model, pieces):
        return wrong
    room = Room(books, books.grants(earmarks=True))
    if not set(room.slices_on(number, gpu)) <= set(pieces):
        return "somebody has another slice"
    return "somebody has it without slices" if pieces and not room.only_slices(number, gpu) else ""


# -- kinds of node ---------------------------------------------------------------------------------------------------


def kind_of(node: Node) -> tuple[object, ...]:
    """What nodes must have in common to serve one gang."""
    return (
        node.cluster,
        model_of(node),
        node.gpus,
        node.cpu_milli,
        node.memory_mib,
        node.close_gpus,
        domain_size(node),
    )


def domain_size(node: Node) -> int:
    """GPUs in one NUMA domain, which are in a row."""
    if node.numa_domains > 1 and node.gpus % node.numa_domains == 0:
        return max(1, node.gpus // node.numa_domains)
    return max(1, node.gpus)


@dataclass(frozen=True)
class Layout:
    """How an ask is laid out on nodes of one kind: full nodes, and the rest on one more."""

    numbers: tuple[int, ...]
    model: str
    per_node: int
    full: int
    rest: int
    nodes_max: int

    @property
    def fewest(self) -> int:
        """On how many nodes it goes when they are empty."""
        return self.full + (self.rest > 0)


def liked(books: Books, ask: Ask, number: int) -> tuple[bool, int]:
    """How much the ask prefers a node."""
    return liking(ask, books.labels(number), books.taints(number))


def allowed(ask: Ask, node: Node) -> bool:
    """Whether the ask takes this node, by pool, cluster and name."""
    return (
        (not ask.pools or node.pool in ask.pools)
        and (not ask.clusters or node.cluster in ask.clusters)
        and (not ask.on_nodes or node.name in ask.on_nodes or f"{node.cluster}:{node.name}" in ask.on_nodes)
        and node.name not in ask.not_nodes
        and f"{node.cluster}:{node.name}" not in ask.not_nodes
    )


def beside_gpus(books: Books, node: Node) -> tuple[int, int]:
    """Cores and memory of an empty node that are not reserved for its GPUs."""
    reserve = books.settings.reserves.get(f"{node.cluster}/{node.pool}")
    if reserve is None:
        return node.cpu_milli, node.memory_mib
    return (
        max(0, node.cpu_milli - reserve.cpu_milli * node.gpus),
        max(0, node.memory_mib - reserve.memory_mib * node.gpus),
    )


def may_enter(books: Books, live: Live, node: Node) -> bool:
    """Whether the pool of a node takes a job, by all that its wall says but the number of nodes."""
    wall = books.settings.walls.get(f"{node.cluster}/{node.pool}", Wall())
    spec = live.job.spec
    theirs = {
        "tenants": set(chain(spec.tenant)) - {""},
        "users": {spec.user},
        "groups": set(spec.groups),
        "classes": {books.klass(live).name},
    }
    allowed_in = {kind: set(getattr(wall.allow, kind)) for kind in theirs}
    denied = {kind: set(getattr(wall.deny, kind)) for kind in theirs}
    if any(names and not names & theirs[kind] for kind, names in allowed_in.items()):
        return False
    if any(names & theirs[kind] for kind, names in denied.items()):
        return False
    if wall.time_limit_ms and live.limit_ms > wall.time_limit_ms:
        return False
    return live.milli >= wall.min_gpu_milli


def layouts(books: Books, ask: Ask, *, runs: bool = False, walled: Live | None = None) -> Iterator[Layout]:
    """Every kind of node that could serve an ask if empty. What runs was started when its engine could do it.

    `walled`: the job that has to get past the walls of pools.
    """
    if not supported(ask):
        return

    def room(node: Node) -> tuple[int, int]:
        # What runs may have been started before anything was reserved.
        plain = bool(ask.gpus.count) or runs
        return (node.cpu_milli, node.memory_mib) if plain else beside_gpus(books, node)

    for kind in dict.fromkeys((kind_of(node), room(node)) for node in books.nodes):
        numbers = tuple(
            number
            for number, node in enumerate(books.nodes)
            if (kind_of(node), room(node)) == kind
            and allowed(ask, node)
            and (runs or books.admitted(ask, number))
            and (walled is None or may_enter(books, walled, node))
        )
        if not numbers or (ask.models and model_of(books.nodes[numbers[0]]) not in ask.models):
            continue
        node = books.nodes[numbers[0]]
        if not runs and wanted_of(ask) & set(books.lacks.get(node.cluster, ())):
            continue
        gpus = ask.gpus.count
        if isinstance(ask.gpus, Mig):
            ways = shares(ask.gpus.count, node.gpu_model, ask.gpus.profile)
            if not ways:
                continue
            gpus = min(count for _each, count in ways)
        per_node = ask.tasks
        for want, have in (
            (gpus, node.gpus),
            (ask.cpu_milli, room(node)[0]),
            (ask.memory_mib, room(node)[1]),
        ):
            if want:
                per_node = min(per_node, have // want)
        if ask.one_domain and isinstance(ask.gpus, Whole) and gpus:
            size = domain_size(node)
            count = node.gpus // size
            if (
                size < gpus
                or count * ask.cpu_milli > node.cpu_milli
                or count * ask.memory_mib > node.memory_mib
            ):
                continue
            per_node = min(per_node, size // gpus * count)
        per_node = min(per_node, -(-ask.tasks // max(1, ask.nodes_min)))
        while per_node > 1 and -(-ask.tasks // per_node) < ask.nodes_min:
            per_node -= 1
        if per_node == 0 or ask.tasks < ask.nodes_min:
            continue
        full, rest = divmod(ask.tasks, per_node)
        fewest = full + (rest > 0)
        most = {number: nodes_max_on(books, number) if walled else UNLIMITED for number in numbers}
        numbers = tuple(number for number in numbers if fewest <= most[number])

        def widest(there: Sequence[int]) -> int:
            return min([max(fewest, ask.nodes_max), *[most[number] for number in there]])  # noqa: B023

        layout = Layout(numbers, model_of(node), per_node, full, rest, widest(numbers))
        if ask.nodes_max and layout.fewest > ask.nodes_max:
            continue
        for there in together(books, ask, layout):
            if layout.fewest <= len(there):
                yield replace(layout, numbers=there, nodes_max=widest(there))


def together(books: Books, ask: Ask, layout: Layout) -> list[tuple[int, ...]]:
    """The nodes of a layout, place by place: those of a gang are on one fabric, and as near as it requires."""
    if ask.tasks == 1 or layout.nodes_max == 1:
        return [layout.numbers]
    level = ask.level if ask.level_required else None
    return places_at(books, layout.numbers, level)


def places_at(books: Books, numbers: Sequence[int], level: Level | None) -> list[tuple[int, ...]]:
    """Nodes by fabric, and by switch or rack within it."""
    found: dict[tuple[str, str], list[int]] = {}
    for number in numbers:
        node = books.nodes[number]
        names = {None: "", Level.SWITCH: node.switch, Level.RACK: node.rack, Level.FABRIC: ""}
        found.setdefault((node.fabric, names[level]), []).append(number)
    return [tuple(there) for there in found.values()]


def too_far(room: Room, ask: Ask, layout: Layout, numbers: Sequence[int]) -> str:
    """Why a gang could have been nearer together than on these nodes, before it took them; empty: it could not."""
    if ask.tasks == 1 or len(numbers) == 1:
        return ""
    wished = [ask.level] if ask.level and not ask.level_required else []
    for level in (*wished, Level.SWITCH, Level.RACK):
        for there in places_at(room.books, layout.numbers, level):
            able = [number for number in there if room.tasks_on(ask, number) >= layout.per_node]
            enough = len(able) >= layout.fewest
            if level in wished:
                enough = enough or has_room(room, ask, replace(layout, numbers=there))
            if enough and not any(
                set(numbers) <= set(each) for each in places_at(room.books, numbers, level)
            ):
                return f"{level} of nodes {there} would hold it"
    return ""


def needless_domains(room: Room, ask: Ask, grants: Sequence[Grant]) -> str:
    """Where a grant of whole GPUs is in more NUMA domains than it had to be, before it was taken; empty: nowhere."""
    for grant in grants if isinstance(ask.gpus, Whole) and not ask.one_domain else ():
        node = room.books.nodes[grant.node]
        size = domain_size(node)
        if 1 < node.nvlink_group_size < node.gpus and node.nvlink_group_size > size:
            # What NVLink joins goes before.
            continue
        used = len({gpu // size for gpu in gpus_of(grant.gpus)})
        left, fewest = grant.gpus.bit_count(), 0
        for free in sorted([len(there) for there in room.whole_by_domain(grant.node)], reverse=True):
            fewest, left = fewest + (left > 0), left - free
        if used > fewest:
            return f"GPUs {grant.gpus:b} of {node.name} are in {used} NUMA domains, {fewest} would do"
    return ""


def nodes_max_on(books: Books, number: int) -> int:
    """The most nodes of a job in the pool of a node."""
    node = books.nodes[number]
    wall = books.settings.walls.get(f"{node.cluster}/{node.pool}")
    return wall.max_nodes_per_job if wall and wall.max_nodes_per_job else UNLIMITED


def has_room(room: Room, ask: Ask, layout: Layout) -> bool:
    """Whether all tasks could be placed now, in this layout or spread as far as the ask allows."""
    tasks = sorted(
        (min(layout.per_node, room.tasks_on(ask, number)) for number in layout.numbers), reverse=True
    )
    full = sum(count >= layout.per_node for count in tasks) >= layout.full
    if full and (layout.rest == 0 or tasks[layout.full :][:1] >= [layout.rest]):
        return True
    return layout.nodes_max > layout.fewest and sum(tasks[: layout.nodes_max]) >= ask.tasks


def fewest_nodes(room: Room, ask: Ask, layout: Layout) -> int:
    """The smallest number of nodes that could take all tasks now."""
    left = ask.tasks
    tasks = sorted(
        (min(layout.per_node, room.tasks_on(ask, number)) for number in layout.numbers), reverse=True
    )
    for count, most in enumerate(tasks, start=1):
        left -= most
        if left <= 0:
            return count
    return len(tasks) + 1


def misplaced(
    books: Books, ask: Ask, grants: tuple[Grant, ...], *, runs: bool = False, walled: Live | None = None
) -> list[str]:
    """What is wrong with grants as a way to serve an ask on an empty fleet; `walled`: the job of it, at its start."""
    if not grants:
        return ["no grants"]
    wrong = []
    milli = ask.gpus.milli if isinstance(ask.gpus, Milli) else MILLI
    numbers = [grant.node for grant in grants]
    if len(set(numbers)) < len(numbers):
        wrong.append("a node twice")
    if sum(grant.tasks for grant in grants) != ask.tasks or any(grant.tasks < 1 for grant in grants):
        wrong.append(f"{[grant.tasks for grant in grants]} of {ask.tasks} tasks")
    if len({kind_of(books.nodes[number]) for number in numbers}) > 1:
        wrong.append("nodes of several kinds")
    for grant in grants:
        node = books.nodes[grant.node]
        if isinstance(ask.gpus, Mig):
            wrong += [f"{node.name}: {text}" for text in _missliced(ask.gpus, node, grant)]
        elif grant.slices:
            wrong.append(f"{node.name}: slices, and none were asked for")
        elif grant.gpus.bit_count() != ask.gpus.count * grant.tasks or (grant.gpus and grant.milli != milli):
            wrong.append(f"{node.name}: {grant.gpus:b} x {grant.milli} for {grant.tasks} tasks")
        if ask.one_domain and isinstance(ask.gpus, Whole) and ask.gpus.count:
            size = domain_size(node)
            held = [grant.gpus >> first & ((1 << size) - 1) for first in range(0, node.gpus, size)]
            if any(part.bit_count() % ask.gpus.count for part in held):
                wrong.append(f"{node.name}: GPUs {grant.gpus:b} of domains of {size}")
        if grant.gpus >> node.gpus:
            wrong.append(f"{node.name}: a GPU it does not have")
        if grant.cpu_milli != ask.cpu_milli * grant.tasks or grant.memory_mib != ask.memory_mib * grant.tasks:
            wrong.append(f"{node.name}: cores or memory")
        if ask.models and model_of(node) not in ask.models:
            wrong.append(f"{node.name}: model {node.gpu_model}")
        if not allowed(ask, node):
            wrong.append(f"{node.name}: pool {node.pool}")
        if not runs and not books.admitted(ask, grant.node):
            wrong.append(f"{node.name}: labels or taints")
        if walled is not None and not may_enter(books, walled, node):
            wrong.append(f"{node.name}: its pool {node.pool} takes no job like it")
    fitting = [
        layout
        for layout in layouts(books, ask, runs=runs, walled=walled)
        if set(numbers) <= set(layout.numbers)
    ]
    if not fitting:
        wrong.append("no kind of node could serve it")
    elif len(numbers) < ask.nodes_min:
        wrong.append(f"{len(numbers)} nodes, at least {ask.nodes_min}")
    elif len(numbers) > fitting[0].nodes_max:
        wrong.append(f"{len(numbers)} nodes, at most {fitting[0].nodes_max}")
    return wrong


def _missliced(wanted: Mig, node: Node, grant: Grant) -> list[str]:
    """What is wrong with the slices of a grant, whoever else is there."""
    by_gpu: dict[int, list[Piece]] = {}
    for gpu, profile, start in grant.slices:
        by_gpu.setdefault(gpu, []).append((profile, start))
    wrong = []
    if [piece.profile for piece in grant.slices] != [wanted.profile] * wanted.count:
        wrong.append(f"{grant.slices} for {wanted.count} x {wanted.profile}")
    if sorted(by_gpu) != gpus_of(grant.gpus):
        wrong.append(f"slices on {sorted(by_gpu)}, and GPUs {grant.gpus:b}")
    for gpu, pieces in by_gpu.items():
        if text := unlawful(node.gpu_model, pieces):
            wrong.append(f"GPU {gpu}: {text}")
        elif grant.milli != sum(booked_milli(node.gpu_model, name) for name, _start in pieces):
            wrong.append(f"GPU {gpu}: {grant.milli} for {pieces}")
    return wrong


# -- quota -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Holder:
    """Someone who holds GPUs, as quotas see it."""

    job_id: int
    leaf: str
    model: str
    milli: int
    limit_ms: int
    user: str = ""
    down_milli: int = 0
    """The part of it that is on nodes that are down."""
    klass: str = ""
    measure: tuple[int, int] = (0, 0)
    """Its cores and memory, as far as it names them."""

    def within(self, path: str, model: str | None) -> bool:
        """Whether it counts against a tenant, in one model or in total."""
        return path in chain(self.leaf) and model in (None, self.model)


def granted_milli(grant: Grant) -> int:
    """Milli-GPU of one grant, as quotas count them."""
    if grant.slices:
        return sum(charged_milli(piece.profile) for piece in grant.slices)
    return grant.gpus.bit_count() * grant.milli


def measure_of(live: Live) -> tuple[int, int]:
    """Cores and memory of all its tasks."""
    ask = live.job.spec.ask
    return ask.tasks * ask.cpu_milli, ask.tasks * ask.memory_mib


def holders(books: Books) -> dict[int, Holder]:
    """All who hold GPUs."""
    return {
        live.job.id: Holder(
            live.job.id,
            live.leaf,
            live.attempt.model,
            live.milli,
            live.limit_ms,
            live.job.spec.user,
            sum(granted_milli(grant) for grant in live.attempt.grants if grant.node in books.down),
            books.klass(live).name,
            measure_of(live),
        )
        for live in books.running()
        if live.attempt is not None
    }


class Quotas:
    """Whether a job may start beside those who hold GPUs."""

    def __init__(self, books: Books, held: Collection[Holder], promised: Collection[Holder] = ()) -> None:
        self.books = books
        self.held = held
        self.promised = promised
        """Jobs with promised room: what they may cost is set aside."""
        self.tenants = {tenant.path: tenant for tenant in books.settings.tenants}

    def used(self, path: str, model: str | None) -> int:
        """Milli-GPU of a tenant's subtree."""
        return sum(holder.milli for holder in self.held if holder.within(path, model))

    def measured(self, path: str) -> list[int]:
        """Cores and memory of a tenant's subtree."""
        found = [holder.measure for holder in self.held if holder.within(path, None)]
        return [sum(cores for cores, _memory in found), sum(memory for _cores, memory in found)]

    def of_person(self, path: str, user: str, leaf: str) -> list[Holder]:
        """What a person holds in a tenant's part of the tree; where nobody is known, what a leaf does."""
        alike = [h for h in self.held if h.user == user and (user or h.leaf == leaf)]
        return [h for h in alike if path in chain(h.leaf)]

    def quota(self, path: str) -> Quota:
        """What was set for a tenant, in GPUs: percentages are of all nodes that there are, up or down."""
        given = self.tenants.get(path, Tenant(path)).quota
        if not given.percentages:
            return given
        amounts = {kind: dict(getattr(given, kind)) for kind in ("guarantee", "limit", "borrow", "lend")}
        promised_parts = given.percentages.get("guarantee", {})
        for kind, parts in given.percentages.items():
            for key, part in parts.items():
                whole = [
                    n.gpus
                    for n in self.books.nodes
                    if part.pool in ("", n.pool) and key in (TOTAL, n.gpu_model)
                ]
                first = promised_parts.get(key)
                below = 0
                if kind == "borrow" and first is not None and first.pool == part.pool:
                    # What is borrowed comes on top of what is promised, and the sum is rounded down.
                    below = first.percent_milli
                upper = sum(whole) * (below + part.percent_milli) // (100 * MILLI)
                amounts[kind][key] = (upper - sum(whole) * below // (100 * MILLI)) * MILLI
        if promised := amounts["guarantee"]:
            by_model = sum(promised.values()) - promised.get(TOTAL, 0)
            promised[TOTAL] = max(promised.get(TOTAL, 0), by_model)
        return replace(given, percentages={}, **amounts)

    def guarantee(self, path: str, model: str | None) -> int:
        """What it is promised."""
        return self.quota(path).guarantee.get(TOTAL if model is None else model, 0)

    def blockers(self, live: Live, model: str) -> set[ReasonCode]:
        """Every rule that forbids a start."""
        found = set()
        milli = live.milli
        for path in chain(live.leaf):
            quota = self.quota(path)
            if quota.max_gpus_per_job is not None and milli > quota.max_gpus_per_job:
                found.add(ReasonCode.JOB_TOO_LARGE)
            if quota.max_running_jobs is not None:
                runs = sum(holder.within(path, None) for holder in self.held)
                if runs >= quota.max_running_jobs:
                    found.add(ReasonCode.RUNNING_JOBS)
            rule = quota.classes.get(self.books.klass(live).name)
            if rule is not None:
                alike = [
                    h for h in self.held if h.within(path, None) and h.klass == self.books.klass(live).name
                ]
                if rule.milli is not None and sum(h.milli for h in alike) + milli > rule.milli:
                    found.add(ReasonCode.LIMIT)
                if rule.running is not None and len(alike) >= rule.running:
                    found.add(ReasonCode.RUNNING_JOBS)
            most = (quota.max_cpu_milli, quota.max_memory_mib)
            for have, own, limit in zip(self.measured(path), measure_of(live), most, strict=True):
                if limit is not None and have + own > limit:
                    found.add(ReasonCode.LIMIT)
            for column in (None, model):
                name = TOTAL if column is None else column
                after = self.used(path, column) + milli
                if after > quota.limit.get(name, UNLIMITED):
                    found.add(ReasonCode.LIMIT)
                if after > quota.guarantee.get(name, 0) + quota.borrow.get(name, UNLIMITED):
                    found.add(ReasonCode.BORROW)
            if self._over_budget(path, live):
                found.add(ReasonCode.NO_TIME_LIMIT if live.limit_ms >= NO_LIMIT_MS else ReasonCode.BUDGET)
        for rule in self.books.settings.budgets:
            if rule.action is BudgetAction.HARD and self._over_named(rule, live):
                found.add(ReasonCode.NO_TIME_LIMIT if live.limit_ms >= NO_LIMIT_MS else ReasonCode.BUDGET)
        user = live.job.spec.user
        for path in chain(live.leaf) if user else chain(live.leaf)[1:]:
            per_user, theirs = self.quota(path).max_gpus_per_user, self.of_person(path, user, live.leaf)
            if per_user is not None and sum(h.milli for h in theirs) + milli > per_user:
                found.add(ReasonCode.PER_USER)
        attempts = self.books.settings.attempts_per_user
        if attempts and live.leaf and len(self.of_person("", user, live.leaf)) >= attempts:
            found.add(ReasonCode.PER_USER)
        if self.eats_held_back(live, model):
            found.add(ReasonCode.HELD_BACK)
        return found

    def _over_named(self, rule: NamedBudget, live: Live) -> bool:
        if not counted(rule, live.leaf, self.books.klass(live).name, live.job.spec.labels) or not live.milli:
            return False
        holders = [h for h in (*self.held, *self.promised) if h.job_id != live.job.id]
        aside = sum(h.milli * h.limit_ms for h in holders if counted(rule, h.leaf, h.klass))
        return self.books.spent_of(rule) + aside + live.milli * live.limit_ms > rule.gpu_ms * MILLI

    def _over_budget(self, path: str, live: Live) -> bool:
        tenant = self.tenants.get(path)
        if tenant is None or tenant.budget is None:
            return False
        holders = (*self.held, *[h for h in self.promised if h.job_id != live.job.id])
        committed = sum(h.milli * h.limit_ms for h in holders if h.within(path, None))
        after = self.books.spent(path, tenant.budget.window_ms) + committed + live.milli * live.limit_ms
        return after > tenant.budget.gpu_ms * MILLI

    # A tenant claims what it uses, or what it holds back if that is more; a parent what its children claim. Claims are
    # upon nodes that are up: what is used on the others takes nothing from anybody.

    def held_back(self, path: str, model: str | None) -> int:
        """The guarantee that is not lent."""
        name = TOTAL if model is None else model
        quota = self.quota(path)
        return max(0, quota.guarantee.get(name, 0) - quota.lend.get(name, UNLIMITED))

    def claimed(self, path: str, model: str | None, extra: Holder | None = None) -> int:
        """What a tenant's subtree keeps from others, one more holder counted."""
        held = [*self.held, extra] if extra else self.held
        own = sum(h.milli - h.down_milli for h in held if h.leaf == path and model in (None, h.model))
        members = [p for p in self.books.paths if p and p.rpartition("/")[0] == path]
        return own + sum(
            max(self.held_back(member, model), self.claimed(member, model, extra)) for member in members
        )

    def eats_held_back(self, live: Live, model: str) -> bool:
        """Whether a start would take what others hold back. Where nobody does, there is nothing to take."""
        columns = [None, *self.books.models()]
        if not any(self.held_back(path, column) for path in self.tenants for column in columns):
            return False
        extra = Holder(live.job.id, live.leaf, model, live.milli, live.limit_ms)
        for column in (None, model):
            before, after = self.claimed("", column), self.claimed("", column, extra)
            if after > before and after > self.books.up_milli(column):
                return True
        return False


__all__ = [
    "Free",
    "Holder",
    "Layout",
    "Quotas",
    "Room",
    "ask_milli",
    "fewest_nodes",
    "has_room",
    "holders",
    "layouts",
    "misplaced",
    "needless_domains",
    "pin_wrong",
    "supported",
    "too_far",
]
