"""The books as a projection that follows the log: all rows are those of `gpuyard.ledger.books`."""

import json

from gpuyard.control.projections.following import Projection, Rows
from gpuyard.ledger.books import Books
from gpuyard.model import Event, MonthClosed
from gpuyard.store import Store


class Ledger(Projection):
    """The time book and the charges. A month that is closed leaves a checkpoint, from which they are filled again."""

    name = "ledger"
    version = 3

    def fold(self, rows: Rows, seq: int, event: Event) -> None:
        """The books are kept aside, so that a row which many events change is written once and hardly ever read."""
        books = rows.aside.get(self.name)
        if books is None:
            books = rows.aside[self.name] = Books(rows)
        books.fold(event)

    def flush(self, rows: Rows) -> None:
        """Write what has changed. The books remember what they need of the rest."""
        books = rows.aside.get(self.name)
        if books is not None:
            books.flush()
            rows.known.clear()

    def closes(self, event: Event) -> bool:
        """The books of a closed month stand: filling them again may begin there."""
        return isinstance(event, MonthClosed)


def closed_day(store: Store) -> int:
    """Days before this one belong to closed months, as far as the books have come; 0: none does."""
    head = store.projected_at(Ledger.name, ["head"]).get("head")
    found: int = json.loads(head)["closed_day"] if head else 0
    return found
