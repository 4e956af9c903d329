"""The books as a report reads them: the entries of some days, with what is still open added up to now.

A stretch of time is booked when it ends. So that a report tells of jobs that run and GPUs that idle, the books are
settled up to now on a copy of the rows in memory; nothing of that is written.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

from gpuyard.control.projections.following import Rows, expand_event
from gpuyard.control.projections.ledger import Ledger
from gpuyard.ledger.accounts import Entry, Owner, Prices, StatementLine, micro_usd, read_entry, sum_entries
from gpuyard.ledger.books import Books
from gpuyard.ledger.jobs import JobBook
from gpuyard.ledger.nodes import NodeBook
from gpuyard.ledger.rows import block_key
from gpuyard.ledger.units import KWH_PARTS
from gpuyard.model import (
    ConfigSet,
    Event,
    JobCancelled,
    JobChanged,
    JobHeld,
    JobReleased,
    JobSubmitted,
    NodeAdded,
    Requested,
    TasksSubmitted,
)
from gpuyard.model.prices import BookPlace, PriceBook
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.store import Cursor, Numbered, Store
from gpuyard.store.tables.following import FollowingRows

_LATE_MAX = 20_000
"""How many events the books may lack; more: they are being filled."""
_QUIET = (JobSubmitted, JobChanged, JobHeld, JobReleased, JobCancelled, Requested)
"""What happens to jobs that wait: by itself it costs nothing."""


class Accounts(NamedTuple):
    """Some days of the books."""

    entries: list[Entry]
    places: dict[str, BookPlace]
    owners: dict[str, Owner]
    prices: Prices
    closed_day: int = 0
    """Days before this one belong to closed months; 0: none does."""
    late: int = 0
    """Events of the log that are not in them: the books are being filled."""
    untold: Mapping[str, int] = MappingProxyType({})
    """By owner, the time of jobs that run now of which is not told yet what they did, in the last hour: parts x ms."""

    def lines(self, by: Sequence[str], *, whole: bool = False) -> list[StatementLine]:
        """Summed up by these dimensions; `whole`: with what was not charged."""
        return sum_entries(self.entries, by, self.places, self.owners, self.prices, whole=whole)

    def unpriced(self) -> list[str]:
        """GPU models that had no price on some of the days."""
        seen = {(entry.place, entry.day) for entry in self.entries}
        found = {
            self.places[place] for place, day in seen if self.prices.rate(self.places[place], day)[0] is None
        }
        return sorted({place.model for place in found})


def read_accounts(store: Store, from_day: int, until_day: int, now_ms: int = 0) -> Accounts:
    """The days from the first to before the second; `now_ms`: with what is open by then.

    The books are some seconds behind the log. What they lack is folded here, on the copy that is settled, so that a
    report tells of everything that was written before it was asked for.
    """
    with _books(store) as (rows, events, late):
        return _accounts(rows, from_day, until_day, now_ms, events, late)


@contextmanager
def _books(store: Store) -> Iterator[tuple[FollowingRows, Sequence[Numbered], int]]:
    """The rows of the books at one moment, what they lack of the log, and how many events they lack that cannot be had
    now."""
    # The log first: a thread that holds a snapshot of the rows waits for no other connection.
    before, head = store.projections.cursors().get(Ledger.name), store.head()
    events, late = _lacking(store, before, head)
    with store.projections.snapshot() as rows:
        cursor = rows.cursors().get(Ledger.name)
        if before is None or cursor is None or cursor[:3] != before[:3] or cursor.seq < before.seq:
            # They have begun anew since.
            yield rows, [], late or head
        else:
            yield rows, [each for each in events if each[0] > cursor.seq], late


def _accounts(
    rows: FollowingRows, from_day: int, until_day: int, now_ms: int, events: Sequence[Numbered], late: int
) -> Accounts:
    name = Ledger.name

    def between(kind: str, low: str = "", high: str = "~") -> dict[str, str]:
        return dict(rows.between(name, f"{kind}/{low}", f"{kind}/{high}"))

    named = {**between("o"), **between("p"), **between("m"), **rows.at(name, ["head", "prices"])}
    inside = [f"{day:06}" for day in (from_day, until_day)]
    found = {**between("d", *inside), **between("c", *inside)}

    def is_inside(key: str) -> bool:
        return key[:2] in ("d/", "c/") and inside[0] <= key[2:8] < inside[1]

    untold = dict[str, int]()
    if now_ms:
        changed, untold = _settled(rows, {**between("n"), **named, **found}, now_ms, events, is_inside)
        named |= {key: text for key, text in changed.items() if key[:2] not in ("d/", "c/")}
        found |= {key: text for key, text in changed.items() if is_inside(key)}
    return Accounts(
        [read_entry(key, json.loads(text)) for key, text in sorted(found.items())],
        {key[2:]: BookPlace(*json.loads(text)) for key, text in named.items() if key[:2] == "p/"},
        {key[2:]: Owner.of(json.loads(text)) for key, text in named.items() if key[:2] == "o/"},
        _prices(named),
        json.loads(named.get("head", "{}")).get("closed_day", 0),
        late if now_ms else 0,
        untold if now_ms // DAY_MS < until_day else {},
    )


def _lacking(store: Store, cursor: Cursor | None, head: int) -> tuple[Sequence[Numbered], int]:
    """What the books lack of the log up to there, and how many events they lack that cannot be had now."""
    if cursor is None or not cursor.ready or cursor.version != Ledger.version:
        return [], head
    late = head - cursor.seq
    if late <= 0:
        return [], 0
    if late > _LATE_MAX or store.first_seq() > cursor.seq + 1:
        return [], late
    return store.recent(cursor.seq, late) or store.read(cursor.seq, late), 0


def _prices(rows: Mapping[str, str]) -> Prices:
    """From the rows of the books: the prices in force, and those of closed months."""
    months = [json.loads(text) for key, text in sorted(rows.items()) if key[:2] == "m/"]
    return Prices(
        PriceBook.of(json.loads(rows.get("prices", "{}"))),
        [(month["from_day"], month["until_day"], PriceBook.of(month["prices"])) for month in months],
    )


def read_owed(store: Store, ids: Collection[int], now_ms: int) -> dict[int, int | None]:
    """What each of these jobs owes by now, in micro-dollars, by the books.

    None: a GPU of the job has no price, or the books do not tell of it: they begin after it, or are being filled.
    """
    name, unknown = Ledger.name, dict[int, int | None](dict.fromkeys(ids))
    # The books are some seconds behind: what they lack of these jobs is folded here, on a copy of the rows.
    with _books(store) as (kept, events, late):
        if late:
            return unknown
        keys = sorted({block_key(job_id) for job_id in ids})
        known = {**dict.fromkeys(keys), **kept.at(name, keys)}
        places = dict(kept.between(name, "p/", "p/~"))
        months = dict(kept.between(name, "m/", "m/~"))
        rows = Rows(lambda key: kept.at(name, [key]).get(key), known)
        books = Books(rows)
        for fact in told_of(events, unknown):
            if _about(fact) in unknown or isinstance(fact, NodeAdded | ConfigSet):
                books.fold(fact)
        bills = {job_id: books.bill(job_id, now_ms) for job_id in ids}
        books.flush()
        prices = _prices({**months, "prices": json.dumps(rows.get("prices") or {})})
    places |= {key: text for key, text in rows.changed.items() if key.startswith("p/") and text}
    named = {key[2:]: BookPlace(*json.loads(text)) for key, text in places.items()}
    return {job_id: None if bill is None else _owed(bill, named, prices) for job_id, bill in bills.items()}


def _owed(bill: JobBook, places: Mapping[str, BookPlace], prices: Prices) -> int | None:
    total = 0
    for (day, place), parts, energy_mj in bill.bill():
        price, a_kwh = prices.rate(places[place], day)
        if price is None and parts:
            return None
        total += micro_usd(parts * (price or 0) + energy_mj * a_kwh * KWH_PARTS)
    return total


def _settled(
    kept: FollowingRows,
    some: Mapping[str, str],
    now_ms: int,
    events: Sequence[Numbered],
    is_known: Callable[[str], bool],
) -> tuple[dict[str, str], dict[str, int]]:
    """The rows that are others once these events are folded and everything open is booked; and what is not told yet.

    `some` are rows that are known, all there are of those that `is_known` tells.
    """

    def look_up(key: str) -> str | None:
        return None if is_known(key) else kept.at(Ledger.name, [key]).get(key)

    nodes = [text for key, text in some.items() if key[:2] == "n/"]
    jobs = {block_key(job_id) for text in nodes for job_id in NodeBook.of(json.loads(text)).jobs}
    earmarked = json.loads(some.get("head", "{}")).get("earmarks", {})
    late = list(told_of(events, find_touched(events, map(int, earmarked))))
    told = {block_key(job_id) for fact in late if (job_id := _about(fact)) is not None}
    known: dict[str, str | None] = {**dict.fromkeys(told), **some}
    known |= kept.at(Ledger.name, sorted(jobs | told))
    rows = Rows(look_up, known)
    books = Books(rows)
    for fact in late:
        books.fold(fact)
    books.settle(now_ms)
    untold = books.untold(now_ms - HOUR_MS)
    books.flush()
    return {key: text for key, text in rows.changed.items() if text is not None}, untold


def find_touched(events: Sequence[Numbered], earmarked: Iterable[int]) -> set[int]:
    """The jobs to which something has happened that may cost: one that came, was held and was cancelled has cost
    nothing, if no room was kept for it."""
    found = set(earmarked)
    for _seq, event in events:
        if not isinstance(event, _QUIET) and (job_id := _about(event)) is not None:
            found.add(job_id)
    return found


def told_of(events: Sequence[Numbered], ids: Collection[int]) -> Iterator[Event]:
    """What has happened, without the jobs beside these that only wait or are cancelled: that costs nothing.

    There may be hundreds of thousands of those, while somebody submits array after array and cancels them again.
    """
    ascending = sorted(ids)
    for _seq, event in events:
        if type(event) is not TasksSubmitted:
            if not isinstance(event, _QUIET) or _about(event) in ids:
                yield event
            continue
        first = event.job.id
        at = bisect_left(ascending, first)
        if at < len(ascending) and ascending[at] < first + len(event.indices):
            yield from [fact for fact in expand_event(event) if _about(fact) in ids]


def _about(fact: Event) -> int | None:
    """The job that an event is about."""
    return fact.job.id if isinstance(fact, JobSubmitted) else getattr(fact, "job_id", None)
