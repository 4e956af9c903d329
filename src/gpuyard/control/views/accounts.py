"""The books as a report reads them: the entries of some days, with what is still open added up to now.

A stretch of time is booked when it ends. So that a report tells of jobs that run and GPUs that idle, the books are
settled up to now on a copy of the rows in memory; nothing of that is written.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from gpuyard.control.projections.following import Rows
from gpuyard.control.projections.ledger import Ledger
from gpuyard.ledger.accounts import Entry, Line, Owner, Prices, read_entry, summed
from gpuyard.ledger.books import Books
from gpuyard.ledger.nodes import NodeBook
from gpuyard.model.prices import BookPlace, PriceBook
from gpuyard.store import Store


class Accounts(NamedTuple):
    """Some days of the books."""

    entries: list[Entry]
    places: dict[str, BookPlace]
    owners: dict[str, Owner]
    prices: Prices

    def lines(self, by: Sequence[str]) -> list[Line]:
        """Summed up by these dimensions."""
        return summed(self.entries, by, self.places, self.owners, self.prices)

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
    months = [json.loads(text) for text in between("m").values()]
    in_force = json.loads(store.projected_at(name, ["prices"]).get("prices", "{}"))
    return Accounts(
        [read_entry(key, json.loads(text)) for key, text in sorted(found.items())],
        {key[2:]: BookPlace(*json.loads(text)) for key, text in named.items() if key[:2] == "p/"},
        {key[2:]: Owner.of(json.loads(text)) for key, text in named.items() if key[:2] == "o/"},
        Prices(
            PriceBook.of(in_force),
            [(month["from_day"], month["until_day"], PriceBook.of(month["prices"])) for month in months],
        ),
    )


def _settled(store: Store, nodes: dict[str, str], now_ms: int) -> dict[str, str]:
    """The rows that are others once everything open is booked."""
    jobs = {f"j/{job_id}" for text in nodes.values() for job_id in NodeBook.of(json.loads(text)).jobs}
    known: dict[str, str | None] = {**nodes, **store.projected_at(Ledger.name, sorted(jobs))}
    rows = Rows(lambda key: store.projected_at(Ledger.name, [key]).get(key), known)
    books = Books(rows)
    books.settle(now_ms)
    books.flush()
    return {key: text for key, text in rows.changed.items() if text is not None}
