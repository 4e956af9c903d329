"""The rows of the books: short names for owners and places, the same in every process, and values remembered between
batches.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from gpuyard.model import JobSpec
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.model.serialise import Plain

PROJECT = "project"
"""The label that is a dimension of its own."""
LABEL_SETS_MAX = 1_000
"""How many sets of labels are told apart for a user in a tenant and a class; later ones are booked by project alone."""
OWNERS_MAX = 50_000
"""How many owners are remembered with their names."""
SHELF_MAX = 50_000
"""How many values of a kind are remembered, with their rows on disk."""
BLOCK_BITS = 3
"""Jobs whose ids differ in these last bits alone are one row: a database takes as long for it as for a row of one."""
AHEAD = 32
"""Rows that are looked up at once where one after the other is asked for."""
NO_BLOCKS = (-1, -1)
"""The last rows of jobs where there is none."""
_SEPARATOR = ",\n"
"""Between two jobs in a row: nowhere else in it, for the JSON of a job has no space."""

_Facts = tuple[object, ...]
K = TypeVar("K")
V = TypeVar("V")


class RowsLike(Protocol):
    """Where the books are kept: JSON values by key."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value under a key."""
        ...

    def text(self, key: str, ahead: Sequence[str] = ()) -> str | None:
        """The value under a key as JSON; None: there is none. `ahead`: keys that will be asked for next."""
        ...

    def __setitem__(self, key: str, value: Plain) -> None: ...

    def put(self, key: str, value: list[Plain]) -> None:
        """Set a value that has no dicts in it."""
        ...

    def put_text(self, key: str, text: str) -> None:
        """Set a value that is JSON already."""
        ...

    def __delitem__(self, key: str) -> None: ...


class Shelf(Generic[K, V]):
    """Values made of rows: those that may have changed since the rows were written, and others."""

    __slots__ = ("_most", "_same", "touched")

    def __init__(self, each: int = 1) -> None:
        """`each`: how many values one of them counts as."""
        self.touched: dict[K, V] = {}
        """Those that may have changed."""
        self._same: dict[K, V] = {}
        self._most = SHELF_MAX // each

    def get(self, key: K) -> V | None:
        """A value, to be changed."""
        found = self.touched.get(key)
        if found is None and self._same:
            found = self._same.pop(key, None)
            if found is not None:
                self.touched[key] = found
        return found

    def peek(self, key: K) -> V | None:
        """A value, to be looked at."""
        found = self.touched.get(key)
        return found if found is not None else self._same.get(key)

    def drop(self, key: K) -> V | None:
        """Forget a value; what it was."""
        same = self._same.pop(key, None)
        return self.touched.pop(key, same)

    def keep(self, key: K, value: V) -> None:
        """Remember a value that the rows have as it is."""
        self._same[key] = value

    def take(self) -> dict[K, V]:
        """What may have changed since this was asked last."""
        touched = self.hand_out()
        self._same |= touched
        return touched

    def hand_out(self) -> dict[K, V]:
        """The same, and forget it: each is to be kept, here or elsewhere."""
        touched, self.touched = self.touched, {}
        return touched

    def forget(self) -> bool:
        """Forget the older half if there are too many; whether there were."""
        full = len(self._same) > self._most
        if full:
            self._same = dict(islice(self._same.items(), len(self._same) // 2, None))
        return full


def block_key(job_id: int) -> str:
    """The key of the row that a job is in."""
    return f"j/{job_id >> BLOCK_BITS}"


def joined(jobs: Mapping[int, str]) -> str:
    """A row of jobs, of the JSON of each of them by id."""
    return "{" + _SEPARATOR.join([f'"{job_id}":{jobs[job_id]}' for job_id in sorted(jobs)]) + "}"


def parted(text: str) -> dict[int, str]:
    """The jobs that were joined."""
    pairs = [each.split(":", 1) for each in text[1:-1].split(_SEPARATOR)]
    return {int(job_id[1:-1]): job for job_id, job in pairs}


class Blocks:
    """Jobs as they are kept: the JSON of each by its id, a few of them in one row.

    Ids are given one after the other, so jobs of one row come together, and often go together.
    """

    def __init__(self, rows: RowsLike, last: Sequence[int]) -> None:
        self._rows = rows
        self._touched: dict[int, dict[int, str]] = {}
        """By number of the row: the jobs of those that may have changed since the rows were written."""
        self._same = Shelf[int, str](1 << BLOCK_BITS)
        """Others, as they are."""
        self.last = [*last]
        """The last rows that ever were, of jobs of the yard and of those that it observes: later ones are new."""
        self._asked = -1
        """The last row that was asked for."""

    def get(self, job_id: int) -> str | None:
        """A job; None: there is none."""
        number = job_id >> BLOCK_BITS
        block = self._touched.get(number)
        if block is None:
            if number > self.last[job_id >= FIRST_EXTERNAL_ID]:
                return None
            text = self._same.peek(number) or self._text(number, job_id)
            if text is None:
                return None
            self._same.keep(number, text)
            block = parted(text)
        return block.get(job_id)

    def put(self, job_id: int, text: str) -> None:
        """Keep a job."""
        number = job_id >> BLOCK_BITS
        block = self._touched.get(number)
        if block is None:
            block = self._to_change(number, job_id)
        block[job_id] = text

    def drop(self, job_id: int) -> None:
        """Keep nothing of a job."""
        number = job_id >> BLOCK_BITS
        block = self._touched.get(number)
        if block is None:
            block = self._to_change(number, job_id)
        block.pop(job_id, None)

    def flush(self) -> None:
        """Write what has changed into the rows."""
        rows, same = self._rows, self._same.keep
        for number, block in self._touched.items():
            if block:
                text = joined(block)
                rows.put_text(f"j/{number}", text)
                same(number, text)
            else:
                del rows[f"j/{number}"]
        self._touched = {}
        self._same.forget()

    def _text(self, number: int, job_id: int) -> str | None:
        """A row. Where tasks of an array end one after the other, those behind it are looked up with it."""
        ahead: list[str] = []
        if number == self._asked + 1:
            last = min(number + AHEAD, self.last[job_id >= FIRST_EXTERNAL_ID])
            ahead = [f"j/{each}" for each in range(number + 1, last + 1)]
        self._asked = number
        return self._rows.text(f"j/{number}", ahead)

    def _to_change(self, number: int, job_id: int) -> dict[int, str]:
        external, text = job_id >= FIRST_EXTERNAL_ID, None
        if number > self.last[external]:
            self.last[external] = number
        else:
            text = self._same.drop(number) or self._text(number, job_id)
        block = self._touched[number] = parted(text) if text is not None else {}
        return block


@lru_cache(maxsize=4096)
def name_of(facts: _Facts) -> str:
    """A short name for an owner or a place."""
    return sha256(json.dumps(facts, separators=(",", ":")).encode()).hexdigest()[:16]


class Names:
    """The owners and places that the books tell apart."""

    def __init__(self, rows: RowsLike) -> None:
        self._rows = rows
        self._owners: dict[_Facts, str] = {}
        """Names of owners, as far as they are remembered."""
        self._new: dict[str, Plain] = {}
        """Owners and places that came up since the rows were written."""
        self._written: set[str] = set()
        """Those that are in the rows, as far as it is known."""
        self._sets: dict[str, int] = {}
        """How many sets of labels an owner has, where that has changed."""

    def flush(self) -> None:
        """Write what is new into the rows."""
        for key, facts in self._new.items():
            if key not in self._written:
                self._rows[key] = facts
        self._written.update(self._new)
        self._new = {}
        for bare, count in self._sets.items():
            self._rows[f"l/{bare}"] = count
        self._sets = {}

    def place(self, facts: _Facts) -> str:
        """Of a place: cluster, pool, model, market and region."""
        return self._named("p", facts)

    def owner(self, spec: JobSpec, klass: str) -> str:
        """Of the owner of a job; `klass` is its class if it names none."""
        facts: _Facts = (spec.tenant, spec.user, spec.klass or klass)
        asked = (*facts, spec.labels) if spec.labels else facts
        name = self._owners.get(asked)
        if name is None:
            name = self._named("o", self._labelled(facts, spec.labels) if spec.labels else facts)
            if len(self._owners) >= OWNERS_MAX:
                self._owners = {}
            self._owners[asked] = name
        return name

    def unknown(self) -> str:
        """Of a job of whose submission a log that was cut does not tell."""
        return self._named("o", ("", "", ""))

    def _named(self, kind: str, facts: _Facts) -> str:
        name = name_of(facts)
        self._new[f"{kind}/{name}"] = facts
        return name

    def _labelled(self, facts: _Facts, labels: tuple[tuple[str, str], ...]) -> _Facts:
        """An owner with labels: of one that has too many sets of them, new sets are the project alone, then none."""
        bare = name_of(facts)
        row = self._rows.get(f"l/{bare}", 0) if bare not in self._sets else self._sets[bare]
        project = tuple([each for each in labels if each[0] == PROJECT])
        for kept, most in ((labels, LABEL_SETS_MAX), (project, 2 * LABEL_SETS_MAX)):
            if not kept:
                break
            named = f"o/{name_of((*facts, kept))}"
            if named in self._new or named in self._written or self._rows.get(named) is not None:
                return (*facts, kept)
            if row < most:
                self._sets[bare] = row + 1
                return (*facts, kept)
        return facts
