"""A cloud's bill beside the books: where they differ, by day, GPU model, market and region, and which lines do it.

The books know what each node had on each day to the millisecond, and its price; a bill has a line for each machine and
hour, or day. What both have is compared in sums. Of a sum that differs, and of lines that are odd in themselves, the
lines of the bill are named: one that is there twice, one at another price than its neighbours, one that has less time
than it says, and the hours of a machine between two lines for which there is none.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from gpuyard.ledger.units import day_text
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.quantities import hour_rate_text

SPOT = "spot"


class BillLine(NamedTuple):
    """A line of a bill about machines with GPUs."""

    line: int
    """In the file."""
    resource: str
    """The machine; empty: the bill does not say."""
    what: str
    """The instance type."""
    model: str
    gpus: int
    market: str
    region: str
    from_ms: int
    until_ms: int
    machine_ms: int
    """Time of machines that it bills."""
    micro_usd: int

    @property
    def gpu_ms(self) -> int:
        """GPU time."""
        return self.machine_ms * self.gpus

    @property
    def place(self) -> tuple[str, str, str]:
        """What it is compared by, besides the day."""
        return self.model, self.market, self.region

    @property
    def of(self) -> str:
        """The machine, or the kind of it."""
        return self.resource or self.what


class Sums(NamedTuple):
    """GPU time and money of one day, model, market and region."""

    gpu_ms: int = 0
    micro_usd: int = 0


Place = tuple[int, str, str, str]
"""Day, model, market, region."""


class Finding(NamedTuple):
    """A difference, with the lines of the bill that it is about."""

    day: int
    model: str
    market: str
    region: str
    bill: Sums
    books: Sums
    lines: tuple[int, ...]
    said: str


def by_day(line: BillLine) -> list[tuple[int, int, int]]:
    """Its days, each with the GPU time and the money that fall on it, evenly over the time that it is about."""
    first, last = line.from_ms // DAY_MS, max(line.from_ms, line.until_ms - 1) // DAY_MS
    whole = max(1, line.until_ms - line.from_ms)
    found, given = [], [0, 0]
    for day in range(first, last + 1):
        until = min(line.until_ms, (day + 1) * DAY_MS) - line.from_ms
        upto = [line.gpu_ms, line.micro_usd] if day == last else [
            line.gpu_ms * until // whole, line.micro_usd * until // whole
        ]  # fmt: skip
        found.append((day, upto[0] - given[0], upto[1] - given[1]))
        given = upto
    return found


def compare_bill(
    lines: Sequence[BillLine], books: Mapping[Place, Sums], days: tuple[int, int], per_mille: int
) -> list[Finding]:
    """What differs by more than so many thousandths, and lines that are odd in themselves; by day and place.

    `days`: the first day that counts, and the one after the last.
    """
    bill: dict[Place, list[int]] = {}
    at: dict[Place, list[BillLine]] = {}
    for line in lines:
        for day, gpu_ms, micro_usd in by_day(line):
            place = (day, line.model, line.market, line.region)
            total = bill.setdefault(place, [0, 0])
            total[0] += gpu_ms
            total[1] += micro_usd
            at.setdefault(place, []).append(line)
    odd: dict[Place, list[tuple[int, str]]] = {}
    twice = _twice(lines)
    doubled: dict[Place, int] = {}
    for line, _text in twice:
        for day, gpu_ms, _micro_usd in by_day(line):
            doubled[day, *line.place] = doubled.get((day, *line.place), 0) + gpu_ms
    for line, text in [*twice, *_odd(lines, {line.line for line, _text in twice})]:
        odd.setdefault((line.from_ms // DAY_MS, *line.place), []).append((line.line, text))
    for day, line, gap_ms, text in _gaps(lines):
        place = (day, *line.place)
        lacks_ms = books.get(place, Sums()).gpu_ms - bill.get(place, [0])[0] + doubled.get(place, 0)
        # A machine may have been stopped for these hours; then the books lack them too.
        if 2 * lacks_ms >= gap_ms * line.gpus:
            odd.setdefault(place, []).append((line.line, text))
    found = []
    for place in sorted({*bill, *books}):
        ours, theirs = books.get(place, Sums()), Sums(*bill.get(place, (0, 0)))
        apart = any([differs(one, other, per_mille) for one, other in zip(theirs, ours, strict=True)])
        said = odd.get(place, [])
        if not days[0] <= place[0] < days[1] or not (apart or said):
            continue
        told: list[tuple[tuple[int, ...], str]] = [((number,), text) for number, text in sorted(said)]
        told = told or [(tuple([line.line for line in at.get(place, ())]), _whole(theirs, ours, per_mille))]
        found += [Finding(*place, theirs, ours, numbers, text) for numbers, text in told]
    return found


def differs(one: int, other: int, per_mille: int) -> bool:
    """Whether two sums are apart by more than so many thousandths of the larger one."""
    return 1000 * abs(one - other) > per_mille * max(abs(one), abs(other))


def _whole(bill: Sums, books: Sums, per_mille: int) -> str:
    """What is to be said where no line is odd."""
    if not bill.gpu_ms:
        return "the bill has no line about these GPUs"
    if not books.gpu_ms:
        return "the books have no such GPUs on that day"
    if not differs(bill.gpu_ms, books.gpu_ms, per_mille):
        return "the price is another one than that of price_book"
    more = "more" if bill.gpu_ms > books.gpu_ms else "less"
    return f"the bill has {more} GPU time than the nodes were there"


def _twice(lines: Sequence[BillLine]) -> list[tuple[BillLine, str]]:
    """Lines that say once more what another one says."""
    found = []
    first: dict[tuple[object, ...], int] = {}
    for line in lines:
        if line.resource:
            number = first.setdefault(line[1:10], line.line)
            if number != line.line:
                found.append((line, f"{line.of} is billed twice for this time: line {number} has it"))
    return found


def _odd(lines: Sequence[BillLine], twice: Set[int]) -> list[tuple[BillLine, str]]:
    """Lines that are odd beside others of their kind: at another price, or with less time than they say."""
    found: list[tuple[BillLine, str]] = []
    by_kind: dict[tuple[str, str, str], list[BillLine]] = {}
    for line in lines:
        if line.machine_ms > 0 and line.line not in twice:
            by_kind.setdefault((line.what, line.market, line.region), []).append(line)
    for (what, market, _region), same in by_kind.items():
        rates = Counter([_rate(line) for line in same])
        usual, count = rates.most_common(1)[0]
        if market != SPOT and count > 1:
            found += [
                (
                    line,
                    f"{hour_rate_text(_rate(line))} an hour of {what}; the other lines have {hour_rate_text(usual)}",
                )
                for line in same
                if abs(_rate(line) - usual) > max(1, usual // 10_000)
            ]
        full = [line for line in same if line.machine_ms == line.until_ms - line.from_ms]
        if 2 * len(full) > len(same):
            found += [
                (
                    line,
                    f"{line.of} has {_hours(line.machine_ms)} h of {_hours(line.until_ms - line.from_ms)} h; "
                    "most lines have all of their time",
                )
                for line in same
                if line.machine_ms != line.until_ms - line.from_ms
            ]
    return found


def _gaps(lines: Sequence[BillLine]) -> list[tuple[int, BillLine, int, str]]:
    """Hours of a machine without a line between two of its lines: the day, the line before, how long, and a text."""
    by_machine: dict[str, list[BillLine]] = {}
    for line in lines:
        if line.resource:
            by_machine.setdefault(line.resource, []).append(line)
    found = []
    for machine, own in sorted(by_machine.items()):
        own.sort(key=lambda line: (line.from_ms, line.until_ms, line.line))
        until_ms, before = own[0].until_ms, own[0]
        for line in own[1:]:
            if line.from_ms > until_ms:
                said = f"{machine} has no line from {_clock(until_ms)} to {_clock(line.from_ms)}"
                text = f"{said}: between lines {before.line} and {line.line}"
                found.append((until_ms // DAY_MS, before, line.from_ms - until_ms, text))
            if line.until_ms > until_ms:
                until_ms, before = line.until_ms, line
    return found


def _rate(line: BillLine) -> int:
    """Micro-dollars for an hour of a machine."""
    return (2 * line.micro_usd * HOUR_MS + line.machine_ms) // (2 * line.machine_ms)


def _hours(ms: int) -> str:
    return f"{ms / HOUR_MS:.4g}"


def _clock(at_ms: int) -> str:
    minutes = at_ms % DAY_MS // 60_000
    return f"{day_text(at_ms // DAY_MS)} {minutes // 60:02}:{minutes % 60:02}"
