"""One node in the time book: what attempts hold of it, and what the rest of it is."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, Self

from pydantic_core import to_json

from gpuyard.core.fleet.bits import positions
from gpuyard.ledger.units import (
    HELD,
    IDLE,
    NOBODY,
    PARTS,
    PARTS_OF_MILLI,
    RECUTTING,
    STRANDED,
    UNAVAILABLE,
)
from gpuyard.model import Grant, Node
from gpuyard.model.mig import MIG_MODELS
from gpuyard.model.serialise import Plain
from gpuyard.model.units import GIB_MIB, MILLI

CORES_LEAST = MILLI
MEMORY_LEAST = GIB_MIB
"""A GPU beside which there is less than one core or one GiB is stranded."""
PARTS_MAX = 256
"""How many parts of grants a node remembers."""
PARTS_KNOWN = 16_384
"""How many parts are remembered as they are kept, of all nodes together."""

Places = tuple[tuple[int, str], ...]
"""The place of a node, and from when on it has been that: a pool may get another market meanwhile."""


def split_span(places: Places, from_ms: int, until_ms: int) -> list[tuple[str, int, int]]:
    """A span, by place. What lies before the first one belongs to it."""
    if len(places) == 1:
        return [(places[0][1], from_ms, until_ms)]
    starts = [from_ms, *[max(from_ms, at_ms) for at_ms, _place in places[1:]]]
    ends = [min(until_ms, at_ms) for at_ms, _place in places[1:]] + [until_ms]
    spans = zip(places, starts, ends, strict=True)
    return [(place, low, high) for (_at_ms, place), low, high in spans if low < high]


class Part(NamedTuple):
    """What an attempt has on one node."""

    node: int
    parts: int
    """Parts of its GPUs."""
    charged: int
    """Parts that it is charged for."""
    gpus: int
    """As a bit mask."""
    each: tuple[int, ...]
    """The parts of each of these GPUs, in order."""
    slots: tuple[int, ...]
    """And its memory slots of MIG; none, if it has no slices."""
    cpu_milli: int
    memory_mib: int
    places: Places


@lru_cache(maxsize=PARTS_KNOWN)
def part_text(part: Part) -> str:
    """As it is kept, as JSON: the same parts come again and again."""
    return to_json(part).decode()


def count_parts(model: str, gpus: int, grant: Grant) -> int:
    """The parts of GPUs of a node that a grant is about."""
    return sum([_wanted(model, grant, gpu)[0] for gpu in range(gpus) if grant.gpus >> gpu & 1])


def _wanted(model: str, grant: Grant, gpu: int) -> tuple[int, int, int]:
    """Of one GPU of a grant: its parts, its memory slots of MIG, and the parts that it is worth."""
    geometry = MIG_MODELS.get(model) if grant.slices else None
    if geometry is None:
        parts = grant.milli * PARTS_OF_MILLI
        return parts, 0, parts
    names = [piece.profile for piece in grant.slices if piece.gpu == gpu]
    profiles = [found for name in names if (found := geometry.profile(name)) is not None]
    slots = sum([profile.memory for profile in profiles])
    parts = sum([profile.compute for profile in profiles]) * PARTS // geometry.compute
    return parts, slots, max(parts, slots * PARTS // geometry.slots)


class NodeBook:
    """What is known of a node, and since when it has been so."""

    __slots__ = (
        "_parts", "_places", "broken", "cordoned", "cpu_milli", "cpus_left", "down", "fleet", "gpus", "jobs", "kept",
        "left", "memory_left", "memory_mib", "model", "names", "place", "recut", "since_ms", "sliced", "slots", "taken",
        "unused", "used",
    )  # fmt: skip

    def __init__(self, node: Node, place: str, at_ms: int) -> None:
        self.names = (node.cluster, node.pool)
        self.stand(place)
        self.since_ms = at_ms
        self.down = self.cordoned = False
        self.jobs: dict[int, None] = {}
        """The jobs with an attempt here."""
        self.kept: dict[int, tuple[str, list[tuple[int, int]]]] = {}
        """By job with an earmark here: its owner, and masks of GPUs with the parts kept on each."""
        self.taken = self.recut = self.broken = 0
        """GPUs, as masks: used from outside; being cut to a pinned layout; with a layout that could not be made."""
        self.used = [0] * node.gpus
        self.slots = [0] * node.gpus
        self._size(node)
        self.cpus_left, self.memory_left = self.cpu_milli, self.memory_mib

    def _size(self, node: Node) -> None:
        self.gpus, self.model = node.gpus, node.gpu_model if node.gpus else ""
        self.cpu_milli, self.memory_mib = node.cpu_milli, node.memory_mib
        self._count()

    def _count(self) -> None:
        """Work out what follows from the rest."""
        self.left = self.gpus * PARTS - sum(self.used)
        """Parts that no attempt holds."""
        self.sliced = sum(self.slots)
        """Memory slots of MIG that attempts hold."""
        self.fleet = (self.gpus or 1) * PARTS
        """Parts of GPUs there are to pay for; a node without GPUs counts as one."""

    def change(self, node: Node, place: str) -> None:
        """It is other hardware now, and empty; or its GPUs have another name, and the attempts stay."""
        self.cpus_left += node.cpu_milli - self.cpu_milli
        self.memory_left += node.memory_mib - self.memory_mib
        if not self.jobs:
            self.taken = self.recut = self.broken = 0
            self.used, self.slots = [0] * node.gpus, [0] * node.gpus
        self.names = (node.cluster, node.pool)
        self._size(node)
        self.stand(place)

    def stand(self, place: str) -> None:
        """It is at this place, and of this size, from now on."""
        self.place, self._places = place, ((0, place),)
        self.unused = (place, NOBODY)
        """The entry that has what nobody uses of it."""
        self._parts: dict[Grant, Part] = {}
        """What grants of whole GPUs and of shares came to here: the same ones come again and again."""

    def take(self, job_id: int, grant: Grant) -> Part:
        """An attempt starts here. It gets what is left of a GPU, should a log give more than that."""
        used, part = self.used, self._parts.get(grant)
        if part is not None:
            each = part.each
            for at, gpu in enumerate(positions[part.gpus]):
                if used[gpu] + each[at] > PARTS:
                    part = None
                    break
        if part is None:
            part = self._part(grant)
        each = part.each
        for at, gpu in enumerate(positions[part.gpus]):
            used[gpu] += each[at]
        if part.slots:
            for gpu, slot in zip(positions[part.gpus], part.slots, strict=True):
                self.slots[gpu] += slot
            self.sliced += sum(part.slots)
        self.left -= part.parts
        self.cpus_left -= part.cpu_milli
        self.memory_left -= part.memory_mib
        self.jobs[job_id] = None
        return part

    def _part(self, grant: Grant) -> Part:
        """What a grant comes to, with what others hold now."""
        mask, used = grant.gpus & ((1 << self.gpus) - 1), self.used
        wanted = [_wanted(self.model, grant, gpu) for gpu in positions[mask]]
        each = tuple(
            [min(want[0], PARTS - used[gpu]) for gpu, want in zip(positions[mask], wanted, strict=True)]
        )
        slots = tuple([slot for _want, slot, _worth in wanted]) if grant.slices else ()
        charged = self._charged(sum([min(worth, PARTS) for _want, _slot, worth in wanted]), grant)
        part = Part(
            grant.node, sum(each), charged, mask, each, slots, grant.cpu_milli, grant.memory_mib, self._places
        )
        if not grant.slices and each == tuple([want for want, _slot, _worth in wanted]):
            if len(self._parts) >= PARTS_MAX:
                self._parts = {}
            self._parts[grant] = part
        return part

    def _charged(self, parts: int, grant: Grant) -> int:
        """By the dominant resource: the largest part of the node that the attempt has."""
        fleet = self.fleet
        if self.cpu_milli:
            parts = max(parts, grant.cpu_milli * fleet // self.cpu_milli)
        if self.memory_mib:
            parts = max(parts, grant.memory_mib * fleet // self.memory_mib)
        return min(parts, fleet)

    def give(self, job_id: int, part: Part) -> None:
        """The attempt has gone."""
        used, each = self.used, part.each
        for at, gpu in enumerate(positions[part.gpus]):
            used[gpu] -= each[at]
        if part.slots:
            for gpu, slot in zip(positions[part.gpus], part.slots, strict=True):
                self.slots[gpu] -= slot
            self.sliced -= sum(part.slots)
        self.left += part.parts
        self.cpus_left += part.cpu_milli
        self.memory_left += part.memory_mib
        self.jobs.pop(job_id, None)

    def rest(self) -> int | None:
        """The category of all that no attempt holds; None: it is of several."""
        if self.down or self.cordoned:
            return UNAVAILABLE
        if self.sliced or self.kept or self.taken or self.broken or self.recut:
            return None
        return IDLE if self.cpus_left >= CORES_LEAST and self.memory_left >= MEMORY_LEAST else self._bare()

    def _bare(self) -> int:
        """Whether there is a core and some memory left beside a GPU."""
        if (self.cpus_left < CORES_LEAST and self.cpu_milli) or (
            self.memory_left < MEMORY_LEAST and self.memory_mib
        ):
            return STRANDED
        return IDLE

    def free(self) -> Iterator[tuple[str, int, int]]:
        """What no attempt holds: owner, category, parts."""
        if not self.left:
            return
        only = self.rest()
        if only is not None:
            yield NOBODY, only, self.left
            return
        rest = self._bare()
        gone, recut = self.taken | self.broken, self.recut
        geometry = MIG_MODELS.get(self.model)
        full = geometry.slots if geometry is not None else 0
        for gpu, used in enumerate(self.used):
            left = PARTS - used
            if not left:
                continue
            if gone >> gpu & 1:
                yield NOBODY, UNAVAILABLE, left
                continue
            if recut >> gpu & 1:
                yield NOBODY, RECUTTING, left
                continue
            for _job_id, (owner, kept) in sorted(self.kept.items()):
                held = min(left, sum([parts for mask, parts in kept if mask >> gpu & 1]))
                if held:
                    yield owner, HELD, held
                    left -= held
            if left:
                yield NOBODY, STRANDED if full and self.slots[gpu] >= full else rest, left

    def row(self) -> Plain:
        """As it is kept."""
        kept = [[job, owner, [list(each) for each in grants]] for job, (owner, grants) in self.kept.items()]
        return [
            list(self.names), self.place, self.since_ms, self.gpus, self.model, self.cpu_milli, self.memory_mib,
            self.cpus_left, self.memory_left, [self.down, self.cordoned], [self.taken, self.recut, self.broken],
            list(self.used), list(self.slots), sorted(self.jobs), sorted(kept),
        ]  # fmt: skip

    @classmethod
    def of(cls, row: Plain) -> Self:
        """From what was kept."""
        self = cls.__new__(cls)
        (
            names, place, self.since_ms, self.gpus, self.model, self.cpu_milli, self.memory_mib, self.cpus_left,
            self.memory_left, (self.down, self.cordoned), (self.taken, self.recut, self.broken), self.used, self.slots,
            jobs, kept,
        ) = row  # fmt: skip
        self.names = tuple(names)
        self.stand(place)
        self.jobs = dict.fromkeys(jobs)
        self.kept = {job: (owner, [tuple(each) for each in grants]) for job, owner, grants in kept}
        self._count()
        return self
