"""The books as a report reads them: the entries of some days, with what is still open added up to now.

A stretch of time is booked when it ends. So that a report tells of jobs that run and GPUs that idle, the books are
settled up to now on a copy of the rows in memory; nothing of that is written.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from gpuyard.control.projections.following import Rows, facts
from gpuyard.control.projections.ledger import Ledger
from gpuyard.ledger.accounts import Entry, Line, Owner, Prices, micro_usd, read_entry, summed
from gpuyard.ledger.books import Books
from gpuyard.ledger.jobs import JobBook
from gpuyard.ledger.nodes import NodeBook
from gpuyard.ledger.units import KWH_PARTS
from gpuyard.model import JobSubmitted, NodeAdded
from gpuyard.model.prices import BookPlace, PriceBook
from gpuyard.store import Store

_LATE_MAX = 20_000
"""How many events the books may lack; more: they are being filled."""
_TRIES_MAX = 5
"""How often rows are read again because the books moved meanwhile."""


class Accounts(NamedTuple):
    """Some days of the books."""

    entries: list[Entry]
    places: dict[str, BookPlace]
    owners: dict[str, Owner]
    prices: Prices

    def lines(self, by: Sequence[str], *, whole: bool = False) -> list[Line]:
        """Summed up by these dimensions; `whole`: with what was not charged."""
        return summed(self.entries, by, self.places, self.owners, self.prices, whole=whole)

    def unpriced(self) -> list[str]:
        """GPU models that had no price on some of the days."""
        seen = {(entry.place, entry.day) for entry in self.entries}
        found = {
            self.places[place] for place, day in seen if self.prices.rate(self.places[place], day)[0] is None
        }
        return sorted({place.model for place in found})


def accounts(store: Store, from_day: int, until_day: int, now_ms: int = 0) -> Accounts:
    """The days from the first to before the second; `now_ms`: with what is open by then."""
    name = Ledger.name

    def between(kind: str, low: str = "", high: str = "~") -> dict[str, str]:
        return dict(store.projected_between(name, f"{kind}/{low}", f"{kind}/{high}"))

    named = {**between("o"), **between("p")}
    found = {
        **between("d", f"{from_day:06}", f"{until_day:06}"),
        **between("c", f"{from_day:06}", f"{until_day:06}"),
    }
    if now_ms:
        changed = _settled(store, between("n"), now_ms)
        named |= {key: text for key, text in changed.items() if key[:2] in ("o/", "p/")}
        inside = [f"{day:06}" for day in (from_day, until_day)]
        found |= {
            key: text
            for key, text in changed.items()
            if key[:2] in ("d/", "c/") and inside[0] <= key[2:8] < inside[1]
        }
    return Accounts(
        [read_entry(key, json.loads(text)) for key, text in sorted(found.items())],
        {key[2:]: BookPlace(*json.loads(text)) for key, text in named.items() if key[:2] == "p/"},
        {key[2:]: Owner.of(json.loads(text)) for key, text in named.items() if key[:2] == "o/"},
        _prices(store),
    )


def _prices(store: Store) -> Prices:
    months = [json.loads(text) for _key, text in store.projected_between(Ledger.name, "m/", "m/~")]
    in_force = json.loads(store.projected_at(Ledger.name, ["prices"]).get("prices", "{}"))
    return Prices(
        PriceBook.of(in_force),
        [(month["from_day"], month["until_day"], PriceBook.of(month["prices"])) for month in months],
    )


def owed(store: Store, ids: Collection[int], now_ms: int) -> dict[int, int | None]:
    """What each of these jobs owes by now, in micro-dollars, by the books.

    None: a GPU of the job has no price, or the books do not tell of it: they begin after it, or are being filled.
    """
    name, unknown = Ledger.name, dict[int, int | None](dict.fromkeys(ids))
    for _ in range(_TRIES_MAX):
        cursor = store.cursors().get(name)
        if cursor is None or not cursor.ready or cursor.version != Ledger.version:
            break
        # The books are some seconds behind: what they lack of these jobs is folded here, on a copy of the rows.
        late = store.head() - cursor.seq
        if late > _LATE_MAX or store.first_seq() > cursor.seq + 1:
            break
        events = (store.recent(cursor.seq, late) or store.read(cursor.seq, late)) if late else []
        keys = [f"j/{job_id}" for job_id in ids]
        known = {**dict.fromkeys(keys), **store.projected_at(name, keys)}
        places, prices = dict(store.projected_between(name, "p/", "p/~")), _prices(store)
        rows = Rows(lambda key: store.projected_at(name, [key]).get(key), known)
        books = Books(rows)
        for fact in [fact for _seq, event in events for fact in facts(event)]:
            about = fact.job.id if isinstance(fact, JobSubmitted) else getattr(fact, "job_id", None)
            if about in unknown or isinstance(fact, NodeAdded):
                books.fold(fact)
        bills = {job_id: books.bill(job_id, now_ms) for job_id in ids}
        if store.cursors().get(name, cursor).seq == cursor.seq:
            books.flush()
            places |= {key: text for key, text in rows.changed.items() if key.startswith("p/") and text}
            named = {key[2:]: BookPlace(*json.loads(text)) for key, text in places.items()}
            return {
                job_id: None if bill is None else _owed(bill, named, prices) for job_id, bill in bills.items()
            }
    return unknown


def _owed(bill: JobBook, places: Mapping[str, BookPlace], prices: Prices) -> int | None:
    exact = 0
    for (day, place), parts, energy_mj in bill.bill():
        price, a_kwh = prices.rate(places[place], day)
        if price is None and parts:
            return None
        exact += parts * (price or 0) + energy_mj * a_kwh * KWH_PARTS
    return micro_usd([exact])[0]


def _settled(store: Store, nodes: dict[str, str], now_ms: int) -> dict[str, str]:
    """The rows that are others once everything open is booked."""
    jobs = {f"j/{job_id}" for text in nodes.values() for job_id in NodeBook.of(json.loads(text)).jobs}
    known: dict[str, str | None] = {**nodes, **store.projected_at(Ledger.name, sorted(jobs))}
    rows = Rows(lambda key: store.projected_at(Ledger.name, [key]).get(key), known)
    books = Books(rows)
    books.settle(now_ms)
    books.flush()
    return {key: text for key, text in rows.changed.items() if text is not None}
