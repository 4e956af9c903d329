"""One job in the books: what its attempt holds and since when, and what all its attempts came to."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from gpuyard.ledger.nodes import Part, Places
from gpuyard.ledger.units import STARTING, UNMEASURED, USED, WASTED
from gpuyard.model.serialise import Plain

WAITING, STARTING_UP, RUNNING, SUSPENDED, STOPPING = "", "S", "R", "P", "X"
"""How its attempt stands; `WAITING`: it has none."""
PAST_MAX = 2
"""How many ended attempts of a job may still be measured: measurements are an hour late at most."""
TIMES = (USED, WASTED, UNMEASURED, STARTING)
"""The categories in which a job has time."""

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
        "attempt", "costs", "energy", "owner", "paid_ms", "parts", "past", "phase", "runs", "since_ms",
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
            self.paid_ms, self.parts, self.runs,
        ]  # fmt: skip

    def text(self) -> str | None:
        """That row as JSON, if the job is one of most: it had an attempt on one node within a day, and has none now."""
        if self.phase != WAITING or self.energy is not None or len(self.past) != 1 or len(self.costs) != 1:
            return None
        attempt, held, runs = self.past[0]
        [((day, place), amount)] = self.costs.items()
        if len(held) != 1 or len(held[0].places) != 1 or len(runs) != 1 or not amount:
            return None
        [(at_ms, stood)], [(from_ms, until_ms)] = held[0].places, runs
        used, wasted, unmeasured, starting = self.times
        return (
            f'["{self.owner}",{self.attempt},[[{attempt},[[{held[0].parts},[[{at_ms},"{stood}"]]]],'
            f"[[{from_ms},{until_ms}]]]],[{used},{wasted},{unmeasured},{starting}],"
            f'[[{day},"{place}",{amount},0]]]'
        )

    def bill(self) -> list[tuple[tuple[int, str], int, int]]:
        """By day and place: what it is charged for, and its energy."""
        energy = self.energy
        if energy is None:
            return [(at, parts, 0) for at, parts in sorted(self.costs.items())]
        return [(at, self.costs.get(at, 0), energy.get(at, 0)) for at in sorted({**self.costs, **energy})]

    @classmethod
    def of(cls, row: Plain) -> Self:
        """From what was kept."""
        self = cls(row[0])
        if len(row) == 1:
            return self
        _owner, self.attempt, past, self.times, costs, *live = row
        self.past = [
            Past(attempt, [Held(parts, _places(places)) for parts, places in held], _spans(runs))
            for attempt, held, runs in past
        ]
        self.costs = {(day, place): parts for day, place, parts, _mj in costs}
        self.energy = {(day, place): mj for day, place, _parts, mj in costs if mj} or None
        if live:
            phase, since_ms, start_ms, paid_ms, parts, runs = live
            self.start(self.attempt, since_ms)
            self.phase, self.start_ms, self.paid_ms = phase, start_ms, paid_ms
            self.parts = [Part._make([*held, _places(places)]) for *held, places in parts]
            self.runs = _spans(runs)
        return self

    def end(self) -> None:
        """Its attempt is over: keep of it what a late measurement asks for."""
        if self.runs:
            self.past = [*self.past[1 - PAST_MAX :], Past(self.attempt, self.parts, self.runs)]
        self.phase = WAITING


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
