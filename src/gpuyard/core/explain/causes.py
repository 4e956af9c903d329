"""What the jobs that wait wait for at one moment, added up by tenant, pool, size and cause.

The codes of the leader's last pass say what refuses a job. Here a cause is made of each: of a job without room it is
told apart whether GPUs are lacking, whether they are free but apart, or whether one last node is lacking. Free GPUs
explain as many jobs as could have them, and no more: the jobs behind those wait for room.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from gpuyard.core.fleet.bits import each
from gpuyard.core.fleet.placing import Placer, find_with_room
from gpuyard.core.fleet.shapes import GANG, SHARE, SLICES, Shape, Way
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state.state import State
from gpuyard.model import ReasonCode, WaitCause
from gpuyard.model.units import MILLI

_QUOTA = (
    ReasonCode.LIMIT,
    ReasonCode.BORROW,
    ReasonCode.HELD_BACK,
    ReasonCode.RUNNING_JOBS,
    ReasonCode.QUOTA_AHEAD,
    ReasonCode.PER_USER,
    ReasonCode.WALL,
)
_BUDGET = (ReasonCode.BUDGET, ReasonCode.NO_TIME_LIMIT)
_TOO_MUCH = (ReasonCode.NEVER_FITS, ReasonCode.UNSUPPORTED, ReasonCode.JOB_TOO_LARGE)
CAUSES: Mapping[int, WaitCause] = {
    **dict.fromkeys([int(code) for code in ReasonCode], WaitCause.ORDER),
    **dict.fromkeys([int(code) for code in _QUOTA], WaitCause.QUOTA),
    **dict.fromkeys([int(code) for code in _BUDGET], WaitCause.BUDGET),
    **dict.fromkeys([int(code) for code in _TOO_MUCH], WaitCause.OVER_ASKING),
    ReasonCode.ROOM: WaitCause.ROOM,
    ReasonCode.EARMARK: WaitCause.ROOM,
    ReasonCode.HELD: WaitCause.HOLD,
    ReasonCode.BEGIN: WaitCause.BEGIN,
    ReasonCode.DEPENDENCY: WaitCause.DEPENDENCY,
}
"""What each code of a pass counts as."""

Crashed = Callable[[JobRecord], bool]
"""Whether the last attempt of a job that waits again crashed."""
NAMES_MAX = 20
"""How many names of one user's jobs are told apart at one moment: those of the first in line."""
Elsewhere = Callable[[JobRecord], WaitCause]
"""The cause of a job about which another scheduler decides."""


class Waiting(NamedTuple):
    """Jobs that are alike and wait for one cause."""

    tenant: str
    pool: str
    gpu_milli: int
    cause: str
    user: str = ""
    name: str = ""


class Room:
    """What is free for an ask, though there is no room for it."""

    __slots__ = ("free", "has", "pool", "tail")

    def __init__(self, state: State, place: Placer, shape: Shape) -> None:
        nodes = state.nodes
        members = 0
        self.has = not state.hopeless(shape) and any(
            [place(nodes, shape, way, way.pools) is not None for way in shape.ways]
        )
        """Whether there is room, after all."""
        self.free: dict[int, tuple[int, int]] = {}
        """By GPU model: the nodes that would do, and their milli-GPUs."""
        self.tail = 0
        """Milli-GPUs of the nodes that a gang could have, if only the last one is lacking."""
        for way in shape.ways:
            kind = nodes.kinds[way.kind]
            members |= kind.members & way.pools
            free = sum([gpus * (bucket & way.pools).bit_count() for gpus, bucket in enumerate(kind.buckets)])
            free *= MILLI
            if shape.form in (SHARE, SLICES):
                for number in each(kind.partial & way.pools):
                    free += sum([left for left in nodes.gpu_free[number] if 0 < left < MILLI])
            there, known = self.free.get(way.model, (0, 0))
            self.free[way.model] = (there | kind.members & way.pools, known + free)
            if shape.form == GANG:
                self.tail = max(self.tail, _all_but_one(state, shape, way))
        pools = sorted([pool for pool, there in nodes.by_pool.items() if there & members])
        named = shape.ask.pools if not shape.ways else pools if shape.ask.pools or len(pools) == 1 else ()
        self.pool = ",".join(named)


def _all_but_one(state: State, shape: Shape, way: Way) -> int:
    """Milli-GPUs of the nodes that could be had, if all but one can; else 0."""
    needed = way.full_nodes + (way.rest_tasks > 0)
    if needed < 2:
        return 0
    kind = state.nodes.kinds[way.kind]
    full = find_with_room(state.nodes, shape, kind, way.pools, way.tasks_per_node).bit_count()
    have = min(full, way.full_nodes)
    tasks = have * way.tasks_per_node
    if way.rest_tasks:
        rest = find_with_room(state.nodes, shape, kind, way.pools, way.rest_tasks).bit_count()
        if rest > have:
            have, tasks = have + 1, tasks + way.rest_tasks
    return tasks * shape.gpus * shape.milli if have == needed - 1 else 0


class Look:
    """The jobs that wait at one moment: copied while nobody changes the state, added up after that."""

    def __init__(self, state: State, place: Placer, codes: Mapping[int, int]) -> None:
        queue = state.queue
        lanes = [streams for group in queue.groups.values() for streams in group.streams.values()]
        self._streams = [[row[-1] for row in rows] for streams in lanes for rows in streams.values()]
        if queue.alone is not None:
            self._streams.append([queue.alone])
        self._aside = list(state.deferred.values())
        self._codes = codes
        shapes = {records[0].shape.index: records[0].shape for records in self._streams}
        shapes |= {record.shape.index: record.shape for record in self._aside}
        self._rooms = {index: Room(state, place, shape) for index, shape in shapes.items()}

    def records(self) -> Iterable[JobRecord]:
        """All of them."""
        for records in self._streams:
            yield from records
        yield from self._aside

    def key(self, record: JobRecord, cause: WaitCause) -> Waiting:
        """Where a job is added up."""
        pool = self._rooms[record.shape.index].pool
        spec = record.job.spec
        return Waiting(spec.tenant, pool, record.shape.gpu_milli, cause.value, spec.user)

    def counted(self, crashed: Crashed, elsewhere: Elsewhere) -> dict[Waiting, int]:
        """How many jobs wait, by what and for which cause."""
        found: dict[tuple[int, str, WaitCause, str, str], int] = {}
        named: dict[str, set[str]] = {}

        def add(record: JobRecord, cause: WaitCause) -> None:
            if record.attempt and cause not in _OWN and crashed(record):
                cause = WaitCause.CRASHES
            spec = record.job.spec
            names = named.setdefault(spec.user, set())
            if len(names) < NAMES_MAX:
                names.add(spec.name)
            name = spec.name if spec.name in names else ""
            key = (record.shape.index, spec.tenant, cause, spec.user, name)
            found[key] = found.get(key, 0) + 1

        spent: list[tuple[int, int]] = []
        milli = {records[0].shape.index: records[0].shape.gpu_milli for records in self._streams}
        for records in sorted(self._streams, key=lambda each: each[0].id):
            shape = records[0].shape
            room = self._rooms[shape.index]
            # A pass drops jobs that have no room without a word, once it has promised the first of them a time.
            code, gone = int(ReasonCode.NOT_EXAMINED if room.has else ReasonCode.ROOM), False
            for record in records:
                if record.job.spec.origin:
                    add(record, elsewhere(record))
                    continue
                # A job that the pass did not get to would get the answer of the one before it.
                code = self._codes.get(record.id, code)
                cause = CAUSES[code]
                if code == ReasonCode.ROOM and shape.gpu_milli and not gone:
                    cause = _of_room(shape, room, spent)
                    gone = cause is WaitCause.ROOM
                add(record, cause)
        for record in self._aside:
            milli[record.shape.index] = record.shape.gpu_milli
            add(record, elsewhere(record) if record.job.spec.origin else _aside(record))
        sums: dict[Waiting, int] = {}
        for (index, tenant, cause, user, name), count in found.items():
            key = Waiting(tenant, self._rooms[index].pool, milli[index], cause.value, user, name)
            sums[key] = sums.get(key, 0) + count
        return sums


_OWN = (WaitCause.HOLD, WaitCause.DEPENDENCY)
"""A job that crashed and is on hold waits for its user."""


def _of_room(shape: Shape, room: Room, spent: list[tuple[int, int]]) -> WaitCause:
    """What a job without room lacks; `spent`: nodes and their free milli-GPUs that explain jobs before it."""
    for members, free in room.free.values():
        left = free - sum([milli for there, milli in spent if there & members])
        if room.tail and left >= room.tail:
            spent.append((members, room.tail))
            return WaitCause.TAIL
        if left >= shape.gpu_milli:
            spent.append((members, shape.gpu_milli))
            return WaitCause.FRAGMENTATION
    return WaitCause.ROOM


def _aside(record: JobRecord) -> WaitCause:
    if record.held:
        return WaitCause.HOLD
    return WaitCause.DEPENDENCY if record.pending or record.doomed else WaitCause.BEGIN
