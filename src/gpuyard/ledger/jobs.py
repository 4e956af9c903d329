"""One job in the books: what its attempt holds and since when, and what all its attempts came to."""

from typing import Self

from gpuyard.ledger.nodes import Part
from gpuyard.model.serialise import Plain

WAITING, STARTING_UP, RUNNING, SUSPENDED, STOPPING = "", "S", "R", "P", "X"
"""How its attempt stands; `WAITING`: it has none."""
PAST_MAX = 2
"""How many ended attempts of a job may still be measured: measurements are an hour late at most."""

Span = tuple[int, int]


class JobBook:
    """What is known of a job."""

    __slots__ = (
        "attempt", "costs", "energy", "owner", "paid_ms", "parts", "past", "phase", "runs", "since_ms",
        "start_ms", "times",
    )  # fmt: skip

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.attempt, self.phase = 0, WAITING
        self.since_ms = 0
        """Up to when the time of its attempt is in the time book."""
        self.start_ms = self.paid_ms = 0
        """When its attempt really started, and up to when it is charged."""
        self.parts: list[Part] = []
        self.runs: list[Span] = []
        """When its attempt ran and was not measured."""
        self.past: list[tuple[int, list[Part], list[Span]]] = []
        """Ended attempts: number, what each had, and the unmeasured times."""
        self.times = [0, 0, 0, 0]
        """Used, wasted, unmeasured, starting or stopping: of all attempts together."""
        self.costs: dict[tuple[int, str], int] = {}
        """What it is charged for, by day and place."""
        self.energy: dict[tuple[int, str], int] = {}
        """Its measured energy in millijoules, alike."""

    def ran(self, from_ms: int, until_ms: int) -> None:
        """Its attempt ran in this span."""
        if self.runs and self.runs[-1][1] == from_ms:
            self.runs[-1] = (self.runs[-1][0], until_ms)
        else:
            self.runs.append((from_ms, until_ms))

    def row(self) -> Plain:
        """As it is kept; of a job that never had an attempt, whose it is."""
        if not self.attempt:
            return [self.owner]
        costs = [
            [*at, self.costs.get(at, 0), self.energy.get(at, 0)]
            for at in sorted({**self.costs, **self.energy})
            if self.costs.get(at) or self.energy.get(at)
        ]
        return [
            self.owner, self.attempt, self.phase, self.since_ms, self.start_ms, self.paid_ms,
            self.parts, self.runs, self.past, self.times, costs,
        ]  # fmt: skip

    @classmethod
    def of(cls, row: Plain) -> Self:
        """From what was kept."""
        if len(row) == 1:
            return cls(row[0])
        self = cls.__new__(cls)
        (
            self.owner, self.attempt, self.phase, self.since_ms, self.start_ms, self.paid_ms, parts, runs, past,
            self.times, costs,
        ) = row  # fmt: skip
        self.parts = _parts(parts)
        self.runs = [(a, b) for a, b in runs]
        self.past = [(number, _parts(held), [(a, b) for a, b in spans]) for number, held, spans in past]
        self.costs = {(day, place): parts for day, place, parts, _mj in costs}
        self.energy = {(day, place): mj for day, place, _parts, mj in costs if mj}
        return self


def _parts(rows: Plain) -> list[Part]:
    return [Part._make([*held, [(at_ms, place) for at_ms, place in places]]) for *held, places in rows]


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
