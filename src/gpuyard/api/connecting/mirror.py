"""The queue as a follower keeps it: a list to begin with, then the changes of `/changes`, one after the other."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuyard.wire.endpoints import QUEUE_COLUMNS

Row = list[Any]
"""A job under `QUEUE_COLUMNS`."""
_ID, _STATE, _STARTED, _REASON = map(QUEUE_COLUMNS.index, ("id", "state", "started_ms", "reason"))


class Mirror:
    """Rows in the order of the scheduler. Not to be shared between threads."""

    def __init__(self) -> None:
        self.seq = 0
        """The last event that it shows."""
        self.counts = {"running": 0, "waiting": 0, "set_aside": 0}
        self._rows: dict[int, Row] = {}
        # The order that it was told last; jobs that have come since wait behind.
        self._waiting: dict[int, None] = {}
        self._aside: dict[int, None] = {}

    def fill(self, queue: Mapping[str, Any]) -> None:
        """Begin with a list of everything."""
        self.seq = queue["seq"]
        self._count(queue)
        self._rows = {row[_ID]: _placeless(row) for row in queue["rows"]}
        pending = [row[_ID] for row in queue["rows"] if row[_STATE] == "PENDING"]
        self._waiting = dict.fromkeys(pending[: queue["waiting"]])
        self._aside = dict.fromkeys(pending[queue["waiting"] :])

    def heed(self, name: str, data: Mapping[str, Any]) -> bool:
        """Take in an event; whether the list has to be read again instead."""
        if name == "again":
            return True
        if name == "rows" and data["seq"] >= self.seq:
            self.seq = data["seq"]
            self._count(data)
            self._rows.update({row[_ID]: row for row in data["rows"]})
            for job_id in data["gone"]:
                self._rows.pop(job_id, None)
        elif name == "order":
            self._waiting, self._aside = _ids(data["waiting"]), _ids(data["set_aside"])
        return False

    def _count(self, data: Mapping[str, Any]) -> None:
        self.counts = {name: data[name] for name in self.counts}

    def rows(self) -> list[Row]:
        """All of them: those that run, those that wait, those set aside.

        Jobs of tenants that are out of sight have no start: those that run stand before the others.
        """
        runs = [row for row in self._rows.values() if row[_STATE] != "PENDING"]
        runs.sort(key=lambda row: (row[_STARTED], row[_ID]))
        known = self._waiting.keys() | self._aside.keys()
        pending = {job_id: row for job_id, row in self._rows.items() if row[_STATE] == "PENDING"}
        waits = [*self._waiting, *sorted(pending.keys() - known)]
        line = [pending[job_id] for job_id in waits if job_id in pending]
        aside = [pending[job_id] for job_id in self._aside if job_id in pending]
        return [*runs, *[_placed(row, place) for place, row in enumerate(line)], *aside]


def _placeless(row: Row) -> Row:
    """A row as `/changes` sends it, without a place in line: that would change with every start before it."""
    return [*row[:_REASON], "in line"] if str(row[_REASON]).startswith("in line") else row


def _placed(row: Row, place: int) -> Row:
    """The same row for people, with the place that it has now."""
    return [*row[:_REASON], f"in line, {place} ahead"] if row[_REASON] == "in line" else row


def _ids(runs: Iterable[int | Sequence[int]]) -> dict[int, None]:
    """Ids in order, of which `/changes` sends those that follow each other as `[first, last]`."""
    found: dict[int, None] = {}
    for each in runs:
        if isinstance(each, int):
            found[each] = None
        else:
            found.update(dict.fromkeys(range(each[0], each[1] + 1)))
    return found
