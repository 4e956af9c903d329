"""The books, summed up: time and money by any dimensions, with the line that balances.

Money is rounded to the micro-dollar once, for each entry by itself. All sums are of whole micro-dollars from there on:
they add up by any dimensions, and what is charged for an entry that stands does not move with what others do.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from gpuyard.errors import BadInput, names_text, quote, suggest_end
from gpuyard.ledger.rows import PROJECT
from gpuyard.ledger.units import (
    CHARGED,
    COLUMNS,
    ENERGY,
    FLEET,
    GPU_HOUR,
    KWH_PARTS,
    NOBODY,
    day_text,
    month_of,
)
from gpuyard.model.prices import BookPlace, PriceBook
from gpuyard.model.serialise import Plain

NOT_CHARGED = "not charged"
NO_LABELS: Mapping[str, str] = MappingProxyType({})
LABEL = "label:"
"""Before the key of a label: a dimension."""


class Entry(NamedTuple):
    """An entry of the books: what happened on a day at a place to an owner's jobs."""

    day: int
    """The day that it is about."""
    learned: int
    """The day on which it is booked; not `day` for a correction."""
    place: str
    owner: str
    columns: Sequence[int]


class Owner(NamedTuple):
    """Whose time it was."""

    tenant: str = ""
    user: str = ""
    klass: str = ""
    labels: Mapping[str, str] = NO_LABELS
    """Free labels of the jobs, by key."""

    @classmethod
    def of(cls, row: Plain) -> "Owner":
        """From what the books keep of it."""
        tenant, user, klass, *labels = row
        return cls(tenant, user, klass, dict(labels[0]) if labels else NO_LABELS)


class StatementLine(NamedTuple):
    """One line of a statement."""

    names: tuple[str, ...]
    """One for each dimension."""
    time: tuple[int, ...]
    """Parts times milliseconds by category."""
    charged: int
    """In micro-dollars."""
    fleet: int
    """What the fleet cost, in micro-dollars."""
    energy_mj: int = 0
    """Measured energy of jobs, in millijoules."""
    rest: int = 0
    """What the fleet cost and no job was charged for, in micro-dollars: of each place and day, with nobody."""


_Of = Callable[[Entry, BookPlace, Owner], str]
DIMENSIONS: dict[str, _Of] = {
    "tenant": lambda _entry, _place, owner: owner.tenant,
    "user": lambda _entry, _place, owner: owner.user,
    "class": lambda _entry, _place, owner: owner.klass,
    "project": lambda _entry, _place, owner: owner.labels.get(PROJECT, ""),
    "model": lambda _entry, place, _owner: place.model,
    "pool": lambda _entry, place, _owner: place.pool,
    "market": lambda _entry, place, _owner: place.market,
    "region": lambda _entry, place, _owner: place.region,
    "cluster": lambda _entry, place, _owner: place.cluster,
    "day": lambda entry, _place, _owner: day_text(entry.learned),
    "month": lambda entry, _place, _owner: month_of(entry.learned),
}
"""What entries are summed up by, besides `label:KEY`."""


def dimension(name: str) -> _Of:
    """What entries are summed up by under this name; `BadInput` if there is no such dimension."""
    if name.startswith(LABEL) and name != LABEL:
        key = name.removeprefix(LABEL)
        return lambda _entry, _place, owner: owner.labels.get(key, "")
    if name not in DIMENSIONS:
        known = [*DIMENSIONS, "label:KEY"]
        raise BadInput(
            f"{quote(name)} is not a dimension{suggest_end(name, known)}",
            f"Take some of {names_text(known)}.",
        )
    return DIMENSIONS[name]


def read_entry(key: str, columns: Sequence[int]) -> Entry:
    """An entry from its row."""
    kind, *rest = key.split("/")
    if kind == "d":
        day, place, owner = rest
        return Entry(int(day), int(day), place, owner, columns)
    learned, day, place, owner = rest
    return Entry(int(day), int(learned), place, owner, columns)


class Prices:
    """Each day's prices: those of its month if that is closed, else those in force."""

    def __init__(self, now: PriceBook, closed: Iterable[tuple[int, int, PriceBook]] = ()) -> None:
        self._now = now
        self._closed = sorted(closed, key=lambda each: each[0])

    @property
    def now(self) -> PriceBook:
        """The prices in force."""
        return self._now

    def price(self, place: BookPlace, day: int) -> int:
        """Micro-dollars an hour; nothing for a model without any price."""
        return self.rate(place, day)[0] or 0

    def rate(self, place: BookPlace, day: int) -> tuple[int | None, int]:
        """Micro-dollars for an hour (None: there is no price), and for a measured kWh on top."""
        book = next((book for first, after, book in self._closed if first <= day < after), self._now)
        return book.rate(place, day)


def sum_entries(
    entries: Iterable[Entry],
    by: Sequence[str],
    places: Mapping[str, BookPlace],
    owners: Mapping[str, Owner],
    prices: Prices,
    *,
    whole: bool = False,
) -> list[StatementLine]:
    """The lines of a statement by these dimensions, by name. What nobody owns has empty names of its owner.

    `whole`: the entries are those of all owners, and the lines tell what was not charged (`rest`).
    """
    of, not_charged = [dimension(name) for name in by], COLUMNS
    sums: dict[tuple[str, ...], list[int]] = {}
    lines: dict[tuple[str, str, int], list[int]] = {}
    by_day, nobody = not {"day", "month"}.isdisjoint(by), Owner()

    def line_of(entry: Entry, owner: str) -> list[int]:
        key = (entry.place, owner, entry.learned if by_day else 0)
        line = lines.get(key)
        if line is None:
            place, whose = places[entry.place], owners.get(owner, nobody)
            names = tuple([each(entry, place, whose) for each in of])
            line = lines[key] = sums.setdefault(names, [0] * (COLUMNS + 1))
        return line

    for entry in entries:
        place, line = places[entry.place], line_of(entry, entry.owner)
        (price, a_kwh), columns = prices.rate(place, entry.day), entry.columns
        for column in range(CHARGED):
            line[column] += columns[column]
        # Measured energy is the job's, and part of what the fleet cost.
        energy = columns[ENERGY] * a_kwh * KWH_PARTS
        charged = micro_usd(columns[CHARGED] * (price or 0) + energy)
        fleet = micro_usd(columns[FLEET] * (price or 0) + energy)
        line[CHARGED] += charged
        line[FLEET] += fleet
        line[ENERGY] += columns[ENERGY]
        if whole and (charged or fleet):
            line_of(entry, NOBODY)[not_charged] += fleet - charged
    return [
        StatementLine(
            names, tuple(line[:CHARGED]), line[CHARGED], line[FLEET], line[ENERGY], line[not_charged]
        )
        for names, line in sorted(sums.items())
    ]


def micro_usd(exact: int) -> int:
    """Micro-dollars per hour times parts times milliseconds as micro-dollars, rounded to the nearest."""
    return (2 * exact + GPU_HOUR) // (2 * GPU_HOUR)
