"""One job in the books: what its attempt holds and since when, and what all its attempts came to."""

from collections.abc import Sequence
from typing import NamedTuple

from pydantic_core import to_json

from gpuyard.ledger.nodes import Part, Places, part_text
from gpuyard.ledger.units import STARTING, UNMEASURED, USED, WASTED
from gpuyard.model.serialise import Plain

WAITING, STARTING_UP, RUNNING, SUSPENDED, STOPPING = "", "S", "R", "P", "X"
"""How its attempt stands; `WAITING`: it has none."""
PAST_MAX = 2
"""How many ended attempts of a job may still be measured: measurements are an hour late at most."""
TIMES = (USED, WASTED, UNMEASURED, STARTING)
"""The categories in which a job has time."""

_FRESH_FIELDS = 4
"""Of a job in short."""

Span = tuple[int, int]


class Held(NamedTuple):
    """What an attempt had of a node, as far as a late measurement asks for it."""

    parts: int
    places: Places


class Past(NamedTuple):
    """An attempt that has ended."""

    attempt: int
    held: Sequence[Held | Part]
    runs: list[Span]
    """When it ran and was not measured."""


class JobBook:
    """What is known of a job that has had an attempt."""

    __slots__ = (
        "attempt", "begun_ms", "costs", "energy", "owner", "paid_ms", "parts", "past", "phase", "runs", "since_ms",
        "start_ms", "times",
    )  # fmt: skip

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.attempt, self.phase = 0, WAITING
        self.past: list[Past] = []
        self.times = [0, 0, 0, 0]
        """By `TIMES`: of all attempts together."""
        self.costs: dict[tuple[int, str], int] = {}
        """What it is charged for, by day and place."""
        self.energy: dict[tuple[int, str], int] | None = None
        """Its measured energy in millijoules, alike; None: it was never measured."""

    def start(self, attempt: int, now_ms: int) -> None:
        """An attempt begins."""
        self.attempt, self.phase = attempt, STARTING_UP
        self.since_ms = now_ms
        """Up to when the time of its attempt is in the time book."""
        self.begun_ms = 0
        """Up to when its attempt was starting, if it has begun since: that is booked with what comes next."""
        self.start_ms = self.paid_ms = now_ms
        """When its attempt really started, and up to when it is charged."""
        self.parts: list[Part] = []
        self.runs: list[Span] = []
        """When its attempt ran and was not measured."""

    def ran(self, from_ms: int, until_ms: int) -> None:
        """Its attempt ran in this span."""
        if self.runs and self.runs[-1][1] == from_ms:
            self.runs[-1] = (self.runs[-1][0], until_ms)
        else:
            self.runs.append((from_ms, until_ms))

    def row(self) -> list[Plain]:
        """As it is kept; of a job without an attempt now, nothing that the next one begins anew."""
        if not self.attempt:
            return [self.owner]
        costs = [[day, place, parts, mj] for (day, place), parts, mj in self.bill() if parts or mj]
        past = [
            (attempt, [(each.parts, each.places) for each in held], runs) for attempt, held, runs in self.past
        ]
        if self.phase == WAITING:
            return [self.owner, self.attempt, past, self.times, costs]
        return [
            self.owner, self.attempt, past, self.times, costs, self.phase, self.since_ms, self.start_ms,
            self.paid_ms, self.parts, self.runs, self.begun_ms,
        ]  # fmt: skip

    def text(self) -> str:
        """That row as JSON; in short while all that is known is that its attempt has one part of one node."""
        if (
            self.phase in (STARTING_UP, RUNNING)
            and (self.phase == RUNNING) == bool(self.begun_ms)
            and len(self.parts) == 1
            and len(self.parts[0].places) == 1
            and self.since_ms == self.start_ms == self.paid_ms
            and not (self.runs or self.past or self.costs or self.energy or any(self.times))
        ):
            [part] = self.parts
            return Fresh(self.owner, self.attempt, self.since_ms, part, self.begun_ms).text()
        return to_json(self.row()).decode()

    def bill(self) -> list[tuple[tuple[int, str], int, int]]:
        """By day and place: what it is charged for, and its energy."""
        energy = self.energy
        if energy is None:
            return [(at, parts, 0) for at, parts in sorted(self.costs.items())]
        return [(at, self.costs.get(at, 0), energy.get(at, 0)) for at in sorted({**self.costs, **energy})]

    @classmethod
    def of(cls, row: Plain) -> "JobBook":
        """From what was kept."""
        self = cls(row[0])
        if len(row) == 1:
            return self
        if len(row) == _FRESH_FIELDS:
            _owner, attempt, (since_ms, begun_ms), part = row
            return Fresh(self.owner, attempt, since_ms, _part(part), begun_ms).book()
        _owner, self.attempt, past, self.times, costs, *live = row
        self.past = [
            Past(attempt, [Held(parts, _places(places)) for parts, places in held], _spans(runs))
            for attempt, held, runs in past
        ]
        self.costs = {(day, place): parts for day, place, parts, _mj in costs}
        self.energy = {(day, place): mj for day, place, _parts, mj in costs if mj} or None
        if live:
            phase, since_ms, start_ms, paid_ms, parts, runs, begun_ms = live
            self.start(self.attempt, since_ms)
            self.begun_ms = begun_ms
            self.phase, self.start_ms, self.paid_ms = phase, start_ms, paid_ms
            self.parts = [_part(each) for each in parts]
            self.runs = _spans(runs)
        return self

    def end(self) -> None:
        """Its attempt is over: keep of it what a late measurement asks for."""
        if self.runs:
            self.past = [*self.past[1 - PAST_MAX :], Past(self.attempt, self.parts, self.runs)]
        self.phase = WAITING


class Fresh:
    """A job with its first attempt, of which nothing is booked or charged yet. Most jobs are that until they end."""

    __slots__ = ("attempt", "begun_ms", "owner", "part", "since_ms")

    def __init__(self, owner: str, attempt: int, since_ms: int, part: Part, begun_ms: int = 0) -> None:
        self.owner, self.attempt, self.since_ms, self.part = owner, attempt, since_ms, part
        self.begun_ms = begun_ms
        """When it began to run; 0: it is starting."""

    def book(self) -> JobBook:
        """The same, for whatever may happen to it."""
        book = JobBook(self.owner)
        book.start(self.attempt, self.since_ms)
        book.begun_ms, book.phase = self.begun_ms, RUNNING if self.begun_ms else STARTING_UP
        book.parts.append(self.part)
        return book

    def text(self) -> str:
        """Its row as JSON."""
        return f'["{self.owner}",{self.attempt},[{self.since_ms},{self.begun_ms}],{part_text(self.part)}]'

    def over(self, until_ms: int, ran: int, waited: int, day: int, owed: int) -> str:
        """Its row as JSON once it has run until then: how long it ran and waited, and what it owes of one day."""
        attempt, part = self.attempt, self.part
        at_ms, place = part.places[0]
        return (
            f'["{self.owner}",{attempt},[[{attempt},[[{part.parts},[[{at_ms},"{place}"]]]],'
            f"[[{self.begun_ms},{until_ms}]]]],[0,0,{ran},{waited}],"
            f'[[{day},"{place}",{owed},0]]]'
        )


def _part(row: Plain) -> Part:
    node, parts, charged, gpus, each, slots, cpu_milli, memory_mib, places = row
    return Part(node, parts, charged, gpus, tuple(each), tuple(slots), cpu_milli, memory_mib, _places(places))


def _places(rows: Plain) -> Places:
    return tuple([(at_ms, place) for at_ms, place in rows])


def _spans(rows: Plain) -> list[Span]:
    return [(from_ms, until_ms) for from_ms, until_ms in rows]


def cut_out(spans: list[Span], from_ms: int, until_ms: int) -> list[Span]:
    """Take what lies between two times out of the spans; what was taken."""
    taken, left = list[Span](), list[Span]()
    for start, end in spans:
        low, high = max(start, from_ms), min(end, until_ms)
        if low >= high:
            left.append((start, end))
            continue
        taken.append((low, high))
        left += [(a, b) for a, b in ((start, low), (high, end)) if a < b]
    spans[:] = left
    return taken
