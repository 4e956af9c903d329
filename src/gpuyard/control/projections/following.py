"""Projections that follow the log: what one is.

A projection folds events, one by one in the order of the log, into rows of its own. It sees every event, submissions
included, as soon as it is in the log; an array comes as its jobs, each by itself. What it knows is in its rows and
nowhere else, so filling it live and filling it again give the same rows, byte for byte.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from gpuyard.model import Event, JobHeld, JobSubmitted, TasksSubmitted
from gpuyard.model.serialise import Plain
from gpuyard.store.tables.bound import kept_text

_to_json = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False).encode


class Rows:
    """The rows of a projection as its `fold` sees them: JSON values by key, written at the end of the batch.

    Keys are texts; a character that a database cannot keep is replaced, and 600 of them count.
    """

    def __init__(
        self,
        look_up: Callable[[str], str | None] = lambda _key: None,
        known: dict[str, str | None] | None = None,
        look_up_many: Callable[[Sequence[str]], Mapping[str, str]] | None = None,
    ) -> None:
        """`look_up` gives the JSON under a key, or None; without it there are no rows yet. `look_up_many` gives that of
        several keys at once.
        """
        self._look_up = look_up
        self._look_up_many = look_up_many
        self.known: dict[str, str | None] = {} if known is None else known
        """What was looked up, and what was put since."""
        self.changed: dict[str, str | None] = {}
        """As JSON, by key; None: it was removed."""
        self.aside: dict[str, Any] = {}
        """What a projection works on instead of the rows. After `flush` the rows have all of it, and the next batch may
        or may not find it here."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value under a key. A change to it counts only once it is put back."""
        text = self.text(key)
        return default if text is None else json.loads(text)

    def text(self, key: str, ahead: Sequence[str] = ()) -> str | None:
        """The value under a key as JSON; None: there is none. `ahead`: keys that will be asked for next."""
        key = kept_text(key)
        if key not in self.known:
            if ahead and self._look_up_many is not None:
                wanted = [key, *[each for each in ahead if each not in self.known]]
                found = self._look_up_many(wanted)
                self.known.update([(each, found.get(each)) for each in wanted])
            else:
                self.known[key] = self._look_up(key)
        return self.known[key]

    def __getitem__(self, key: str) -> Any:
        found = self.get(key, self)
        if found is self:
            raise KeyError(key)
        return found

    def __contains__(self, key: str) -> bool:
        return self.get(key, self) is not self

    def __setitem__(self, key: str, value: Plain) -> None:
        key = kept_text(key)
        text = _to_json(value)
        self.known[key] = self.changed[key] = text

    def put(self, key: str, value: list[Plain]) -> None:
        """Set a value that has no dicts in it (they might be in any order), in a quarter of the time."""
        self.known[key] = self.changed[key] = to_json(value).decode()

    def put_text(self, key: str, text: str) -> None:
        """Set a value that is JSON already."""
        self.known[key] = self.changed[key] = text

    def __delitem__(self, key: str) -> None:
        key = kept_text(key)
        self.known[key] = self.changed[key] = None


class Projection:
    """What a projection is. Rows depend on the events alone: no clock, no randomness, nothing kept in the object."""

    name: str
    """Of small letters, digits and hyphens."""
    version: int = 1
    """Raise it with every change that makes other rows of the same events: the table is then filled again."""
    closed_by: type | None = None
    """The kind of event after which there shall be a checkpoint, besides that of every week."""

    def fold(self, rows: Rows, seq: int, event: Event) -> None:
        """Change the rows by one event. A log that was cut may tell of jobs whose submission it no longer has."""
        raise NotImplementedError

    def folding(self, rows: Rows) -> Callable[[Event, int], None]:
        """`fold` for a batch of events over the same rows."""
        return lambda event, seq: self.fold(rows, seq, event)

    def flush(self, rows: Rows) -> None:
        """Put what is in `rows.aside` into the rows: the batch ends here."""

    def upgrade(self, version: int, rows: Mapping[str, str]) -> Mapping[str, str] | None:
        """Rows (as JSON) of a checkpoint that an older version wrote, as this one would have them; None: no use."""
        return None


def expand_event(event: Event) -> Iterator[Event]:
    """An event as projections see it: the tasks of an array, each by itself."""
    if type(event) is not TasksSubmitted:
        yield event
        return
    for job in event.jobs():
        yield JobSubmitted(event.at_ms, job)
        if event.held:
            yield JobHeld(event.at_ms, job.id)
