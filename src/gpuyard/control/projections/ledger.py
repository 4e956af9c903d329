"""The books as a projection that follows the log: all rows are those of `gpuyard.ledger.books`."""

import json
from collections.abc import Callable, Mapping

from gpuyard.control.projections.following import Projection, Rows
from gpuyard.ledger.books import Books
from gpuyard.ledger.rows import NO_BLOCKS, Blocks
from gpuyard.model import Event, MonthClosed
from gpuyard.model.units import DAY_MS
from gpuyard.store import Store

_OVER_FIELDS = 5
"""Of a job that has no attempt now."""


class Ledger(Projection):
    """The time book and the charges. A month that is closed leaves a checkpoint, from which they are filled again."""

    name = "ledger"
    version = 6
    closed_by = MonthClosed
    """The books of a closed month stand: filling them again may begin there."""

    def fold(self, rows: Rows, seq: int, event: Event) -> None:
        """Into the books over these rows."""
        self.folding(rows)(event, seq)

    def folding(self, rows: Rows) -> Callable[[Event, int], None]:
        """The books are kept aside, so that a row which many events change is written once and hardly ever read."""
        books: Books | None = rows.aside.get(self.name)
        if books is None:
            books = rows.aside[self.name] = Books(rows)
        return books.fold

    def flush(self, rows: Rows) -> None:
        """Write what has changed. The books remember what they need of the rest."""
        books = rows.aside.get(self.name)
        if books is not None:
            books.flush()
            rows.known.clear()

    def upgrade(self, version: int, rows: Mapping[str, str]) -> Mapping[str, str] | None:
        """Before version 6, each job had a row of its own; before 4, with all that its past attempts had."""
        if version not in (3, 4, 5):
            return None
        lifted = Rows()
        blocks = Blocks(lifted, NO_BLOCKS)
        for key, text in rows.items():
            if key.startswith("j/"):
                blocks.put(int(key[2:]), _lifted(text, version))
        blocks.flush()
        lifted["head"] = {**json.loads(rows.get("head", "{}")), "blocks": blocks.last}
        others = {key: text for key, text in rows.items() if not key.startswith("j/")}
        return {**others, **{key: text for key, text in lifted.changed.items() if text is not None}}


def _lifted(text: str, version: int) -> str:
    row = json.loads(text)
    if len(row) == 1:
        return text
    if version == 3:
        owner, attempt, phase, since_ms, start_ms, paid_ms, parts, runs, past, times, costs = row
        held = [[each, [[part[1], part[8]] for part in before], spans] for each, before, spans in past]
        row = [owner, attempt, held, times, costs]
        if phase:
            parts = [[*part[:5], part[5] if any(part[5]) else [], *part[6:]] for part in parts]
            row += [phase, since_ms, start_ms, paid_ms, parts, runs]
    if len(row) > _OVER_FIELDS:
        # All that its attempt took to start was booked by then.
        row.append(0)
    return json.dumps(row, separators=(",", ":"))


def closed_day(store: Store) -> int:
    """Days before this one belong to closed months, as far as the books have come; 0: none does."""
    head = store.projections.at(Ledger.name, ["head"]).get("head")
    found: int = json.loads(head)["closed_day"] if head else 0
    return found


def first_day(store: Store) -> int:
    """The first day that the books tell of, or will once what is open is booked; 0: there is none."""
    days = [int(key.split("/")[1]) for key, _text in store.projections.rows(Ledger.name, "d/", limit=1)]
    days += [event.at_ms // DAY_MS for _seq, event in store.read(store.first_seq() - 1, 1)]
    return min(days, default=0)
